package kube

import (
	"context"
	"errors"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Page selects one page of a list: the objects of a namespace, or of all where it
// is empty, with matching labels, at most Limit of them, from where Continue of an
// earlier page left off.
type Page struct {
	Namespace, Selector, Continue string
	// Name selects the object of that name alone. The API server then reads no other one.
	Name  string
	Limit int
	// Metadata leaves out of the objects all but their metadata.
	Metadata bool
}

const acceptMetadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// ListInto reads a page of a resource into list. list may be of any type that its
// JSON decodes into, so that a caller that needs a few fields of many objects
// decodes only those.
func (c *Client) ListInto(ctx context.Context, resource schema.GroupVersionResource, page Page, list any) error {
	path := []string{"/apis", resource.Group, resource.Version}
	if page.Namespace != "" {
		path = append(path, "namespaces", page.Namespace)
	}
	request := c.anyREST().Get().AbsPath(append(path, resource.Resource)...).
		Param("limit", strconv.Itoa(page.Limit))
	if page.Selector != "" {
		request = request.Param("labelSelector", page.Selector)
	}
	if page.Name != "" {
		request = request.Param("fieldSelector", fields.OneTermEqualSelector(metav1.ObjectNameField, page.Name).String())
	}
	if page.Continue != "" {
		request = request.Param("continue", page.Continue)
	}
	if page.Metadata {
		request = request.SetHeader("Accept", acceptMetadata)
	}
	return wrap(parse(request.Do(ctx), list), "list", resource, page.Namespace, "")
}

// EachMetadata calls f with the metadata of each object that page selects, and lists as many pages as there are.
func (c *Client) EachMetadata(ctx context.Context, resource schema.GroupVersionResource, page Page, f func(*metav1.PartialObjectMetadata)) error {
	for page.Metadata = true; ; {
		var list metav1.PartialObjectMetadataList
		if err := c.ListInto(ctx, resource, page, &list); err != nil {
			return err
		}
		for i := range list.Items {
			f(&list.Items[i])
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return nil
		}
	}
}

// ContinueExpired reports whether the API server has refused the token of a list that continues,
// because it has compacted the state that the token stands for, or cannot read the token. next is
// the token with which the list continues in the present state. If it is empty, the list has to
// start again.
func ContinueExpired(err error) (next string, expired bool) {
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) && !apierrors.IsBadRequest(err) {
		return "", false
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		next = status.Status().Continue
	}
	return next, true
}

// anyREST is some REST client: for an absolute path they are all the same.
func (c *Client) anyREST() rest.Interface {
	for _, client := range c.rest {
		return client
	}
	return nil
}

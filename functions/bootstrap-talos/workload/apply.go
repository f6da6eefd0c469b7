package workload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// FieldManager owns the fields of objects that Apply has applied.
const FieldManager = "vitistack"

// UnknownKindError is an object of a kind that the API does not serve.
type UnknownKindError struct{ schema.GroupVersionKind }

func (e UnknownKindError) Error() string {
	return fmt.Sprintf("the workload API serves no %s of %s", e.Kind, e.GroupVersion())
}

// Apply creates an object, or changes the fields that it has, by server-side apply. It takes over fields of other
// managers. A namespaced object without a namespace is in the namespace default, as for kubectl. It returns an
// UnknownKindError, or a StatusError with the answer of the API.
func (w *Client) Apply(ctx context.Context, o *unstructured.Unstructured) error {
	resource, err := w.resourceOf(ctx, o.GroupVersionKind())
	if err != nil {
		return err
	}
	path := rootOf(o.GroupVersionKind().GroupVersion())
	if resource.Namespaced {
		if o.GetNamespace() == "" {
			o = o.DeepCopy()
			o.SetNamespace(metav1.NamespaceDefault)
		}
		path += "/namespaces/" + url.PathEscape(o.GetNamespace())
	}
	path += "/" + resource.Name + "/" + url.PathEscape(o.GetName()) + "?fieldManager=" + FieldManager + "&force=true"
	return w.call(ctx, http.MethodPatch, path, "application/apply-patch+yaml", o.Object, nil)
}

// rootOf returns the path of an API.
func rootOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// resourceOf returns the resource of a kind. It reads the resources of an API once, and again for a kind that is
// not among them.
func (w *Client) resourceOf(ctx context.Context, kind schema.GroupVersionKind) (metav1.APIResource, error) {
	w.mu.Lock()
	resource, known := w.resources[kind]
	w.mu.Unlock()
	if known {
		return resource, nil
	}
	list := metav1.APIResourceList{}
	err := w.call(ctx, http.MethodGet, rootOf(kind.GroupVersion()), "", nil, &list)
	if r := (StatusError{}); errors.As(err, &r) && r.Code == http.StatusNotFound {
		return metav1.APIResource{}, UnknownKindError{kind}
	}
	if err != nil {
		return metav1.APIResource{}, fmt.Errorf("list resources of %s: %w", kind.GroupVersion(), err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resources == nil {
		w.resources = map[schema.GroupVersionKind]metav1.APIResource{}
	}
	for _, r := range list.APIResources {
		if !strings.Contains(r.Name, "/") {
			w.resources[kind.GroupVersion().WithKind(r.Kind)] = r
		}
	}
	if resource, known = w.resources[kind]; !known {
		return metav1.APIResource{}, UnknownKindError{kind}
	}
	return resource, nil
}

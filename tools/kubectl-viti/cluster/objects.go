package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// pageSize is the number of objects of one answer.
const pageSize = 500

// Object is an object as the API server returns it.
type Object = unstructured.Unstructured

// Objects are objects of several kinds.
type Objects struct {
	All []unstructured.Unstructured
	// Unreadable are the kinds that the user may not list.
	Unreadable []Kind
}

// Set returns the objects as a Set in which causes are looked for.
func (o Objects) Set() (*cause.Set, error) { return cause.DecodeSet(o.All) }

// Note says which kinds are missing, or is empty.
func (o Objects) Note() string {
	if len(o.Unreadable) == 0 {
		return ""
	}
	var names []string
	for _, k := range o.Unreadable {
		names = append(names, k.Resource)
	}
	return fmt.Sprintf("You may not list %s, so they are left out. The platform team can bind the ClusterRole vitistack-view to you.", strings.Join(names, ", "))
}

// Load lists objects of kinds in a namespace, or in all if the namespace is empty. It leaves out
// kinds that the cluster does not have, and notes the kinds that the user may not list. Secrets have
// their metadata only.
func (c *Connection) Load(ctx context.Context, namespace string, kinds ...Kind) (Objects, error) {
	var lock sync.Mutex
	var wait sync.WaitGroup
	var found Objects
	var failed error
	for _, k := range kinds {
		wait.Go(func() {
			items, err := c.list(ctx, k, namespace)
			lock.Lock()
			defer lock.Unlock()
			switch {
			case err == nil:
				found.All = append(found.All, items...)
			case apierrors.IsForbidden(err):
				found.Unreadable = append(found.Unreadable, k)
			case apierrors.IsNotFound(err) && k.Group != group:
			default:
				failed = c.Explain(err, k, "")
			}
		})
	}
	wait.Wait()
	slices.SortFunc(found.Unreadable, func(a, b Kind) int { return strings.Compare(a.Resource, b.Resource) })
	return found, failed
}

// list returns all objects of a kind, of Leases only the ones with a holder, and of Secrets only the metadata.
func (c *Connection) list(ctx context.Context, k Kind, namespace string) ([]unstructured.Unstructured, error) {
	switch k.Name {
	case "Secret":
		return c.listSecrets(ctx, k, namespace)
	case "Lease":
		return c.ListPages(ctx, k, namespace, v1alpha1.LabelHolder)
	default:
		return c.ListPages(ctx, k, namespace, "")
	}
}

// ListPages returns the whole objects of a kind that a label selector accepts, page by page. The namespace is empty for
// all namespaces. An error is that of the API server.
func (c *Connection) ListPages(ctx context.Context, k Kind, namespace, labels string) ([]unstructured.Unstructured, error) {
	options := metav1.ListOptions{Limit: pageSize, LabelSelector: labels}
	var all []unstructured.Unstructured
	for {
		page, err := c.In(k, namespace).List(ctx, options)
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			page.Items[i].SetGroupVersionKind(k.GVR().GroupVersion().WithKind(k.Name))
		}
		all = append(all, page.Items...)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// listSecrets returns the metadata of Secrets. Their contents stay at the API server.
func (c *Connection) listSecrets(ctx context.Context, k Kind, namespace string) ([]unstructured.Unstructured, error) {
	client, err := metadata.NewForConfig(c.Config)
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(k.GVR()).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var all []unstructured.Unstructured
	for i := range list.Items {
		u := unstructured.Unstructured{Object: map[string]any{}}
		u.SetAPIVersion("v1")
		u.SetKind(k.Name)
		u.SetNamespace(list.Items[i].Namespace)
		u.SetName(list.Items[i].Name)
		u.SetUID(list.Items[i].UID)
		u.SetLabels(list.Items[i].Labels)
		u.SetOwnerReferences(list.Items[i].OwnerReferences)
		all = append(all, u)
	}
	return all, nil
}

package apiserver

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/json"
)

// Object returns an object of the stack as it is now, or nil if there is none. namespace is empty for a kind of the
// whole cluster. It lists by name, because the gateway has no other right.
func (c *Client) Object(ctx context.Context, apiVersion, resource, namespace, name string) (*unstructured.Unstructured, error) {
	path := []string{"/apis", apiVersion}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	options := &metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	raw, err := c.core.Get().AbsPath(append(path, resource)...).VersionedParams(options, c.params).Do(ctx).Raw()
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", resource, namespace, name, err)
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", resource, namespace, name, err)
	}
	for _, item := range list.Items {
		if o := (&unstructured.Unstructured{Object: item}); o.GetName() == name && o.GetNamespace() == namespace {
			return o, nil
		}
	}
	return nil, nil
}

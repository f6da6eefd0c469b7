package apiserver

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// MachineClasses returns all MachineClasses by name, and none if the API server does not know the kind.
func (c *Client) MachineClasses(ctx context.Context) ([]v1alpha1.MachineClass, error) {
	list := v1alpha1.MachineClassList{}
	err := c.readAll(ctx, "machineclasses", fields.Everything(), &list)
	slices.SortFunc(list.Items, func(a, b v1alpha1.MachineClass) int { return strings.Compare(a.Name, b.Name) })
	return list.Items, err
}

// NetworkPools returns all NetworkPools, and none if the API server does not know the kind.
func (c *Client) NetworkPools(ctx context.Context) ([]v1alpha1.NetworkPool, error) {
	list := v1alpha1.NetworkPoolList{}
	err := c.readAll(ctx, "networkpools", fields.Everything(), &list)
	return list.Items, err
}

// ClusterTemplates returns all ClusterTemplates, and none if the API server does not know the kind.
func (c *Client) ClusterTemplates(ctx context.Context) ([]v1alpha1.ClusterTemplate, error) {
	list := v1alpha1.ClusterTemplateList{}
	err := c.readAll(ctx, "clustertemplates", fields.Everything(), &list)
	return list.Items, err
}

// ClustersOf returns the KubernetesClusters of all namespaces that name a ClusterTemplate, with the owners of their fields.
func (c *Client) ClustersOf(ctx context.Context, template string) ([]v1alpha1.KubernetesCluster, error) {
	list := v1alpha1.KubernetesClusterList{}
	err := c.readAll(ctx, "kubernetesclusters", fields.OneTermEqualSelector("spec.templateRef.name", template), &list)
	return list.Items, err
}

// readAll reads the objects of a kind that a selector matches into a list, those of all namespaces, and none if the API server
// does not know the kind.
func (c *Client) readAll(ctx context.Context, resource string, selector fields.Selector, list any) error {
	options := &metav1.ListOptions{FieldSelector: selector.String()}
	raw, err := c.core.Get().AbsPath("/apis", v1alpha1.GroupVersion.String(), resource).VersionedParams(options, c.params).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(raw, list)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", resource, err)
	}
	return nil
}

// NamespaceLabels returns the labels of a namespace, and none if it does not exist.
func (c *Client) NamespaceLabels(ctx context.Context, namespace string) (map[string]string, error) {
	raw, err := c.core.Get().AbsPath("/api/v1/namespaces", namespace).Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	var found metav1.PartialObjectMetadata
	if err == nil {
		err = json.Unmarshal(raw, &found)
	}
	if err != nil {
		return nil, fmt.Errorf("read the labels of namespace %s: %w", namespace, err)
	}
	return found.Labels, nil
}

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

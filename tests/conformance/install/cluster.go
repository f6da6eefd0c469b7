package install

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// cluster is an API server with every kind that the stack expects.
type cluster struct {
	config  *rest.Config
	dynamic dynamic.Interface
	mapper  meta.RESTMapper
}

// servedTimeout bounds the time until an API server on a busy machine serves new kinds.
const servedTimeout = time.Minute

// newCluster applies definitions, and waits until they are served.
func newCluster(ctx context.Context, config *rest.Config, crds []*unstructured.Unstructured) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c := &cluster{config: config, dynamic: client}
	if err := c.discover(); err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if err := c.apply(ctx, crd, false); err != nil {
			return nil, fmt.Errorf("install %s: %w", crd.GetName(), err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, servedTimeout)
	defer cancel()
	for _, crd := range crds {
		for !c.established(ctx, crd) {
			select {
			case <-ctx.Done():
				return nil, fmt.Errorf("%s does not get established: %w", crd.GetName(), ctx.Err())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return c, c.discover()
}

func (c *cluster) established(ctx context.Context, crd *unstructured.Unstructured) bool {
	client, err := c.client(crd)
	if err != nil {
		return false
	}
	now, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
	if err != nil {
		return false
	}
	conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "Established" && fields["status"] == "True" {
			return true
		}
	}
	return false
}

// discover reads which kinds are served.
func (c *cluster) discover() error {
	client, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return err
	}
	groups, err := restmapper.GetAPIGroupResources(client)
	if err != nil {
		return err
	}
	c.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	return nil
}

func (c *cluster) client(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	kind := object.GroupVersionKind()
	mapping, err := c.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return c.dynamic.Resource(mapping.Resource).Namespace(object.GetNamespace()), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}

// apply applies an object as kubectl apply --server-side does, with strict validation.
func (c *cluster) apply(ctx context.Context, object *unstructured.Unstructured, dry bool) error {
	client, err := c.client(object)
	if err != nil {
		return err
	}
	options := metav1.PatchOptions{FieldManager: "conformance", FieldValidation: metav1.FieldValidationStrict}
	if dry {
		options.DryRun = []string{metav1.DryRunAll}
	}
	text, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = client.Patch(ctx, object.GetName(), types.ApplyYAMLPatchType, text, options)
	return err
}

// get reads an object, or returns nil if it does not exist.
func (c *cluster) get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	client, err := c.client(object)
	if err != nil {
		return nil, err
	}
	found, err := client.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return found, err
}

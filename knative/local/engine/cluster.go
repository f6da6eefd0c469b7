package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/knative/local/manifest"
)

// fieldManager owns the fields that the engine applies.
const fieldManager = "viti-local"

// resource is the API resource of a kind.
type resource struct {
	schema.GroupVersionResource
	namespaced bool
}

// cluster is the API server from its administrator's point of view.
type cluster struct {
	config  *rest.Config
	dynamic dynamic.Interface
	typed   kubernetes.Interface

	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]resource
}

func newCluster(kubeconfig string) (*cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kubeconfig, err)
	}
	config.QPS = -1
	config.UserAgent = fieldManager
	config.WarningHandler = rest.NoWarnings{}
	c := &cluster{config: config, kinds: map[schema.GroupVersionKind]resource{}}
	if c.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("build the dynamic client: %w", err)
	}
	if c.typed, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("build the typed client: %w", err)
	}
	return c, nil
}

// discover reads the present kinds of the API server.
func (c *cluster) discover() error {
	_, lists, err := c.typed.Discovery().ServerGroupsAndResources()
	if err != nil {
		return fmt.Errorf("ask the API server for its kinds: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("parse a group of the API server: %w", err)
		}
		for _, r := range list.APIResources {
			gvk := gv.WithKind(r.Kind)
			if _, known := c.kinds[gvk]; !known { // subresources follow their resource
				c.kinds[gvk] = resource{gv.WithResource(r.Name), r.Namespaced}
			}
		}
	}
	return nil
}

// learn adds the kinds of a CRD, which discovery shows after a delay only.
func (c *cluster) learn(crd *apiextensionsv1.CustomResourceDefinition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, version := range crd.Spec.Versions {
		gv := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
		c.kinds[gv.WithKind(crd.Spec.Names.Kind)] = resource{gv.WithResource(crd.Spec.Names.Plural), crd.Spec.Scope == apiextensionsv1.NamespaceScoped}
	}
}

func (c *cluster) kind(gvk schema.GroupVersionKind) (resource, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, ok := c.kinds[gvk]
	if !ok {
		return resource{}, fmt.Errorf("the API server has no kind %s in %s: correct it, or install its CRD with --crds", gvk.Kind, gvk.GroupVersion())
	}
	return r, nil
}

// applied is an object that was applied.
type applied struct {
	Resource        schema.GroupVersionResource `json:"resource"`
	Namespace, Name string
}

// apply applies the object of a manifest by server-side apply. It writes nothing if the object is up
// to date.
func (c *cluster) apply(ctx context.Context, object *unstructured.Unstructured, manager string) (applied, error) {
	r, err := c.kind(object.GroupVersionKind())
	if err != nil {
		return applied{}, err
	}
	object = object.DeepCopy()
	if r.namespaced && object.GetNamespace() == "" {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return applied{}, fmt.Errorf("encode: %w", err)
	}
	force := true
	_, err = c.client(r.GroupVersionResource, object.GetNamespace()).Patch(ctx, object.GetName(), types.ApplyPatchType, body,
		metav1.PatchOptions{FieldManager: manager, Force: &force, FieldValidation: metav1.FieldValidationStrict})
	if err != nil {
		return applied{}, err
	}
	return applied{r.GroupVersionResource, object.GetNamespace(), object.GetName()}, nil
}

func (c *cluster) client(gvr schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic.Resource(gvr)
	}
	return c.dynamic.Resource(gvr).Namespace(namespace)
}

// delete deletes an object. An object that does not exist is no error.
func (c *cluster) delete(ctx context.Context, o applied) error {
	err := c.client(o.Resource, o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %s/%s: %w", o.Resource.Resource, o.Namespace, o.Name, err)
	}
	return nil
}

// ConfigMap implements manifest.Store.
func (c *cluster) ConfigMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	object, err := c.typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, manifest.ErrAbsent
	}
	if err != nil {
		return nil, err
	}
	return object.Data, nil
}

// Secret implements manifest.Store.
func (c *cluster) Secret(ctx context.Context, namespace, name string) (map[string]string, error) {
	object, err := c.typed.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, manifest.ErrAbsent
	}
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for key, value := range object.Data {
		values[key] = string(value)
	}
	return values, nil
}

// configMap returns the ConfigMap with the values of --config.
func configMap(namespace, name string, data map[string]string) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data:       data,
	})
	if err != nil {
		return nil, fmt.Errorf("build the ConfigMap %s/%s: %w", namespace, name, err)
	}
	unstructured.RemoveNestedField(object, "metadata", "creationTimestamp")
	return &unstructured.Unstructured{Object: object}, nil
}

// each calls f for all items, several concurrently, and joins the errors.
func each[T any](items []T, f func(T) error) error {
	const atOnce = 8
	errs := make([]error, len(items))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(item)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// any reports whether one of the known kinds matches.
func (c *cluster) any(fits func(resource) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.kinds {
		if fits(r) {
			return true
		}
	}
	return false
}

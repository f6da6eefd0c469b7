package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/vitistack/stack/knative/local/crds"
	"github.com/vitistack/stack/knative/local/manifest"
)

const (
	platformNamespace = "vitistack-system"
	configName        = "vitistack-config"
	establishTimeout  = 2 * time.Minute
)

var (
	crdResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
	crdKind     = apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition")
)

// definitions are the CRDs to install. own are those of the repository.
type definitions struct {
	documents []manifest.Document
	own       []*apiextensionsv1.CustomResourceDefinition
	all       []*apiextensionsv1.CustomResourceDefinition
}

// readDefinitions reads the repository's CRDs, Knative's and those of more directories.
func readDefinitions(own string, more []string) (definitions, error) {
	var d definitions
	documents, err := manifest.ReadDir(own)
	if err != nil {
		return definitions{}, err
	}
	knative, err := manifest.ReadFS(crds.Files)
	if err != nil {
		return definitions{}, err
	}
	groups := [][]manifest.Document{documents, knative}
	for _, dir := range more {
		documents, err := manifest.ReadDir(dir)
		if err != nil {
			return definitions{}, err
		}
		groups = append(groups, documents)
	}
	for i, group := range groups {
		for _, document := range group {
			if document.Object.GroupVersionKind() != crdKind {
				return definitions{}, fmt.Errorf("read %s: only CustomResourceDefinitions belong here", document)
			}
			crd := &apiextensionsv1.CustomResourceDefinition{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(document.Object.Object, crd); err != nil {
				return definitions{}, fmt.Errorf("read %s: %w", document, err)
			}
			if i == 0 {
				d.own = append(d.own, crd)
			}
			d.all = append(d.all, crd)
			d.documents = append(d.documents, document)
		}
	}
	return d, nil
}

// install applies the CRDs and returns when the API server serves them.
func (d definitions) install(ctx context.Context, c *cluster) error {
	err := each(d.documents, func(document manifest.Document) error {
		if _, err := c.apply(ctx, document.Object, fieldManager); err != nil {
			return fmt.Errorf("apply %s: %w", document, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.awaitEstablished(ctx, c)
}

func (d definitions) awaitEstablished(ctx context.Context, c *cluster) error {
	missing := map[string]bool{}
	for _, crd := range d.all {
		missing[crd.Name] = true
	}
	ctx, cancel := context.WithTimeout(ctx, establishTimeout)
	defer cancel()
	// A watch without a resource version starts with the existing objects.
	watcher, err := c.dynamic.Resource(crdResource).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch CRDs: %w", err)
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Deleted {
			continue
		}
		switch {
		case hasCondition(object, apiextensionsv1.Established):
			delete(missing, object.GetName())
		case event.Type == watch.Added && hasCondition(object, apiextensionsv1.NamesAccepted):
			if err := touch(ctx, c, object.GetName()); err != nil {
				return err
			}
		}
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("wait for CRDs: %v not established within %s", slices.Sorted(maps.Keys(missing)), establishTimeout)
}

// hasCondition reports whether a CRD has a condition.
func hasCondition(object *unstructured.Unstructured, condition apiextensionsv1.CustomResourceDefinitionConditionType) bool {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
		return false
	}
	return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == condition && c.Status == apiextensionsv1.ConditionTrue
	})
}

// touch changes a CRD and reverts the change. The API server establishes a CRD whose names it has accepted when the CRD is updated, not when it finds
// the CRD at its own start. A CRD would therefore wait for minutes if the API server was stopped between the two. See updateCustomResourceDefinition in
// k8s.io/apiextensions-apiserver/pkg/apiserver.
func touch(ctx context.Context, c *cluster, name string) error {
	for _, value := range []string{`"now"`, "null"} {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"local.vitistack.io/touched":%s}}}`, value)
		if _, err := c.dynamic.Resource(crdResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("touch CRD %s: %w", name, err)
		}
	}
	return nil
}

// installation applies manifests, and deletes objects that an earlier run has applied and this one
// does not.
type installation struct {
	cluster *cluster
	state   *state

	mu   sync.Mutex
	done []applied
}

// apply applies documents, namespaces first and all others in any order.
func (i *installation) apply(ctx context.Context, documents []manifest.Document) error {
	var namespaces, others []manifest.Document
	for _, d := range documents {
		if isNamespace(d) {
			namespaces = append(namespaces, d)
		} else {
			others = append(others, d)
		}
	}
	for _, group := range [][]manifest.Document{namespaces, others} {
		if err := each(group, func(d manifest.Document) error { return i.applyOne(ctx, d) }); err != nil {
			return err
		}
	}
	return nil
}

func isNamespace(d manifest.Document) bool {
	return d.Object.GetAPIVersion() == "v1" && d.Object.GetKind() == "Namespace"
}

func (i *installation) applyOne(ctx context.Context, d manifest.Document) error {
	object, err := i.cluster.apply(ctx, d.Object, fieldManager)
	if err != nil {
		return fmt.Errorf("apply %s: %w", d, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if !isNamespace(d) { // a removed namespace is not deleted with everything in it
		i.done = append(i.done, object)
	}
	return nil
}

// finish deletes objects that the manifests lack.
func (i *installation) finish(ctx context.Context) error {
	var before []applied
	if err := i.state.read("applied.json", &before); err != nil {
		return err
	}
	// The names of objects to delete are stored until the objects are deleted.
	if err := i.state.write("applied.json", slices.Concat(i.done, before)); err != nil {
		return err
	}
	for _, object := range before {
		if !slices.Contains(i.done, object) {
			if err := i.cluster.delete(ctx, object); err != nil {
				return err
			}
		}
	}
	return i.state.write("applied.json", i.done)
}

// storedVersion returns the kind in the version that the API server stores.
func storedVersion(crd *apiextensionsv1.CustomResourceDefinition) (schema.GroupVersionKind, bool) {
	for _, version := range crd.Spec.Versions {
		if version.Storage && version.Served {
			return schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}, true
		}
	}
	return schema.GroupVersionKind{}, false
}

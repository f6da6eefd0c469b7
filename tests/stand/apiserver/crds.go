package apiserver

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
)

var crdResource = apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")

// installing prevents concurrent installations by tests that share a server.
var installing sync.Mutex

// Install installs the CustomResourceDefinitions of the given resources of the stack, such as
// machines, and returns once the server serves them. Without resources it installs all of them. It
// skips definitions that an earlier call has installed: the server compiles the rules of a definition even if
// it then rejects the request because the definition exists.
func (s *Server) Install(t testing.TB, resources ...string) {
	t.Helper()
	installing.Lock()
	defer installing.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	missing, err := s.missing(resources)
	if err != nil {
		t.Fatalf("install the kinds of the stack: %v", err)
	}
	if len(missing) == 0 {
		return
	}
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	if err := create(ctx, client, missing); err != nil {
		t.Fatalf("install the kinds of the stack: %v", err)
	}
	if err := awaitServed(ctx, client, missing); err != nil {
		t.Fatalf("install the kinds of the stack: %v", err)
	}
	if s.installed == nil {
		s.installed = map[string]bool{}
	}
	for _, crd := range missing {
		s.installed[crd.GetName()] = true
	}
}

// missing returns the definitions of resources that no call of Install has installed.
func (s *Server) missing(resources []string) ([]*unstructured.Unstructured, error) {
	all, err := definitions()
	if err != nil {
		return nil, err
	}
	var missing []*unstructured.Unstructured
	for _, crd := range all {
		resource, _, _ := strings.Cut(crd.GetName(), ".")
		if !s.installed[crd.GetName()] && (len(resources) == 0 || slices.Contains(resources, resource)) {
			missing = append(missing, crd)
		}
	}
	return missing, nil
}

// definitions returns the CustomResourceDefinitions of the stack.
var definitions = sync.OnceValues(func() (all []*unstructured.Unstructured, err error) {
	err = fs.WalkDir(apis.CRDs, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(apis.CRDs, path)
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &crd.Object); err != nil {
			return fmt.Errorf("decode %s: %w", path, err)
		}
		all = append(all, crd)
		return nil
	})
	return all, err
})

// create creates definitions. Definitions that exist stay as they are.
func create(ctx context.Context, client dynamic.Interface, definitions []*unstructured.Unstructured) error {
	for _, crd := range definitions {
		if _, err := client.Resource(crdResource).Create(ctx, crd, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// awaitServed waits until all of the definitions are established.
func awaitServed(ctx context.Context, client dynamic.Interface, definitions []*unstructured.Unstructured) error {
	missing := map[string]bool{}
	for _, crd := range definitions {
		missing[crd.GetName()] = true
	}
	watcher, err := client.Resource(crdResource).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watcher.Stop()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Deleted {
			continue
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, crd); err != nil {
			return err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				delete(missing, crd.Name)
			}
		}
		if len(missing) == 0 {
			return nil
		}
	}
	return fmt.Errorf("the definitions %v do not get established", missing)
}

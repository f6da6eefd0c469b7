package bench

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
)

// writesAlone creates n addresses with only the necessary writes. They are copies of those for an
// address that the stack has allocated in a namespace: the interface, its allocation, its Lease, both
// statuses and an Event. No client reads, and no function gets an event. It returns the duration,
// which is the API server's own share of a burst.
func writesAlone(b *testing.B, e *engine.Engine, from string, n int) time.Duration {
	b.Helper()
	e.StopSources()
	to := from + "-alone"
	e.CreateNamespace(to)
	first := func(kind resource) *unstructured.Unstructured {
		list := e.List(kind, from, "")
		if len(list) == 0 {
			b.Fatalf("the burst has created no %s", kind.Resource)
		}
		return &list[0]
	}
	nic, allocation, lease, note := first(engine.NetworkConfigurations), first(engine.IPAllocations), first(engine.Leases), first(engine.Events)
	began := time.Now()
	create(b, n, func(i int) error {
		for _, step := range []struct {
			kind resource
			of   *unstructured.Unstructured
		}{{engine.NetworkConfigurations, nic}, {engine.Leases, lease}, {engine.IPAllocations, allocation}, {engine.Events, note}} {
			if err := copyOf(b, e, step.kind, step.of, to, i); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(began)
}

// copyOf creates a copy of an object, and then writes its status.
func copyOf(b *testing.B, e *engine.Engine, kind resource, of *unstructured.Unstructured, namespace string, i int) error {
	status, written := of.Object["status"]
	made := of.DeepCopy()
	delete(made.Object, "status")
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences", "finalizers"} {
		unstructured.RemoveNestedField(made.Object, "metadata", field)
	}
	made.SetNamespace(namespace)
	made.SetName(fmt.Sprintf("%s-%d", of.GetName(), i))
	if kind == engine.Events {
		_ = unstructured.SetNestedField(made.Object, namespace, "involvedObject", "namespace")
	}
	objects := e.Client.Resource(kind).Namespace(namespace)
	made, err := objects.Create(b.Context(), made, metav1.CreateOptions{})
	if err != nil || !written {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": made.GetResourceVersion()}, "status": status})
	if err != nil {
		return err
	}
	_, err = objects.Patch(b.Context(), made.GetName(), types.MergePatchType, body, metav1.PatchOptions{}, "status")
	return err
}

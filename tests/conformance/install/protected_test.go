package install

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// machinesAreProtected deletes machines in the ways that kubectl delete --cascade has.
// A protected one waits for its finalizer, unless the garbage collector would be faster.
func machinesAreProtected(t *testing.T, c *cluster) {
	machines := c.dynamic.Resource(schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machines"}).Namespace("default")
	for name, protected := range map[string]bool{"precious": true, "plain": false} {
		m := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "vitistack.io/v1alpha1", "kind": "Machine", "spec": map[string]any{"template": "small", "protected": protected},
		}}
		m.SetName(name)
		if _, err := machines.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	deletion := func(name string, how metav1.DeletionPropagation) func() error {
		return func() error {
			return machines.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how, DryRun: []string{metav1.DryRunAll}})
		}
	}
	const message = "set spec.protected to false"
	const reason = "in the foreground its virtual machine would go before the finalizer is asked"
	if err := refusal(t, reason, message, deletion("precious", metav1.DeletePropagationForeground)); !apierrors.IsInvalid(err) {
		t.Errorf("%s: got %v", reason, err)
	}
	for name, how := range map[string]metav1.DeletionPropagation{"precious": metav1.DeletePropagationBackground, "plain": metav1.DeletePropagationForeground} {
		if err := deletion(name, how)(); err != nil {
			t.Errorf("%s, %s: %v", name, how, err)
		}
		if err := machines.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

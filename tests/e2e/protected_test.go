package e2e

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestProtectedMachine deletes a protected Machine in an installation, and then follows the message of
// the refusal.
func TestProtectedMachine(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: precious}\nspec: {template: small, protected: true, providerRef: {name: kubevirt}, networkNamespaceName: network}\n")
	e.UntilPhase(engine.Machines, "default", "precious", "Running")
	machines := e.Client.Resource(engine.Machines).Namespace("default")
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		err := machines.Delete(t.Context(), "precious", metav1.DeleteOptions{PropagationPolicy: &how})
		if want := "Machine default/precious is protected: run kubectl patch machine precious --namespace default"; !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want a refusal with %q", how, err, want)
		}
	}
	if m := e.Get(engine.Machines, "default", "precious"); m.GetDeletionTimestamp() != nil {
		t.Error("the Machine is being deleted")
	}
	if _, err := machines.Patch(t.Context(), "precious", types.MergePatchType, []byte(`{"spec":{"protected":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	e.Delete(engine.Machines, "default", "precious")
	feed.Until(t, "the Machine is deleted", func() (bool, string) {
		left := e.List(engine.Machines, "default", "")
		return len(left) == 0, fmt.Sprint(left)
	})
}

// TestNamespaceOfProtectedNetwork deletes the namespace of a protected network. The condition of the
// namespace names the network, as docs/debug.md says. It is deleted once nothing in it is protected.
func TestNamespaceOfProtectedNetwork(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.CreateNamespace("team")
	e.Apply("team", strings.Replace(e.StaticNetwork("network", 10, 250), "spec:", "spec:\n  protected: true", 1))
	e.UntilPhase(engine.NetworkNamespaces, "team", "network", "Ready")
	e.Delete(engine.Namespaces, "", "team")
	feed.Until(t, "the Namespace names its protected network", func() (bool, string) {
		conditions, _, _ := unstructured.NestedSlice(e.Get(engine.Namespaces, "", "team").Object, "status", "conditions")
		for _, c := range conditions {
			condition, _ := c.(map[string]any)
			if condition["type"] == "NamespaceDeletionContentFailure" && strings.Contains(fmt.Sprint(condition["message"]), "NetworkNamespace team/network is protected") {
				return true, ""
			}
		}
		return false, fmt.Sprint(conditions)
	})
	if _, err := e.Client.Resource(engine.NetworkNamespaces).Namespace("team").Patch(t.Context(), "network", types.MergePatchType, []byte(`{"spec":{"protected":false}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the Namespace is deleted", func() (bool, string) {
		_, err := e.Client.Resource(engine.Namespaces).Get(t.Context(), "team", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
}

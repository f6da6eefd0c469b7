package apiserver_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

func TestStart(t *testing.T) {
	t.Parallel()
	first, second := apiserver.Start(t), apiserver.Start(t)
	if first != second {
		t.Error("two concurrent tests got two servers, want one")
	}
	a, b := first.Namespace(t), first.Namespace(t)
	if a == b {
		t.Errorf("two namespaces are both called %s", a)
	}
	client, err := dynamic.NewForConfig(first.Config())
	if err != nil {
		t.Fatal(err)
	}
	namespaces := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
	got, err := namespaces.Get(t.Context(), a, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(got.Object, "status", "phase"); phase != string(corev1.NamespaceActive) {
		t.Errorf("namespace %s is in phase %q, want Active", a, phase)
	}
}

func TestRBACIsOn(t *testing.T) {
	t.Parallel()
	config := apiserver.Start(t).Config()
	config.Impersonate.UserName = "a-user-without-roles"
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).List(t.Context(), metav1.ListOptions{})
	if err == nil {
		t.Error("a user without a role may list all secrets, want Forbidden")
	}
}

package apiserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestInstall(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t, "networkconfigurations")
	server.Install(t, "networkconfigurations")
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	resource := v1alpha1.GroupVersion.WithResource("networkconfigurations")
	if _, err := client.Resource(resource).Namespace(server.Namespace(t)).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("networkconfigurations are not served: %v", err)
	}
}

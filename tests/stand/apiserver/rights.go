package apiserver

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// rightsTimeout bounds the time until a new role takes effect.
const rightsTimeout = 30 * time.Second

// WithoutSecrets returns a configuration of a user with all rights on the objects of the stack and of
// KubeVirt, and none on Secrets and ConfigMaps.
func (s *Server) WithoutSecrets(t testing.TB) *rest.Config {
	t.Helper()
	user := "without-secrets-" + suffix()
	role := map[string]any{"rules": []any{
		map[string]any{"apiGroups": []any{"vitistack.io", "kubevirt.io", "cdi.kubevirt.io", "k8s.cni.cncf.io", "storage.k8s.io", "coordination.k8s.io", "metrics.k8s.io"}, "resources": []any{"*"}, "verbs": []any{"*"}},
		map[string]any{"apiGroups": []any{""}, "resources": []any{"events", "namespaces", "nodes", "persistentvolumeclaims"}, "verbs": []any{"*"}},
	}}
	const group = "rbac.authorization.k8s.io"
	binding := map[string]any{
		"roleRef":  map[string]any{"apiGroup": group, "kind": "ClusterRole", "name": user},
		"subjects": []any{map[string]any{"apiGroup": group, "kind": "User", "name": user}},
	}
	admin, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []struct {
		kind, resource string
		content        map[string]any
	}{{"ClusterRole", "clusterroles", role}, {"ClusterRoleBinding", "clusterrolebindings", binding}} {
		object := &unstructured.Unstructured{Object: made.content}
		object.SetAPIVersion(group + "/v1")
		object.SetKind(made.kind)
		object.SetName(user)
		resource := schema.GroupVersionResource{Group: group, Version: "v1", Resource: made.resource}
		if _, err := admin.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	config := s.Config()
	config.Impersonate.UserName = user
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(t.Context(), metav1.ListOptions{Limit: 1})
		if err == nil {
			return config
		}
		if time.Since(began) > rightsTimeout {
			t.Fatalf("user %s has no rights after %s: %v", user, rightsTimeout, err)
		}
	}
}

package kube_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// TestSecretsForbidden has a real API server reject requests for various reasons.
func TestSecretsForbidden(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	kinds := kube.Kinds(corev1.SchemeGroupVersion, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Pod{}, &corev1.ResourceQuota{})
	admin, err := kube.New(server.Config(), "test", kinds)
	if err != nil {
		t.Fatal(err)
	}
	limited, err := kube.New(server.WithoutSecrets(t), "test", kinds)
	if err != nil {
		t.Fatal(err)
	}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"secrets": resource.MustParse("0")}}}
	if err := admin.Create(t.Context(), quota); err != nil {
		t.Fatal(err)
	}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for name, tc := range map[string]struct {
		reason string
		err    error
		want   bool
	}{
		"Get":        {"no rights to read", limited.Get(t.Context(), namespace, "a", secret("")), true},
		"Create":     {"no rights to write", limited.Create(t.Context(), secret("a")), true},
		"Delete":     {"no rights to delete", limited.Delete(t.Context(), secret("a")), true},
		"ConfigMaps": {"ConfigMaps are granted together with Secrets", limited.List(t.Context(), namespace, "", &corev1.ConfigMapList{}), true},
		"Pod":        {"secrets.namespaces gives no rights on pods", limited.Get(t.Context(), namespace, "a", &corev1.Pod{}), false},
		"Missing":    {"the Secret does not exist", admin.Get(t.Context(), namespace, "a", secret("")), false},
		"Quota":      {"rights do not change a quota", admin.Create(t.Context(), secret("b")), false},
		"None":       {"there is no error", nil, false},
		"Other":      {"an error of another server", errors.New(`forbidden: cannot get resource "secrets" in API group ""`), false},
	} {
		message, ok := kube.SecretsForbidden(tc.err, "create-vm")
		if ok != tc.want {
			t.Errorf("%s: %t, want %t, because %s: %v", name, ok, tc.want, tc.reason, tc.err)
		}
		for _, part := range []string{`in the namespace "` + namespace + `"`, "secrets.namespaces", "bind ClusterRole vitistack-create-vm-secrets"} {
			if ok && !strings.Contains(message, part) {
				t.Errorf("%s: %q does not say %q", name, message, part)
			}
		}
	}
}

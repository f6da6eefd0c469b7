package oidc_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events/oidc"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// TestTokensOfTheAPIServer has a real API server issue tokens, and a function without any rights of its own verify
// them: that every ServiceAccount may read the keys is a default of Kubernetes.
func TestTokensOfTheAPIServer(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	admin, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	accounts := admin.CoreV1().ServiceAccounts(namespace)
	token := func(name string, audiences ...string) string {
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := accounts.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			if _, err := accounts.Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		answer, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Status.Token
	}
	const trigger = "create-vm-oidc-eventing.knative.dev-trigger"
	function := rest.AnonymousClientConfig(server.Config())
	function.BearerToken = token("create-vm")
	settings := oidc.Settings{Enabled: true, Audience: "vitistack-system/create-vm", Subjects: []string{"system:serviceaccount:" + namespace + ":" + trigger}}
	v, err := oidc.New(settings, func() (*rest.Config, error) { return function, nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ reason, token, want string }{
		"Trigger":  {"as Knative asks for it", token(trigger, settings.Audience), ""},
		"Audience": {"another function passes its token on", token(trigger, "vitistack-system/allocate-ip"), "the audience"},
		"API":      {"a token for the API server itself", token(trigger), "the audience"},
		"Pod":      {"another ServiceAccount of the namespace", token("create-vm", settings.Audience), "OIDC_SUBJECTS"},
	} {
		err := v.Verify(t.Context(), []string{"Bearer " + tc.token})
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q: %s", name, err, tc.want, tc.reason)
		}
	}
	nobody, err := oidc.New(settings, func() (*rest.Config, error) { return rest.AnonymousClientConfig(server.Config()), nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Verify(t.Context(), []string{"Bearer " + token(trigger, settings.Audience)}); !errors.Is(err, oidc.ErrUnavailable) {
		t.Errorf("a verifier without a ServiceAccount: %v, want %v", err, oidc.ErrUnavailable)
	}
}

package triggerauth_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events/triggerauth"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// TestTokensOfTheAPIServer verifies tokens of a real API server in a function without rights of its own: Kubernetes permits every ServiceAccount to read
// the keys.
func TestTokensOfTheAPIServer(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	token := func(account string, audiences ...string) string {
		return server.Token(t, namespace, account, audiences...)
	}
	const trigger = "create-vm-oidc-eventing.knative.dev-trigger"
	function := rest.AnonymousClientConfig(server.Config())
	function.BearerToken = token("create-vm")
	settings := triggerauth.Settings{Enabled: true, Audience: "vitistack-system/create-vm", Subjects: []string{"system:serviceaccount:" + namespace + ":" + trigger}}
	v, err := triggerauth.New(settings, func() (*rest.Config, error) { return function, nil })
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ reason, token, want string }{
		"Trigger":  {"the token that Knative requests", token(trigger, settings.Audience), ""},
		"Audience": {"another function forwards its token", token(trigger, "vitistack-system/allocate-ip"), "the audience"},
		"API":      {"a token for the API server itself", token(trigger), "the audience"},
		"Pod":      {"another ServiceAccount of the namespace", token("create-vm", settings.Audience), "OIDC_SUBJECTS"},
	} {
		err := v.Verify(t.Context(), []string{"Bearer " + tc.token})
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q: %s", name, err, tc.want, tc.reason)
		}
	}
	anonymous, err := triggerauth.New(settings, func() (*rest.Config, error) { return rest.AnonymousClientConfig(server.Config()), nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := anonymous.Verify(t.Context(), []string{"Bearer " + token(trigger, settings.Audience)}); !errors.Is(err, triggerauth.ErrUnavailable) {
		t.Errorf("a verifier without a ServiceAccount: %v, want %v", err, triggerauth.ErrUnavailable)
	}
}

package auth

import (
	"testing"

	"github.com/vitistack/stack/gateway/internal/apiserver"
)

func TestVisibility(t *testing.T) {
	t.Parallel()
	user := &apiserver.User{Name: "ola"}
	tests := map[string]struct {
		reason  string
		who     Caller
		asked   []string
		granted map[string]bool
		sees    []string
		not     []string
	}{
		"Unlimited":         {"a key without namespaces sees every namespace", Caller{Name: "key/x"}, nil, nil, []string{"", "team-a", "team-b"}, nil},
		"Key":               {"a key with namespaces sees these, and no cluster-scoped objects", Caller{Namespaces: []string{"team-a", "team-c"}}, nil, nil, []string{"team-a", "team-c"}, []string{"", "team-b", "team"}},
		"KeyAsksForOther":   {"the namespaces of a request give a key no access", Caller{Namespaces: []string{"team-a"}}, []string{"team-b"}, map[string]bool{"team-b": true, "": true}, []string{"team-a"}, []string{"team-b", ""}},
		"KeyOfNothing":      {"an empty list is a limit", Caller{Namespaces: []string{}}, nil, nil, nil, []string{"", "team-a"}},
		"TokenAsks":         {"a token sees the requested namespaces that the API server permits", Caller{User: user}, []string{"team-a", "team-b"}, map[string]bool{"team-a": true}, []string{"team-a"}, []string{"team-b", ""}},
		"TokenAsksNothing":  {"a token sees no namespace without a request", Caller{User: user}, nil, map[string]bool{"team-a": true}, nil, []string{"team-a", ""}},
		"TokenOfAll":        {"a right in all namespaces is a right in each", Caller{User: user}, nil, map[string]bool{"": true}, []string{"team-a", "team-b"}, nil},
		"TokenAsksForEmpty": {"the empty namespace cannot be requested", Caller{User: user}, []string{""}, map[string]bool{"team-a": true}, nil, []string{"", "team-a"}},
	}
	for name, tc := range tests {
		v := decideVisibility(tc.who, tc.asked, tc.granted)
		for _, namespace := range tc.sees {
			if !v.Includes(namespace) {
				t.Errorf("%s: namespace %q is hidden: %s", name, namespace, tc.reason)
			}
		}
		for _, namespace := range tc.not {
			if v.Includes(namespace) {
				t.Errorf("%s: namespace %q is visible: %s", name, namespace, tc.reason)
			}
		}
	}
}

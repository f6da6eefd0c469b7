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
		"Unlimited":         {"a key without namespaces sees everything", Caller{Name: "key/x"}, nil, nil, []string{"", "team-a", "team-b"}, nil},
		"Key":               {"a key with namespaces sees these, and nothing that is in none", Caller{Namespaces: []string{"team-a", "team-c"}}, nil, nil, []string{"team-a", "team-c"}, []string{"", "team-b", "team"}},
		"KeyAsksForOther":   {"what a request names gives a key nothing", Caller{Namespaces: []string{"team-a"}}, []string{"team-b"}, map[string]bool{"team-b": true, "": true}, []string{"team-a"}, []string{"team-b", ""}},
		"KeyOfNothing":      {"a list that is there and empty is a limit", Caller{Namespaces: []string{}}, nil, nil, nil, []string{"", "team-a"}},
		"TokenAsks":         {"a token sees what the API server grants of what is asked", Caller{User: user}, []string{"team-a", "team-b"}, map[string]bool{"team-a": true}, []string{"team-a"}, []string{"team-b", ""}},
		"TokenAsksNothing":  {"and nothing that was not asked", Caller{User: user}, nil, map[string]bool{"team-a": true}, nil, []string{"team-a", ""}},
		"TokenOfAll":        {"a right in all namespaces is one in each", Caller{User: user}, nil, map[string]bool{"": true}, []string{"team-a", "team-b"}, nil},
		"TokenAsksForEmpty": {"no namespace is none that can be asked for", Caller{User: user}, []string{""}, map[string]bool{"team-a": true}, nil, []string{"", "team-a"}},
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
				t.Errorf("%s: namespace %q is seen: %s", name, namespace, tc.reason)
			}
		}
	}
}

package auth

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestHashKey(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := HashKey([]string{"n", "read+write"}, strings.NewReader("a key that is long enough\n"), &out); err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(strings.TrimSpace(out.String()), ": ")
	key, plain, err := parseKey(line, 0)
	if err != nil || plain || key.name != "n" || !key.scopes.Has(ScopeRead|ScopeEvents) {
		t.Errorf("%s: %+v %v", line, key, err)
	}
	for _, bad := range []string{"short", "n md5:00", "n sha256:zz", "n sha256:00 read", "n sha256:" + strings.Repeat("0", 64) + " fly", "a b c d"} {
		if _, _, err := parseKey(bad, 0); err == nil {
			t.Errorf("the line %q was accepted", bad)
		}
	}
}

func TestKeysWithNamespaces(t *testing.T) {
	t.Parallel()
	hash := "sha256:" + strings.Repeat("0", 64)
	tests := map[string]struct {
		reason, line, err string
		scopes            Scopes
		namespaces        []string
	}{
		"None":      {"a key without namespaces sees every namespace", "n " + hash + " read", "", ScopeRead, nil},
		"One":       {"namespaces follow the scopes", "n " + hash + " read namespaces=team-a", "", ScopeRead, []string{"team-a"}},
		"Several":   {"namespaces are separated by +, like scopes", "n " + hash + " read+events namespaces=b+a+b", "", ScopeRead | ScopeEvents, []string{"a", "b"}},
		"NoScopes":  {"the default scope is read", "n " + hash + " namespaces=team-a", "", ScopeRead, []string{"team-a"}},
		"Empty":     {"an empty list is an error, because it could mean every namespace", "n " + hash + " read namespaces=", `"" is no name of a namespace`, 0, nil},
		"Comma":     {"a comma separates keys in auth.keys", "n " + hash + " read namespaces=a,b", `"a,b" is no name of a namespace`, 0, nil},
		"Star":      {"a key for every namespace has no list", "n " + hash + " read namespaces=*", `"*" is no name of a namespace`, 0, nil},
		"Misspelt":  {"a misspelt word would limit nothing, so it is an error", "n " + hash + " read namespace=team-a", `"namespace=team-a" is no list of namespaces`, 0, nil},
		"WordFirst": {"scopes are first", "n " + hash + " namespaces=a read", `"read" is no list of namespaces`, 0, nil},
	}
	for name, tc := range tests {
		key, _, err := parseKey(tc.line, 0)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %q: %s", name, err, tc.err, tc.reason)
			}
			continue
		}
		if err != nil || key.scopes != tc.scopes || !slices.Equal(key.namespaces, tc.namespaces) || (key.namespaces == nil) != (tc.namespaces == nil) {
			t.Errorf("%s: %+v, %v: %s", name, key, err, tc.reason)
		}
	}
}

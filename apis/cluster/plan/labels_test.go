package plan

import (
	"strings"
	"testing"
)

func TestCheckLabels(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, key, value, problem string
	}{
		"plain":  {"letters are permitted", "environment", "production", ""},
		"domain": {"a key may have a domain", "example.com/tier", "a_b.c-d", ""},
		"empty":  {"a value may be empty", "gpu", "", ""},
		"blank":  {"a key has no blanks", "a b", "c", `label "a b": change its key`},
		"nokey":  {"a key has a name after its domain", "example.com/", "c", `change its key`},
		"value":  {"a value has no blanks", "a", "b c", `label a="b c": change its value`},
		"long":   {"a value has at most 63 characters", "a", strings.Repeat("b", 64), "change its value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkLabels(map[string]string{tc.key: tc.value})
			if (err != nil) != (tc.problem != "") || (err != nil && !strings.Contains(err.Error(), tc.problem)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.problem)
			}
		})
	}
}

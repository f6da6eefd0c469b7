package command_test

import (
	"strings"
	"testing"
)

// TestStatusOfNothing has a script read the lists of a namespace without objects.
func TestStatusOfNothing(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, format := range []string{"json", "yaml"} {
		if out := e.must("status", "-o", format); !strings.Contains(out, "problems") || strings.Contains(out, "null") {
			t.Errorf("-o %s has a list that is none:\n%s", format, out)
		}
	}
}

package hypervisor

import (
	"slices"
	"testing"
)

func TestCredentialsNamespaces(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, own, listed string
		want                []string
	}{
		"Default":   {"the stack runs in the namespace of the chart's documentation", "", "", []string{"vitistack-system"}},
		"Elsewhere": {"the stack runs in another namespace", "viti", "", []string{"viti"}},
		"Listed":    {"the platform team keeps credentials in other namespaces", "viti", "creds, more,", []string{"viti", "creds", "more"}},
		"Twice":     {"the list repeats the stack's own namespace", "viti", "viti,viti", []string{"viti"}},
	} {
		getenv := func(key string) string {
			return map[string]string{"POD_NAMESPACE": tc.own, CredentialsVariable: tc.listed}[key]
		}
		if got := CredentialsNamespaces(getenv); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v, because %s", name, got, tc.want, tc.reason)
		}
	}
}

package hypervisor

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
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

func TestCredentialsNotAllowed(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, listed, want string
	}{
		"Default": {"only the namespace of the stack has credentials", "", "create the Secret in viti and"},
		"Listed":  {"with secrets.namespaces, create-vm cannot read Secrets of the namespace of the stack", "creds,more", "create the Secret in creds or more and"},
		"Both":    {"the list has the namespace of the stack, and another one, which is better", "viti,creds", "create the Secret in creds and"},
	} {
		c := Credentials{Namespaces: CredentialsNamespaces(func(key string) string {
			return map[string]string{"POD_NAMESPACE": "viti", CredentialsVariable: tc.listed}[key]
		})}
		p := &v1alpha1.MachineProvider{Spec: v1alpha1.MachineProviderSpec{CredentialsRef: &v1alpha1.SecretReference{Namespace: "theirs", Name: "root"}}}
		if _, err := c.Of(t.Context(), p, ""); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v does not say %q, because %s", name, err, tc.want, tc.reason)
		}
	}
}

package plan

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestOutdatedByPatches has a machine of a pool whose patches change.
func TestOutdatedByPatches(t *testing.T) {
	t.Parallel()
	const encrypted = `{"encryption of EPHEMERAL":"1a2b3c4d"}`
	const difference = "another encryption of EPHEMERAL than its patches"
	for name, tc := range map[string]struct {
		reason, installed, wanted, template string
		inPlace                             bool
		replaced, resized                   string
	}{
		"Same":           {"nothing has changed", encrypted, encrypted, "small", false, "", ""},
		"Encrypted":      {"Talos encrypts the disk of a new node only", "{}", encrypted, "small", false, difference, ""},
		"Decrypted":      {"Talos decrypts no disk", encrypted, "{}", "small", false, difference, ""},
		"InPlace":        {"a restart in place changes no disk", "{}", encrypted, "small", true, difference, ""},
		"InPlaceLarger":  {"a new node has the size as well", "{}", encrypted, "medium", true, "template small instead of medium, " + difference, ""},
		"OnlyLarger":     {"the patches are the same", encrypted, encrypted, "medium", true, "", "template small instead of medium"},
		"UnknownPatches": {"patches that cannot be read replace no machine", "{}", "", "small", false, "", ""},
		"UnknownNode":    {"a Machine that does not say what its node was installed with stays", "", encrypted, "small", false, "", ""},
		"UserVolume":     {"Talos creates a further volume on a running node", "{}", `{"user volume data":"1a2b3c4d"}`, "small", false, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{v1alpha1.AnnotationNodeConfig: tc.installed},
				Labels: map[string]string{v1alpha1.LabelWorkerGroup: "pool", v1alpha1.LabelMachineTemplate: "small"}}}
			m.Spec.Template = "small"
			p := Plan{Groups: []Group{{Pool: "pool", Role: v1alpha1.RoleWorker, Properties: v1alpha1.MachineProperties{Template: tc.template}, InPlace: tc.inPlace}}}
			configs := map[string]nodeconfig.Parts{}
			if parts, known := nodeconfig.Parse(tc.wanted); known {
				configs["pool"] = parts
			}
			got := p.WithNodeConfigs(configs).OutdatedMachines(map[string]*v1alpha1.Machine{"a": m}, nil)
			if got.Replaced["a"] != tc.replaced || got.InPlace["a"] != tc.resized {
				t.Errorf("%s: replaced because of %q, resized because of %q, want %q and %q", tc.reason, got.Replaced["a"], got.InPlace["a"], tc.replaced, tc.resized)
			}
			if p.Groups[0].NodeConfig != nil {
				t.Error("the plan itself was changed")
			}
		})
	}
}

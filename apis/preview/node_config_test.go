package preview

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
)

const encryptionPatch = "apiVersion: v1alpha1\nkind: VolumeConfig\nname: EPHEMERAL\nencryption:\n  provider: luks2\n  keys:\n    - slot: 0\n      nodeID: {}\n"

// TestPatchesThatNeedNewNodes previews patches that only a new node gets.
func TestPatchesThatNeedNewNodes(t *testing.T) {
	t.Parallel()
	const topology = `topology: {version: "1.33", controlplane: {replicas: 1}, workers: [{name: w, replicas: 1%s}]}`
	const replaced = "another encryption of EPHEMERAL than its patches"
	for name, tc := range map[string]struct {
		reason, installed, patches string
		unread                     bool
		step, note                 string
	}{
		"Encrypted": {"the node was installed without encryption", "{}", "encrypted", false, replaced, ""},
		"Same":      {"nothing that the node was installed with changes", "{}", "cilium", false, "", ""},
		"Unknown":   {"the Machine does not say what its node was installed with", "", "encrypted", false, "", ""},
		"Broken":    {"bootstrap-talos reports wrong patches", "{}", "broken", false, "", ""},
		"Missing":   {"the ConfigMap may be created later", "{}", "nowhere", false, "", "need new nodes"},
		"Unread":    {"the caller may not read ConfigMaps", "{}", "encrypted", true, "", "need new nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t)
			if tc.unread {
				w.ConfigMap = nil
			}
			for _, manifest := range []string{
				"metadata: {name: shop-cp-0, namespace: a}\nspec: {template: large}",
				"metadata: {name: shop-w-0, namespace: a}\nspec: {template: medium}",
			} {
				m := v1alpha1.Machine{}
				if err := yaml.UnmarshalStrict([]byte(manifest), &m); err != nil {
					t.Fatal(err)
				}
				m.Labels = labelsOf(m)
				if tc.installed != "" {
					m.Annotations = map[string]string{v1alpha1.AnnotationNodeConfig: tc.installed}
				}
				w.Machines = append(w.Machines, m)
			}
			before, after := strings.Replace(topology, "%s", "", 1), strings.Replace(topology, "%s", ", patches: ["+tc.patches+"]", 1)
			p := Make(changed(t, clusterHead, "spec: {"+before+"}\nstatus: {version: 1.33.13, talosVersion: 1.13.9}", "{"+after+"}"), w)
			var steps []string
			for _, s := range p.Documents[0].Steps {
				steps = append(steps, s.Action+" "+strings.Join(s.Machines, ",")+" "+s.Detail)
			}
			got := strings.Join(steps, "\n")
			if isReplaced := strings.HasPrefix(got, "replace shop-w-0") && strings.Contains(got, tc.step); (tc.step != "") != isReplaced || tc.step == "" && got != "" {
				t.Errorf("%s: the steps are %q, want %q", tc.reason, got, tc.step)
			}
			if note := p.Documents[0].Note; !strings.Contains(note, tc.note) || (tc.note == "") != (note == "") {
				t.Errorf("%s: the note is %q, want %q", tc.reason, note, tc.note)
			}
		})
	}
}

// labelsOf returns the labels of a Machine of the cluster shop.
func labelsOf(m v1alpha1.Machine) map[string]string {
	labels := map[string]string{v1alpha1.LabelClusterName: "shop", v1alpha1.LabelMachineTemplate: m.Spec.Template, v1alpha1.LabelClusterRole: v1alpha1.RoleControlPlane}
	if strings.Contains(m.Name, "-w-") {
		labels[v1alpha1.LabelClusterRole], labels[v1alpha1.LabelWorkerGroup] = v1alpha1.RoleWorker, "w"
	}
	return labels
}

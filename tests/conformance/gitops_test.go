package conformance

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/gitops"
)

// TestGitOpsHealth has kstatus, and the health checks for Argo CD, judge each kind in each state.
func TestGitOpsHealth(t *testing.T) {
	t.Parallel()
	checks, err := gitops.ReadChecks(filepath.Join("..", "..", "docs", "argocd-health.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	const ready, reconciling, stalled = "{type: Ready, status: %q, reason: %s, message: text}", "{type: Reconciling, status: 'True', reason: %s, message: text}", "{type: Stalled, status: 'True', reason: %s, message: text}"
	condition := func(form string, values ...any) string { return fmt.Sprintf(form, values...) }
	states := map[string]struct {
		reason, status  string
		kstatus, argoCD string
	}{
		"Created":     {reason: "no function has read it", status: "observedGeneration: -1", kstatus: "InProgress", argoCD: "Progressing"},
		"Changed":     {reason: "the status is that of the former spec", status: "observedGeneration: 1, conditions: [" + condition(ready, "True", "Running") + "]", kstatus: "InProgress", argoCD: "Progressing"},
		"Ready":       {reason: "it is as its spec wants it", status: "observedGeneration: 2, conditions: [" + condition(ready, "True", "Running") + "]", kstatus: "Current", argoCD: "Healthy"},
		"Stopped":     {reason: "it is off because its spec says so", status: "observedGeneration: 2, conditions: [" + condition(ready, "True", "Stopped") + "]", kstatus: "Current", argoCD: "Suspended"},
		"Reconciling": {reason: "the stack continues by itself", status: "observedGeneration: 2, conditions: [" + condition(ready, "False", "Starting") + ", " + condition(reconciling, "Starting") + "]", kstatus: "InProgress", argoCD: "Progressing"},
		"Stalled":     {reason: "a person has to act", status: "observedGeneration: 2, conditions: [" + condition(ready, "False", "InvalidSpec") + ", " + condition(stalled, "InvalidSpec") + "]", kstatus: "Failed", argoCD: "Degraded"},
	}
	for _, kind := range []string{"v1alpha1 KubernetesCluster", "v1alpha1 Machine", "v1alpha1 MachineProvider", "v1alpha1 NetworkConfiguration", "v1alpha1 EtcdBackup", "v1alpha1 ClusterTemplate", "v1alpha2 NetworkNamespace", "v1alpha2 IPAllocation"} {
		version, kind, _ := strings.Cut(kind, " ")
		for name, tc := range states {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				o := &unstructured.Unstructured{}
				text, err := yaml.YAMLToJSON(fmt.Appendf(nil, "apiVersion: vitistack.io/%s\nkind: %s\nmetadata: {name: x, generation: 2}\nstatus: {%s}\n", version, kind, tc.status))
				if err != nil {
					t.Fatal(err)
				}
				if err := o.UnmarshalJSON(text); err != nil {
					t.Fatal(err)
				}
				got, err := gitops.Kstatus(o)
				if err != nil || got != tc.kstatus {
					t.Errorf("%s: kstatus says %s, want %s (%v)", tc.reason, got, tc.kstatus, err)
				}
				health, message, err := checks.Health(o)
				if err != nil || health != tc.argoCD || message == "" {
					t.Errorf("%s: Argo CD says %s (%s), want %s (%v)", tc.reason, health, message, tc.argoCD, err)
				}
			})
		}
	}
}

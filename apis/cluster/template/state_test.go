package template_test

import (
	"testing"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestStateOf(t *testing.T) {
	t.Parallel()
	refused := update("web", "new")
	refused.Message = "spec.talos is wrong"
	unstarted := member("web", "")
	unstarted.Template = ""
	held, stalled := member("web", "old"), member("web", "new")
	held.Done, held.Held = false, true
	stalled.Done, stalled.Stalled = false, true
	heldStalled := stalled
	heldStalled.Held = true
	staleStalled := stalled
	staleStalled.Revision = "old"
	working := member("web", "new")
	working.Done = false
	for name, tc := range map[string]struct {
		because  string
		member   template.Member
		updating []v1alpha1.TemplateUpdate
		want     template.State
	}{
		"New":          {"the cluster has no content of the template yet", unstarted, nil, template.StateNew},
		"Current":      {"the cluster has the revision", member("web", "new"), nil, template.StateCurrent},
		"Waiting":      {"the cluster has another revision", member("web", "old"), nil, template.StateWaiting},
		"Paused":       {"a paused cluster does not follow its spec", held, nil, template.StatePaused},
		"HeldUpdating": {"a paused cluster does not continue its update, and stops nothing", heldStalled, []v1alpha1.TemplateUpdate{update("web", "new")}, template.StatePaused},
		"HeldRefused":  {"a paused cluster stops nothing", held, []v1alpha1.TemplateUpdate{refused}, template.StatePaused},
		"Recorded":     {"the status records the cluster before its spec is written", member("web", "old"), []v1alpha1.TemplateUpdate{update("web", "new")}, template.StateUpdating},
		"Updating":     {"the cluster is not Ready with its new spec", working, []v1alpha1.TemplateUpdate{update("web", "new")}, template.StateUpdating},
		"Done":         {"the status of the template follows the one of the cluster", member("web", "new"), []v1alpha1.TemplateUpdate{update("web", "new")}, template.StateCurrent},
		"Stalled":      {"a recorded cluster that is Stalled stops the rollout", stalled, []v1alpha1.TemplateUpdate{update("web", "new")}, template.StateStopped},
		"Refused":      {"a refused cluster stops the rollout", member("web", "old"), []v1alpha1.TemplateUpdate{refused}, template.StateStopped},
		"Former":       {"an update to a former revision does not count", member("web", "old"), []v1alpha1.TemplateUpdate{update("web", "former")}, template.StateWaiting},
		"Other":        {"a cluster that is Stalled without an update does not stop the rollout", staleStalled, nil, template.StateWaiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := template.StateOf(tc.member, "standard", "new", tc.updating); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.because, got, tc.want)
			}
		})
	}
}

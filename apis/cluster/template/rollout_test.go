package template_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// standard returns a ClusterTemplate with the waves test, which has a pause of one hour, and prod.
func standard(change func(*v1alpha1.ClusterTemplate)) (t *v1alpha1.ClusterTemplate, revision string) {
	t = &v1alpha1.ClusterTemplate{ObjectMeta: metav1.ObjectMeta{Name: "standard", Generation: 7}}
	t.Spec.Cluster.Topology = &v1alpha1.TemplatedTopology{Version: "1.34"}
	wave := func(name string, pause time.Duration) v1alpha1.TemplateWave {
		w := v1alpha1.TemplateWave{Name: name, Selector: v1alpha1.WaveSelector{MatchLabels: map[string]string{"env": name}}}
		if pause > 0 {
			w.PauseAfter = &metav1.Duration{Duration: pause}
		}
		return w
	}
	t.Spec.Rollout = &v1alpha1.TemplateRollout{Waves: []v1alpha1.TemplateWave{wave("test", time.Hour), wave("prod", 0)}}
	revision = template.Revision(t.Spec.Cluster)
	t.Status.Revision = revision
	if change != nil {
		change(t)
	}
	return t, revision
}

// member returns a cluster of a wave that is Ready. Its name begins with the wave.
func member(name, revision string) template.Member {
	wave, _, _ := strings.Cut(name, "-")
	return template.Member{Namespace: "a", Name: name, UID: types.UID(name), Labels: map[string]string{"env": wave}, Template: "standard", Revision: revision, Done: true, Reason: "ClusterRunning"}
}

func update(name, revision string) v1alpha1.TemplateUpdate {
	return v1alpha1.TemplateUpdate{Namespace: "a", Name: name, UID: types.UID(name), Revision: revision}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	_, rev := standard(nil)
	stalled := func(m template.Member) template.Member {
		m.Done, m.Stalled, m.Reason, m.Message = false, true, "UpgradeFailed", "node a-cp-0 does not answer."
		return m
	}
	busy := func(m template.Member) template.Member { m.Done = false; return m }
	held := func(m template.Member) template.Member { m.Done, m.Held = false, true; return m }
	deleting := func(m template.Member) template.Member { m = held(m); m.Deleting = true; return m }
	fresh := func(m template.Member) template.Member { m.Template, m.Revision, m.Done = "", "", false; return m }
	updating := func(all ...v1alpha1.TemplateUpdate) func(*v1alpha1.ClusterTemplate) {
		return func(ct *v1alpha1.ClusterTemplate) { ct.Status.Updating = all }
	}
	finished := func(ago time.Duration) func(*v1alpha1.ClusterTemplate) {
		return func(ct *v1alpha1.ClusterTemplate) {
			at := metav1.NewTime(noon.Add(-ago))
			ct.Status.Wave, ct.Status.WaveFinishedTime = "test", &at
		}
	}
	inTest := func(ct *v1alpha1.ClusterTemplate) { ct.Status.Wave = "test" }
	for name, tc := range map[string]struct {
		because string
		change  func(*v1alpha1.ClusterTemplate)
		members []template.Member
		apply   []string
		reason  string
		message string
	}{
		"Empty":   {"no cluster names the template", nil, nil, nil, template.ReasonCurrent, "all clusters (0)"},
		"Current": {"all clusters have the revision", nil, []template.Member{member("test-a", rev), member("prod-a", rev)}, nil, template.ReasonCurrent, "all clusters (2)"},
		"New":     {"a new cluster gets the fields by its own reconcile", nil, []template.Member{fresh(member("test-a", ""))}, nil, template.ReasonCurrent, ""},
		"First":   {"the first wave starts, one cluster at a time, in the order of names", nil, []template.Member{member("prod-a", "old"), member("test-b", "old"), member("test-a", "old"), member("other", "old")}, []string{"test-a"}, template.ReasonRolling, "updating KubernetesCluster a/test-a in wave test; 3 clusters wait"},
		"Many": {"maxConcurrent of the wave takes precedence over that of the rollout", func(ct *v1alpha1.ClusterTemplate) {
			ct.Spec.Rollout.MaxConcurrent, ct.Spec.Rollout.Waves[0].MaxConcurrent = 1, 2
		}, []template.Member{member("test-a", "old"), member("test-b", "old"), member("test-c", "old")}, []string{"test-a", "test-b"}, template.ReasonRolling, "1 cluster waits"},
		"Busy":    {"the recorded cluster is not Ready yet", updating(update("test-a", rev)), []template.Member{busy(member("test-a", rev)), member("test-b", "old")}, nil, template.ReasonRolling, "updating KubernetesCluster a/test-a"},
		"Killed":  {"the delivery was killed between the record and the write", updating(update("test-a", rev)), []template.Member{member("test-a", "old"), member("test-b", "old")}, []string{"test-a"}, template.ReasonRolling, ""},
		"Next":    {"the recorded cluster is Ready", updating(update("test-a", rev)), []template.Member{member("test-a", rev), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, ""},
		"Gone":    {"the recorded cluster was deleted", updating(update("test-a", rev)), []template.Member{member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, ""},
		"Left":    {"the recorded cluster names another template", updating(update("test-a", rev)), []template.Member{fresh(member("test-a", "")), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, ""},
		"Stalled": {"the recorded cluster needs a person", updating(update("test-a", rev)), []template.Member{stalled(member("test-a", rev)), member("test-b", "old")}, nil, template.ReasonStopped, "KubernetesCluster a/test-a does not become Ready with the template: UpgradeFailed: node a-cp-0 does not answer. 1 cluster waits."},
		"Refused": {"the API server refuses the fields: tried again, and nothing else starts", func(ct *v1alpha1.ClusterTemplate) {
			u := update("test-a", rev)
			u.Message = "spec.talos is wrong"
			ct.Status.Updating = []v1alpha1.TemplateUpdate{u}
		}, []template.Member{member("test-a", "old"), member("test-b", "old")}, []string{"test-a"}, template.ReasonStopped, "ClusterTemplateRejected: spec.talos is wrong"},
		"Before":        {"a cluster that is Stalled before its turn comes last in its wave", nil, []template.Member{stalled(member("test-a", "old")), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, ""},
		"Repair":        {"the template changed while a cluster was being updated: that cluster is first", updating(update("test-b", "old")), []template.Member{member("test-a", "older"), stalled(member("test-b", "old"))}, []string{"test-b"}, template.ReasonRolling, ""},
		"Paused":        {"nothing starts while the rollout is paused", func(ct *v1alpha1.ClusterTemplate) { ct.Spec.Rollout.Paused = true }, []template.Member{member("test-a", "old")}, nil, template.ReasonPaused, "set spec.rollout.paused to false"},
		"Resuming":      {"a recorded cluster is written also while the rollout is paused", func(ct *v1alpha1.ClusterTemplate) { ct.Spec.Rollout.Paused = true; updating(update("test-a", rev))(ct) }, []template.Member{member("test-a", "old")}, []string{"test-a"}, template.ReasonRolling, ""},
		"Held":          {"a paused cluster is left out, and does not keep the next wave from starting", inTest, []template.Member{held(member("test-a", "old")), member("prod-a", "old")}, nil, template.ReasonWave, "2 clusters wait"},
		"OnlyHeld":      {"only paused clusters wait", nil, []template.Member{held(member("test-a", "old")), member("prod-a", rev)}, nil, template.ReasonHeld, "KubernetesCluster a/test-a is paused"},
		"HeldUpdating":  {"a cluster that is paused while it is updated takes no place", updating(update("test-a", rev)), []template.Member{held(member("test-a", rev)), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, "updating KubernetesCluster a/test-b in wave test; 1 cluster waits, of which KubernetesCluster a/test-a is paused"},
		"HeldUnwritten": {"a recorded cluster that is paused before the write takes no place", updating(update("test-a", rev)), []template.Member{held(member("test-a", "old")), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, "KubernetesCluster a/test-a is paused"},
		"HeldStalled":   {"a cluster that is paused because it failed does not stop the others", updating(update("test-a", rev)), []template.Member{held(stalled(member("test-a", rev))), member("test-b", "old")}, []string{"test-b"}, template.ReasonRolling, "KubernetesCluster a/test-a is paused"},
		"HeldWave":      {"a paused cluster that was being updated keeps no wave open", func(ct *v1alpha1.ClusterTemplate) { finished(time.Hour)(ct); updating(update("test-a", rev))(ct) }, []template.Member{held(member("test-a", rev)), member("prod-a", "old")}, []string{"prod-a"}, template.ReasonRolling, "in wave prod"},
		"HeldLast":      {"only a paused cluster that was being updated is left", updating(update("test-a", rev)), []template.Member{held(member("test-a", rev)), member("prod-a", rev)}, nil, template.ReasonHeld, "KubernetesCluster a/test-a is paused"},
		"Resumed":       {"a resumed cluster continues and takes its place again", updating(update("test-a", rev)), []template.Member{busy(member("test-a", rev)), member("test-b", "old")}, nil, template.ReasonRolling, "updating KubernetesCluster a/test-a"},
		"Deleting":      {"a cluster that is being deleted does not count", updating(update("test-a", rev)), []template.Member{deleting(member("test-a", rev)), deleting(member("test-b", "old")), member("prod-a", rev)}, nil, template.ReasonCurrent, "all clusters (1)"},
		"WaveOver":      {"the pause begins when the last cluster of the wave is Ready", func(ct *v1alpha1.ClusterTemplate) { inTest(ct); updating(update("test-a", rev))(ct) }, []template.Member{member("test-a", rev), member("prod-a", "old")}, nil, template.ReasonWave, "starts at 2026-11-26T13:00:00Z"},
		"Pausing":       {"the pause has not passed", finished(59 * time.Minute), []template.Member{member("test-a", rev), member("prod-a", "old")}, nil, template.ReasonWave, "starts at 2026-11-26T12:01:00Z"},
		"Passed":        {"the pause has passed", finished(time.Hour), []template.Member{member("test-a", rev), member("prod-a", "old")}, []string{"prod-a"}, template.ReasonRolling, "in wave prod"},
		"Shortened": {"a change of pauseAfter counts at once", func(ct *v1alpha1.ClusterTemplate) {
			finished(time.Minute)(ct)
			ct.Spec.Rollout.Waves[0].PauseAfter = nil
		}, []template.Member{member("prod-a", "old")}, []string{"prod-a"}, template.ReasonRolling, ""},
		"Again":  {"a cluster of the finished wave needs no pause", finished(time.Minute), []template.Member{member("test-a", "old"), member("prod-a", "old")}, []string{"test-a"}, template.ReasonRolling, ""},
		"Unused": {"a wave without a cluster to update has no pause", nil, []template.Member{member("test-a", rev), member("prod-a", "old")}, []string{"prod-a"}, template.ReasonRolling, ""},
		"Rest":   {"clusters that no wave selects come last", nil, []template.Member{member("other", "old"), member("test-a", rev), member("prod-a", rev)}, []string{"other"}, template.ReasonRolling, "updating KubernetesCluster a/other; no other cluster waits"},
		"Changed": {"a change of the template during a pause starts with the first wave", func(ct *v1alpha1.ClusterTemplate) {
			finished(time.Minute)(ct)
			ct.Status.Revision = "former"
		}, []template.Member{member("test-a", "former"), member("prod-a", "old")}, []string{"test-a"}, template.ReasonRolling, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ct, _ := standard(tc.change)
			d := template.Decide(ct, tc.members, noon)
			var apply []string
			for _, m := range d.Apply {
				apply = append(apply, m.Name)
				if !slices.ContainsFunc(d.Status.Updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == m.UID && u.Revision == rev }) {
					t.Errorf("%s is not recorded before it is written", m)
				}
			}
			if !slices.Equal(apply, tc.apply) || d.Reason != tc.reason || !strings.Contains(d.Message, tc.message) || d.Ready != (tc.reason == template.ReasonCurrent) {
				t.Errorf("%s: got %v, %s: %s; want %v, %s: %s", tc.because, apply, d.Reason, d.Message, tc.apply, tc.reason, tc.message)
			}
			s := d.Status
			members := slices.DeleteFunc(slices.Clone(tc.members), func(m template.Member) bool { return m.Deleting })
			if s.ObservedGeneration != 7 || s.Revision != rev || int(s.Clusters) != len(members) || s.CurrentClusters+s.UpdatingClusters+s.WaitingClusters != s.Clusters {
				t.Errorf("status %+v", s)
			}
			if (s.NextCheckTime != nil) != (tc.reason == template.ReasonWave) {
				t.Errorf("next check at %v, but only a pause ends at a time", s.NextCheckTime)
			}
		})
	}
}

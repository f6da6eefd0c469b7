package template

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Member is a cluster of a ClusterTemplate, as a rollout sees it.
type Member struct {
	Namespace, Name string
	UID             types.UID
	Labels          map[string]string
	// Template and Revision are of the content that the cluster has. They are empty for a new cluster.
	Template, Revision string
	// Done is whether the cluster is Ready with its present spec, and Stalled whether a person has to act.
	Done, Stalled bool
	// Held is whether the cluster is paused or being deleted, so that it would not follow its spec.
	Held bool
	// Deleting is whether the cluster is being deleted, so that it does not count.
	Deleting bool
	// Reason and Message are those of the condition Ready.
	Reason, Message string
}

// MemberOf returns a cluster as a rollout sees it.
func MemberOf(kc *v1alpha1.KubernetesCluster) Member {
	m := Member{Namespace: kc.Namespace, Name: kc.Name, UID: kc.UID, Labels: kc.Labels}
	if applied, ok := Applied(kc); ok {
		m.Template, m.Revision = applied.Name, applied.Revision
	}
	m.Deleting = kc.DeletionTimestamp != nil
	m.Held = m.Deleting || kc.Spec.Paused || v1alpha1.IsPaused(kc)
	isObserved := kc.Status.ObservedGeneration == kc.Generation
	m.Done = isObserved && !m.Held && meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionReady)
	m.Stalled = isObserved && meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionStalled)
	if ready := meta.FindStatusCondition(kc.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		m.Reason, m.Message = ready.Reason, ready.Message
	}
	return m
}

// String returns the namespace and the name.
func (m Member) String() string { return m.Namespace + "/" + m.Name }

// Decision is the next step of a rollout.
type Decision struct {
	// Status is the status of the ClusterTemplate without its conditions and overrides.
	Status v1alpha1.ClusterTemplateStatus
	// Apply are the clusters that get the content now. Status.Updating has them already.
	Apply []Member
	// Ready, Reason and Message are the condition Ready.
	Ready           bool
	Reason, Message string
}

// Reasons of the condition Ready of a ClusterTemplate. A new cluster does not count as an update.
const (
	ReasonCurrent  = "ClustersCurrent"
	ReasonRolling  = "RollingOut"
	ReasonStopped  = "RolloutStopped"
	ReasonPaused   = "RolloutPaused"
	ReasonWave     = "WaveFinished"
	ReasonHeld     = "ClustersPaused"
	ReasonInUse    = "InUse"
	ReasonMissing  = "ClusterTemplateNotFound"
	ReasonRejected = "ClusterTemplateRejected"
	ReasonInvalid  = "ClusterTemplateInvalid"
)

// Decide returns the next step of a rollout:
//
//	a cluster without content of the template          gets it by its own reconcile, at once
//	a recorded cluster without the revision            Apply, again after a crash
//	a recorded cluster that is Ready with its spec     is done
//	a recorded cluster that is Stalled or refused      nothing starts
//	rollout.paused                                     nothing starts
//	pauseAfter of the finished wave has not passed     nothing starts
//	fewer clusters recorded than maxConcurrent         the next clusters of the first wave that is not finished
//
// Within a wave come first the clusters that were being updated when the template changed, because the change
// may repair them, and last those that are not Ready for another reason. A cluster that is paused is left out
// until it continues, also if it is recorded: it takes no place of maxConcurrent, keeps no wave open and stops
// nothing, because its namespace decides for how long it is paused. A cluster that is being deleted does not count.
func Decide(t *v1alpha1.ClusterTemplate, members []Member, now time.Time) Decision {
	r := newRollout(t, members)
	r.finishWave(now)
	until := r.pauseEnd()
	isPausing := now.Before(until)
	switch {
	case len(r.failed()) > 0, r.spec.Paused, isPausing:
	default:
		r.start()
	}
	return r.decision(isPausing, until)
}

// rollout is the state of a rollout while Decide computes the next step.
type rollout struct {
	spec     v1alpha1.TemplateRollout
	status   v1alpha1.ClusterTemplateStatus
	members  []Member
	apply    []Member
	revision string
	name     string
	// current is the index of the first wave that is not finished, and that of no wave if all are.
	current int
}

func newRollout(t *v1alpha1.ClusterTemplate, members []Member) *rollout {
	r := &rollout{members: slices.DeleteFunc(slices.Clone(members), func(m Member) bool { return m.Deleting }), revision: Revision(t.Spec.Cluster), name: t.Name}
	if t.Spec.Rollout != nil {
		r.spec = *t.Spec.Rollout
	}
	slices.SortFunc(r.members, func(a, b Member) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	old := t.Status
	r.status = v1alpha1.ClusterTemplateStatus{ObservedGeneration: t.Generation, Revision: r.revision}
	if old.Revision == r.revision {
		r.status.Wave, r.status.WaveFinishedTime = old.Wave, old.WaveFinishedTime
	}
	for _, u := range old.Updating {
		m, ok := r.find(u)
		if !ok || m.Template != r.name || m.Done && m.Revision == u.Revision {
			continue
		}
		if u.Revision == r.revision && m.Revision != r.revision && !m.Held {
			r.apply = append(r.apply, m)
		}
		r.status.Updating = append(r.status.Updating, u)
	}
	r.current = r.firstOpenWave()
	return r
}

func (r *rollout) find(u v1alpha1.TemplateUpdate) (Member, bool) {
	i := slices.IndexFunc(r.members, func(m Member) bool { return m.UID == u.UID })
	if i < 0 {
		return Member{}, false
	}
	return r.members[i], true
}

// recorded returns the update of a cluster to a revision.
func (r *rollout) recorded(m Member) (v1alpha1.TemplateUpdate, bool) {
	i := slices.IndexFunc(r.status.Updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == m.UID })
	if i < 0 {
		return v1alpha1.TemplateUpdate{}, false
	}
	return r.status.Updating[i], true
}

// isRecorded reports whether the status records the update of a cluster to the revision.
func (r *rollout) isRecorded(m Member) bool {
	u, ok := r.recorded(m)
	return ok && u.Revision == r.revision
}

// isUpdating reports whether a cluster is being updated to the revision. A paused cluster waits instead.
func (r *rollout) isUpdating(m Member) bool { return r.isRecorded(m) && !m.Held }

// isWaiting reports whether a cluster has still to be updated and is not being updated. A new cluster does not wait.
func (r *rollout) isWaiting(m Member) bool {
	return m.Template == r.name && (m.Revision != r.revision || r.isRecorded(m)) && !r.isUpdating(m)
}

// WaveOf returns the index of the wave of a cluster. That of a cluster that no wave selects is the number of waves.
func WaveOf(waves []v1alpha1.TemplateWave, labels map[string]string) int {
	for i, w := range waves {
		matches := true
		for key, value := range w.Selector.MatchLabels {
			has, ok := labels[key]
			matches = matches && ok && has == value
		}
		if matches {
			return i
		}
	}
	return len(waves)
}

// firstOpenWave returns the index of the first wave with a cluster that is being updated or can be.
func (r *rollout) firstOpenWave() int {
	first := len(r.spec.Waves) + 1
	for _, m := range r.members {
		if r.isUpdating(m) || r.isWaiting(m) && !m.Held {
			first = min(first, WaveOf(r.spec.Waves, m.Labels))
		}
	}
	return first
}

func (r *rollout) indexOf(wave string) int {
	return slices.IndexFunc(r.spec.Waves, func(w v1alpha1.TemplateWave) bool { return w.Name == wave })
}

// finishWave records when the wave in the status has finished.
func (r *rollout) finishWave(now time.Time) {
	i := r.indexOf(r.status.Wave)
	switch {
	case i < 0 || r.current <= i:
		r.status.WaveFinishedTime = nil
	case r.status.WaveFinishedTime == nil:
		at := metav1.NewTime(now)
		r.status.WaveFinishedTime = &at
	}
}

// pauseEnd returns the end of the pause after the wave that has finished, or zero if there is none.
func (r *rollout) pauseEnd() time.Time {
	i := r.indexOf(r.status.Wave)
	if i < 0 || r.status.WaveFinishedTime == nil || r.spec.Waves[i].PauseAfter == nil || r.current > len(r.spec.Waves) {
		return time.Time{}
	}
	return r.status.WaveFinishedTime.Add(r.spec.Waves[i].PauseAfter.Duration)
}

// failed returns the clusters that keep the rollout from continuing. One that the API server refuses has the reason of that.
func (r *rollout) failed() (failed []Member) {
	for _, m := range r.members {
		if StateOf(m, r.name, r.revision, r.status.Updating) != StateStopped {
			continue
		}
		if u, _ := r.recorded(m); m.Revision != r.revision {
			m.Reason, m.Message = ReasonRejected, u.Message
		}
		failed = append(failed, m)
	}
	return failed
}

// limit returns how many clusters of the current wave are updated at the same time.
func (r *rollout) limit() int {
	limit := cmp.Or(r.spec.MaxConcurrent, 1)
	if r.current < len(r.spec.Waves) {
		limit = cmp.Or(r.spec.Waves[r.current].MaxConcurrent, limit)
	}
	return int(limit)
}

// start records the next clusters of the current wave.
func (r *rollout) start() {
	free, candidates := r.limit(), []Member(nil)
	for _, m := range r.members {
		switch {
		case r.isUpdating(m):
			free--
		case r.isWaiting(m) && !m.Held && WaveOf(r.spec.Waves, m.Labels) == r.current:
			candidates = append(candidates, m)
		}
	}
	rank := func(m Member) int {
		if _, ok := r.recorded(m); ok {
			return 0
		}
		if m.Done {
			return 1
		}
		return 2
	}
	slices.SortStableFunc(candidates, func(a, b Member) int { return cmp.Compare(rank(a), rank(b)) })
	for _, m := range candidates[:min(max(free, 0), len(candidates))] {
		r.status.Updating = slices.DeleteFunc(r.status.Updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == m.UID })
		r.status.Updating = append(r.status.Updating, v1alpha1.TemplateUpdate{Namespace: m.Namespace, Name: m.Name, UID: m.UID, Revision: r.revision})
		r.apply = append(r.apply, m)
		r.status.Wave, r.status.WaveFinishedTime = "", nil
		if r.current < len(r.spec.Waves) {
			r.status.Wave = r.spec.Waves[r.current].Name
		}
	}
}

// decision counts the clusters and writes the condition.
func (r *rollout) decision(isPausing bool, until time.Time) Decision {
	var waiting, held, updating []Member
	s := &r.status
	for _, m := range r.members {
		s.Clusters++
		switch {
		case r.isUpdating(m):
			updating = append(updating, m)
		case r.isWaiting(m):
			waiting = append(waiting, m)
			if m.Held {
				held = append(held, m)
			}
		case m.Template == r.name:
			s.CurrentClusters++
		}
	}
	s.WaitingClusters, s.UpdatingClusters = int32(len(waiting)), s.Clusters-s.CurrentClusters-int32(len(waiting))
	d := Decision{Apply: r.apply}
	failed := r.failed()
	switch {
	case len(failed) > 0:
		f := failed[0]
		d.Reason, d.Message = ReasonStopped, fmt.Sprintf("KubernetesCluster %s does not become Ready with the template: %s: %s. %s. "+
			"Correct KubernetesCluster %s, or change the template: then the rollout continues", f, f.Reason, strings.TrimRight(f.Message, "."), wait(len(waiting)), f)
	case len(updating) > 0:
		d.Reason, d.Message = ReasonRolling, fmt.Sprintf("updating KubernetesCluster %s%s; %s%s", names(updating), r.inWave(), wait(len(waiting)), leftOut(held))
	case len(waiting) == 0:
		d.Ready, d.Reason, d.Message = true, ReasonCurrent, fmt.Sprintf("all clusters (%d) have the fields of the template", s.Clusters)
	case len(held) == len(waiting):
		d.Reason, d.Message = ReasonHeld, fmt.Sprintf("KubernetesCluster %s is paused: the rollout continues when it is resumed (%s)", names(held), pausedBy)
	case r.spec.Paused:
		d.Reason, d.Message = ReasonPaused, wait(len(waiting))+leftOut(held)+": set spec.rollout.paused to false to continue"
	case isPausing:
		at := metav1.NewTime(until)
		s.NextCheckTime = &at
		d.Reason, d.Message = ReasonWave, fmt.Sprintf("wave %s is finished, and the next wave starts at %s; %s%s. Shorten pauseAfter of the wave to continue earlier",
			s.Wave, until.UTC().Format(time.RFC3339), wait(len(waiting)), leftOut(held))
	}
	d.Status = r.status
	return d
}

func (r *rollout) inWave() string {
	if r.status.Wave == "" {
		return ""
	}
	return " in wave " + r.status.Wave
}

func wait(n int) string {
	switch n {
	case 0:
		return "no other cluster waits"
	case 1:
		return "1 cluster waits"
	default:
		return fmt.Sprintf("%d clusters wait", n)
	}
}

// pausedBy names what pauses a cluster.
const pausedBy = "spec.paused, or the annotation " + v1alpha1.AnnotationPaused + " while kubectl viti moves it"

// leftOut names the paused clusters among those that wait, or returns nothing.
func leftOut(held []Member) string {
	if len(held) == 0 {
		return ""
	}
	return fmt.Sprintf(", of which KubernetesCluster %s is paused and left out until it is resumed (%s)", names(held), pausedBy)
}

// names lists the first clusters of a list and counts the others.
func names(members []Member) string {
	const most = 5
	all := make([]string, 0, most+1)
	for _, m := range members[:min(most, len(members))] {
		all = append(all, m.String())
	}
	if len(members) > most {
		all = append(all, fmt.Sprintf("and %d more", len(members)-most))
	}
	return strings.Join(all, ", ")
}

package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// pausedByMove is the value of the annotation of an object that a move has paused.
const pausedByMove = "moving"

// pause has the functions of a cluster leave an object as it is, or reconcile it at once.
func (m *Mover) pause(ctx context.Context, c *cluster.Connection, o object, paused bool) error {
	if !o.isLayer() || v1alpha1.IsPaused(o) == paused {
		return nil
	}
	annotations := map[string]any{v1alpha1.AnnotationPaused: pausedByMove}
	if !paused {
		annotations = map[string]any{v1alpha1.AnnotationPaused: nil, v1alpha1.AnnotationReconcile: time.Now().UTC().Format(time.RFC3339Nano)}
	}
	return patch(ctx, c, o, map[string]any{"metadata": map[string]any{"annotations": annotations}})
}

// pauseAll pauses the objects and waits until deliveries that began earlier have ended. It returns the objects as they are then, including
// objects that such deliveries or users created meanwhile.
func (m *Mover) pauseAll(ctx context.Context, all []object) ([]object, error) {
	m.Report("Pausing %d objects", len(all))
	isActive := func(o object) bool { return o.isLayer() && !v1alpha1.IsPaused(o) }
	for round := range mostRounds {
		if round > 0 && !slices.ContainsFunc(all, isActive) {
			break
		}
		for _, o := range all {
			if err := m.pause(ctx, m.From, o, true); err != nil {
				return nil, err
			}
		}
		var err error
		if all, err = m.readAfterSnapshots(ctx); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(all, isReconciling)
		if i < 0 {
			continue
		}
		m.Report("Waiting %s, because a function may still be reconciling %s", deliveryTimeout, all[i].key())
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(deliveryTimeout):
		}
		if all, err = m.read(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// mostRounds bounds how often pauseAll looks for new objects. checkInactive finds what is unpaused or created after that.
const mostRounds = 5

// deliveryTimeout is longer than any delivery of the functions, whose limit is 25 seconds (events/limits.go), except one of etcd-backup.
const deliveryTimeout = 30 * time.Second

const (
	// attemptTimeout is how long after its last renewal etcd-backup takes the attempt of another delivery for ended.
	attemptTimeout = time.Minute
	// snapshotPause is the time between two looks at a snapshot that is being taken.
	snapshotPause = 3 * time.Second
)

// readAfterSnapshots returns the objects that move, after the snapshots that etcd-backup has begun to take. A delivery of etcd-backup lasts as
// long as its snapshot, and then writes it into the status, also of an EtcdBackup that is paused.
func (m *Mover) readAfterSnapshots(ctx context.Context) ([]object, error) {
	for isReported := false; ; {
		all, err := m.read(ctx)
		if err != nil {
			return nil, err
		}
		now := m.From.Now()
		i := slices.IndexFunc(all, func(o object) bool { return isTakingSnapshot(o, now) })
		if i < 0 {
			return all, nil
		}
		if !isReported {
			isReported = true
			m.Report("Waiting for the snapshot that %s takes, nine minutes at most", all[i].key())
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(snapshotPause):
		}
	}
}

// isTakingSnapshot reports whether an object is an EtcdBackup with an attempt that a delivery renews.
func isTakingSnapshot(o object, now time.Time) bool {
	text, _, _ := unstructured.NestedString(o.Object, "status", "attempt", "renewTime")
	renewed, err := time.Parse(time.RFC3339, text)
	return o.kind.Name == "EtcdBackup" && err == nil && now.Sub(renewed) < attemptTimeout
}

// isReconciling reports whether a function may have begun to change what is outside of an object before it was paused.
func isReconciling(o object) bool {
	if !o.isLayer() {
		return false
	}
	status, _, _ := ready(o.Unstructured)
	observed, found, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	return status != string(metav1.ConditionTrue) || found && observed != o.GetGeneration() || isTrue(o.Unstructured, v1alpha1.ConditionReconciling)
}

// checkInactive returns an error if an object here is not paused any more, or was created after the others were paused. Call it before the copies are
// unpaused: the functions of both sides would reconcile the same virtual machines, and a new object would lack what it needs here.
func (m *Mover) checkInactive(ctx context.Context, all []object) error {
	moving := map[types.UID]bool{}
	for _, o := range all {
		moving[o.GetUID()] = true
	}
	for _, kind := range layers {
		found, err := m.list(ctx, kind)
		if err != nil {
			return err
		}
		for _, o := range found {
			if !moving[o.GetUID()] {
				return fmt.Errorf("%s was created here after the others were paused, so their copies at %s stay paused: run the command again, which moves it too", o.key(), m.To.Config.Host)
			}
			if o.isLayer() && !v1alpha1.IsPaused(o) {
				return fmt.Errorf("%s is not paused any more, so its copy at %s stays paused: stop what applies it here, such as GitOps, and run the command again", o.key(), m.To.Config.Host)
			}
		}
	}
	return nil
}

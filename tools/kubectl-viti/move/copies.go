package move

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// target has the objects in the namespaces that move, as the target has them.
type target struct {
	// mark is the value of the annotation vitistack.io/paused of the copies. It names the management cluster from which they are
	// copied, so that the copies of another one are never removed.
	mark string
	// byKey has the objects by their key.
	byKey map[string]object
	// stale are copies of an interrupted move whose object has been deleted here since, each after its owners. The functions do not
	// reconcile them, because they are paused.
	stale []object
}

// readTarget lists the objects of the target.
func (m *Mover) readTarget(ctx context.Context, all []object) (target, error) {
	system, err := m.From.In(namespaceKind, "").Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return target{}, m.From.Explain(err, namespaceKind, metav1.NamespaceSystem)
	}
	t := target{mark: pausedByMove + "-from-" + string(system.GetUID()), byKey: map[string]object{}}
	former := map[string]bool{}
	namespaces := map[string]bool{}
	for _, o := range all {
		former[string(o.GetUID())], namespaces[o.GetNamespace()] = true, true
	}
	isKept := func(o object) bool {
		return slices.ContainsFunc(v1alpha1.FormerUIDs(o), func(uid string) bool { return former[uid] })
	}
	staleUIDs := map[string]bool{}
	for _, kind := range layers {
		if err := m.listTarget(ctx, kind, m.Namespace, func(o object) {
			t.byKey[o.key()] = o
			if o.GetAnnotations()[v1alpha1.AnnotationPaused] == t.mark && !isKept(o) {
				t.stale = append(t.stale, o)
				staleUIDs[string(o.GetUID())], namespaces[o.GetNamespace()] = true, true
			}
		}); err != nil {
			return target{}, err
		}
	}
	for _, kind := range companions {
		for namespace := range namespaces {
			if err := m.listTarget(ctx, kind, namespace, func(o object) {
				t.byKey[o.key()] = o
				if belongsTo(o, staleUIDs) && !isKept(o) {
					t.stale = append(t.stale, o)
				}
			}); err != nil {
				return target{}, err
			}
		}
	}
	return t, nil
}

// listTarget calls do for each object of a kind in a namespace of the target, or in all if that is empty.
func (m *Mover) listTarget(ctx context.Context, kind cluster.Kind, namespace string, do func(object)) error {
	found, err := m.To.ListPages(ctx, kind, namespace, "")
	if err != nil {
		return m.To.Explain(err, kind, "")
	}
	for i := range found {
		do(object{Unstructured: &found[i], kind: kind})
	}
	return nil
}

// belongsTo reports whether an object with one of the UIDs owns a Secret or ConfigMap, or holds the Lease of an address.
func belongsTo(o object, uids map[string]bool) bool {
	return uids[o.GetLabels()[v1alpha1.LabelHolder]] ||
		slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return uids[string(r.UID)] })
}

// isStale reports whether the target has a stale copy with the key of an object.
func (t target) isStale(o object) bool {
	return slices.ContainsFunc(t.stale, func(s object) bool { return s.key() == o.key() })
}

// removeStale removes the stale copies from the target, without touching what is outside of them, and waits until they are gone. Their
// dependents are orphaned: an object that a deleted one has left here moves.
func (m *Mover) removeStale(ctx context.Context, t target) error {
	orphan := metav1.DeletePropagationOrphan
	for _, o := range slices.Backward(t.stale) {
		m.Report("Removing the copy %s at %s, because it was deleted here", o.key(), m.To.Config.Host)
		uid := o.GetUID()
		if len(o.GetFinalizers()) > 0 {
			if err := patch(ctx, m.To, o, map[string]any{"metadata": map[string]any{"uid": uid, "finalizers": nil}}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
		options := metav1.DeleteOptions{PropagationPolicy: &orphan, Preconditions: &metav1.Preconditions{UID: &uid}}
		if err := m.To.In(o.kind, o.GetNamespace()).Delete(ctx, o.GetName(), options); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove the copy %s at %s: %w", o.key(), m.To.Config.Host, err)
		}
	}
	for _, o := range t.stale {
		if err := m.awaitRemoval(ctx, o); err != nil {
			return err
		}
		delete(t.byKey, o.key())
	}
	return nil
}

// removalTimeout is how long the garbage collector of the target may take to orphan the dependents of an object.
const removalTimeout = 30 * time.Second

// awaitRemoval waits until a copy is gone.
func (m *Mover) awaitRemoval(ctx context.Context, o object) error {
	for end := time.Now().Add(removalTimeout); ; {
		now, err := m.To.In(o.kind, o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err) || err == nil && now.GetUID() != o.GetUID():
			return nil
		case err != nil:
			return fmt.Errorf("read %s at %s: %w", o.key(), m.To.Config.Host, err)
		case time.Now().After(end):
			return fmt.Errorf("the copy %s at %s is still being deleted: check that kube-controller-manager runs there, and run the command again", o.key(), m.To.Config.Host)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second / 4):
		}
	}
}

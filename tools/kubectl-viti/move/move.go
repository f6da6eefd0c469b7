package move

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// Mover moves the objects of namespaces.
type Mover struct {
	From, To *cluster.Connection
	// Namespace is the namespace that moves, or empty for all.
	Namespace string
	// Timeout is how long the functions of the target may take to adopt what exists.
	Timeout time.Duration
	// Report says what is done now.
	Report func(format string, args ...any)
}

// ErrDecision says that the plan has a Decision.
var ErrDecision = errors.New("an object needs a decision, and nothing was changed: follow the notes, and run the command again")

// Plan returns what Move would do. It changes nothing.
func (m *Mover) Plan(ctx context.Context) ([]Row, error) {
	all, err := m.read(ctx)
	if err != nil {
		return nil, err
	}
	there, err := m.readTarget(ctx, all)
	if err != nil {
		return nil, err
	}
	return m.plan(ctx, all, there)
}

// Move pauses the objects, creates them at the target, waits until the functions there have adopted what exists, and
// then removes them here without touching what is outside of them. It starts only if nothing needs a decision. A
// second call continues after an interruption; until its end the objects here stay paused. Objects that were created here since then
// move too, and the copies of deleted ones are removed.
func (m *Mover) Move(ctx context.Context) error {
	all, err := m.read(ctx)
	if err != nil {
		return err
	}
	there, err := m.readTarget(ctx, all)
	if err != nil {
		return err
	}
	if decision, err := m.findDecision(ctx, all, there); err != nil || decision != nil {
		return cmp.Or(err, ErrDecision)
	}
	if all, err = m.pauseAll(ctx, all); err != nil {
		return err
	}
	if d, err := m.findDecision(ctx, all, there); err != nil {
		return err
	} else if d != nil {
		return fmt.Errorf("%s %s/%s has changed here since, and needs a decision: %s. The objects here are paused: run the command again after that", d.Kind, d.Namespace, d.Name, d.Note)
	}
	if err := m.removeStale(ctx, there); err != nil {
		return err
	}
	m.Report("Creating them at %s", m.To.Config.Host)
	if err := m.create(ctx, all, there); err != nil {
		return err
	}
	m.Report("Waiting until the functions there have adopted what exists")
	if err := m.await(ctx, all); err != nil {
		return err
	}
	m.Report("Removing them here")
	if err := m.remove(ctx, all); err != nil {
		return err
	}
	return m.checkEmpty(ctx)
}

// findDecision returns the first row of the plan that needs a decision, or nil.
func (m *Mover) findDecision(ctx context.Context, all []object, there target) (*Row, error) {
	rows, err := m.plan(ctx, all, there)
	if i := slices.IndexFunc(rows, func(r Row) bool { return r.Action == Decision }); err == nil && i >= 0 {
		return &rows[i], nil
	}
	return nil, err
}

// checkEmpty returns an error if objects have been created here while the others moved.
func (m *Mover) checkEmpty(ctx context.Context) error {
	for _, kind := range layers {
		found, err := m.list(ctx, kind)
		if err != nil {
			return err
		}
		for _, o := range found {
			if o.GetDeletionTimestamp() == nil {
				return fmt.Errorf("%s was created here while the others moved, and is still here: run the command again, which moves it too", o.key())
			}
		}
	}
	return nil
}

// read returns the objects that move, each after its owners.
func (m *Mover) read(ctx context.Context) ([]object, error) {
	var all []object
	moving, named := map[string]bool{}, map[string]bool{}
	for _, kind := range layers {
		found, err := m.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			moving[string(o.GetUID())] = true
			addNames(o, named)
		}
		all = append(all, found...)
	}
	namespaces := map[string]bool{}
	for _, o := range all {
		namespaces[o.GetNamespace()] = true
	}
	for _, kind := range companions {
		found, err := m.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			if namespaces[o.GetNamespace()] && isCompanion(o, moving, named) {
				o.shared = !isPart(o, moving)
				all = append(all, o)
			}
		}
	}
	return all, nil
}

// list returns the objects of a kind in the namespaces that move.
func (m *Mover) list(ctx context.Context, kind cluster.Kind) ([]object, error) {
	found, err := m.From.ListPages(ctx, kind, m.Namespace, "")
	if err != nil {
		return nil, m.From.Explain(err, kind, "")
	}
	var all []object
	for i := range found {
		all = append(all, object{Unstructured: &found[i], kind: kind})
	}
	return all, nil
}

// patch changes an object, which becomes the one that the API server has stored.
func patch(ctx context.Context, c *cluster.Connection, o object, change map[string]any) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	stored, err := c.In(o.kind, o.GetNamespace()).Patch(ctx, o.GetName(), types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-viti"})
	if err != nil {
		return fmt.Errorf("change %s at %s: %w", o.key(), c.Config.Host, err)
	}
	o.Object = stored.Object
	return nil
}

// create creates the objects at the target, then writes their status, and lets the functions there reconcile them.
func (m *Mover) create(ctx context.Context, all []object, there target) error {
	active := there.activeNamespaces(all)
	uids := map[string]string{}
	var copies []object
	for _, o := range all {
		if err := m.ensureNamespace(ctx, o.GetNamespace()); err != nil {
			return err
		}
		c, err := m.createObject(ctx, o, uids, there, active[o.GetNamespace()])
		if err != nil {
			return err
		}
		uids[string(o.GetUID())] = string(c.GetUID())
		copies = append(copies, c)
	}
	for i, o := range all {
		if err := m.writeStatus(ctx, o, copies[i], uids); err != nil {
			return err
		}
	}
	if err := m.checkInactive(ctx, all); err != nil {
		return err
	}
	for _, c := range copies {
		if err := m.pause(ctx, m.To, c, false); err != nil {
			return err
		}
	}
	return nil
}

// createObject creates the copy of an object, or brings the copy of an earlier call up to date unless it is active.
func (m *Mover) createObject(ctx context.Context, o object, uids map[string]string, there target, active bool) (object, error) {
	objects := m.To.In(o.kind, o.GetNamespace())
	made, exists, err := there.byKey[o.key()].Unstructured, there.byKey[o.key()].Unstructured != nil, error(nil)
	if !exists {
		made, err = objects.Create(ctx, convert(o, uids, there.mark), metav1.CreateOptions{FieldManager: "kubectl-viti"})
		if exists = apierrors.IsAlreadyExists(err); exists { // since the target was read
			made, err = objects.Get(ctx, o.GetName(), metav1.GetOptions{})
		}
	}
	switch {
	case err != nil || !exists:
	case !isCopy(o, made):
		return object{}, fmt.Errorf("%s: the target has another object of this name now: delete one of both, and run the command again", o.key())
	case !active && v1alpha1.HadUID(made, string(o.GetUID())):
		made, err = m.refresh(ctx, o, made, uids, there.mark)
	}
	if err != nil {
		return object{}, fmt.Errorf("create %s at %s: %w", o.key(), m.To.Config.Host, err)
	}
	c := object{Unstructured: made, kind: o.kind}
	return c, m.keepOwners(ctx, o, c)
}

// keepOwners gives the copy of a cluster with a ClusterTemplate the managers that the fields of the cluster have here.
// Otherwise the copy would own the fields of the template itself, and no change of the template would reach it.
func (m *Mover) keepOwners(ctx context.Context, o, c object) error {
	if o.kind.Name != "KubernetesCluster" || o.GetAnnotations()[v1alpha1.AnnotationTemplate] == "" || !v1alpha1.IsPaused(c) {
		return nil
	}
	owners := slices.DeleteFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Subresource != "" })
	return patch(ctx, m.To, c, map[string]any{"metadata": map[string]any{"managedFields": owners}})
}

// writeStatus writes the status of an object that the functions at the target have not got yet.
func (m *Mover) writeStatus(ctx context.Context, o, c object, uids map[string]string) error {
	status := convertStatus(o, uids, c.GetGeneration(), metav1.Now())
	if !o.isLayer() || status == nil || !v1alpha1.IsPaused(c) {
		return nil
	}
	c.Object["status"] = status
	updated, err := m.To.In(o.kind, o.GetNamespace()).UpdateStatus(ctx, c.Unstructured, metav1.UpdateOptions{FieldManager: "kubectl-viti"})
	if err != nil {
		return fmt.Errorf("write the status of %s at %s: %w", o.key(), m.To.Config.Host, err)
	}
	c.Object = updated.Object
	return nil
}

// ensureNamespace creates a namespace at the target with the labels and annotations that it has here.
func (m *Mover) ensureNamespace(ctx context.Context, name string) error {
	_, err := m.To.In(namespaceKind, "").Get(ctx, name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	here, err := m.From.In(namespaceKind, "").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	u.SetName(name)
	u.SetLabels(here.GetLabels())
	u.SetAnnotations(here.GetAnnotations())
	if _, err = m.To.In(namespaceKind, "").Create(ctx, u, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// await waits until every object that is Ready here is Ready at the target, or was before this call. Its
// function has adopted then what exists outside.
func (m *Mover) await(ctx context.Context, all []object) error {
	const pause = time.Second
	for end := time.Now().Add(m.Timeout); ; {
		var waiting []string
		for _, o := range all {
			if !o.isLayer() {
				continue
			}
			there, err := m.To.In(o.kind, o.GetNamespace()).Get(ctx, o.GetName(), metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("read %s at %s: %w", o.key(), m.To.Config.Host, err)
			}
			status, reason, message := ready(there)
			wasReady, _, _ := ready(o.Unstructured)
			if reason == v1alpha1.ReasonMoved && wasReady != "" || wasReady == "True" && status != "True" {
				waiting = append(waiting, fmt.Sprintf("%s: %s: %s", o.key(), reason, message))
			}
		}
		if len(waiting) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d objects are not Ready at %s yet, so they stay here, paused: follow the messages there, and run the command again:\n  %s", len(waiting), m.To.Config.Host, strings.Join(waiting, "\n  "))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// ready returns the condition Ready of an object.
func ready(u *unstructured.Unstructured) (status, reason, message string) {
	c := condition(u, v1alpha1.ConditionReady)
	status, _ = c["status"].(string)
	reason, _ = c["reason"].(string)
	message, _ = c["message"].(string)
	return status, reason, message
}

func isTrue(u *unstructured.Unstructured, name string) bool {
	return condition(u, name)["status"] == string(metav1.ConditionTrue)
}

// condition returns the condition of an object with a name, or nil.
func condition(u *unstructured.Unstructured, name string) map[string]any {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == name {
			return c
		}
	}
	return nil
}

// remove removes the objects here that are not shared, and pauses them again before, so that no function cleans up. Their
// dependents are orphaned: virtual machines of this cluster stay, too.
func (m *Mover) remove(ctx context.Context, all []object) error {
	if err := m.removeVMIDLeases(ctx, all); err != nil {
		return err
	}
	orphan := metav1.DeletePropagationOrphan
	for _, o := range slices.Backward(all) {
		if o.shared {
			continue
		}
		uid := o.GetUID() // before patch, which may meet another object of this name
		metadata := map[string]any{"finalizers": nil}
		if o.isLayer() {
			metadata["annotations"] = map[string]any{v1alpha1.AnnotationPaused: pausedByMove}
		}
		change := map[string]any{"metadata": metadata}
		if protected, _, _ := unstructured.NestedBool(o.Object, "spec", "protected"); protected {
			change["spec"] = map[string]any{"protected": false}
		}
		if err := patch(ctx, m.From, o, change); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		options := metav1.DeleteOptions{PropagationPolicy: &orphan, Preconditions: &metav1.Preconditions{UID: &uid}}
		if err := m.From.In(o.kind, o.GetNamespace()).Delete(ctx, o.GetName(), options); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove %s: %w", o.key(), err)
		}
	}
	return nil
}

// removeVMIDLeases removes the Leases by which create-vm has claimed the VMIDs of Machines, in the namespace of the stack. The
// functions at the target need none, because Proxmox VE has the virtual machines.
func (m *Mover) removeVMIDLeases(ctx context.Context, all []object) error {
	machines := map[string]bool{}
	for _, o := range all {
		machines[string(o.GetUID())] = o.kind.Name == "Machine"
	}
	leases := m.From.Resource(leaseKind.GVR())
	list, err := leases.List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelManagedBy + "=create-vm," + v1alpha1.LabelHolder})
	if err != nil {
		return m.From.Explain(err, leaseKind, "")
	}
	for _, l := range list.Items {
		if !machines[l.GetLabels()[v1alpha1.LabelHolder]] {
			continue
		}
		if err := leases.Namespace(l.GetNamespace()).Delete(ctx, l.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Lease %s/%s: %w", l.GetNamespace(), l.GetName(), err)
		}
	}
	return nil
}

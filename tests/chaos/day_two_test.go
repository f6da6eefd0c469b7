package chaos

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
)

// replacePool changes the size of the workers of a cluster, so that they are resized in place or replaced, within other limits
// than before. Only a larger size is possible in place.
func replacePool(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, isConnected)
	if b == nil {
		return nil
	}
	b.pool.size = map[string]string{"small": "medium", "medium": "small"}[b.pool.size]
	b.surge, b.pool.away = a.random.IntN(2), a.random.IntN(3)
	if b.surge+b.pool.away == 0 {
		b.surge = 1
	}
	b.pool.inPlace = a.chance(2)
	return a.patch(b, b.topologyPatch())
}

// resizeControlPlane changes the size of the control planes of a cluster, so that they are resized in place or replaced, with
// or without a health check.
func resizeControlPlane(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, isConnected)
	if b == nil {
		return nil
	}
	b.pool.controlSize = map[string]string{"": "medium", "large": "medium", "medium": "large"}[b.pool.controlSize]
	b.controlInPlace, b.controlHealthCheck = a.chance(2), a.chance(2)
	return a.patch(b, b.topologyPatch())
}

// pauseReplacement pauses the replacements and upgrades of a cluster, or resumes them.
func pauseReplacement(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, isConnected)
	if b == nil {
		return nil
	}
	b.paused = !b.paused
	return a.patch(b, b.topologyPatch())
}

// isConnected reports whether a cluster is right and its nodes are not cut off.
func isConnected(b *plannedObject) bool { return right(b) && !b.cut }

// killNode has a worker of a cluster die for good. The health check replaces it minutes later. A cluster that is being upgraded
// keeps its nodes, because an upgrade waits twenty minutes for a node.
func killNode(a *generator) func(*env) {
	if !a.long {
		return nil
	}
	b := a.pick(engine.KubernetesClusters, func(b *plannedObject) bool { return isConnected(b) && !b.dead })
	if b == nil {
		return nil
	}
	b.dead = true
	s := b.subject
	return func(w *env) {
		workers := w.workers(s)
		if len(workers) == 0 || w.isUpgrading(s) {
			return
		}
		w.record("node %s dies", workers[0].name)
		w.crash(workers[:1])
	}
}

// cutNodes cuts the network of all workers of a cluster, or of all its nodes if there is only one worker, or restores it. No
// machine is replaced meanwhile.
func cutNodes(a *generator) func(*env) {
	if !a.long {
		return nil
	}
	if b := a.pick(engine.KubernetesClusters, func(b *plannedObject) bool { return b.cut }); b != nil {
		b.cut = false
		s := b.subject
		return func(w *env) { w.restoreNodes(s) }
	}
	b := a.pick(engine.KubernetesClusters, func(b *plannedObject) bool { return isConnected(b) && !b.dead })
	if b == nil {
		return nil
	}
	b.cut = true
	s := b.subject
	return func(w *env) {
		nodes := w.workers(s)
		if _, lives := w.living[s]; !lives || len(nodes) == 0 || w.isUpgrading(s) {
			return
		}
		if len(nodes) == 1 {
			nodes = w.machinesOf(s)
		}
		w.record("%d nodes of %s are cut off", len(nodes), s)
		w.cut[s] = true
		w.crash(nodes)
	}
}

// protect protects an object.
func protect(a *generator) func(*env) {
	b := a.protectable(false)
	if b == nil {
		return nil
	}
	b.protected = true
	s := b.subject
	return func(w *env) { w.protect(s) }
}

func unprotect(a *generator) func(*env) {
	b := a.protectable(true)
	if b == nil {
		return nil
	}
	b.protected = false
	s := b.subject
	return func(w *env) { w.unprotect(s) }
}

// deleteProtected attempts to delete a protected object.
func deleteProtected(a *generator) func(*env) {
	b := a.protectable(true)
	if b == nil {
		return nil
	}
	s := b.subject
	return func(w *env) { w.requireProtection(s) }
}

// protectNode protects a worker of a cluster, or removes its protection.
func protectNode(a *generator) func(*env) {
	b := a.pick(engine.KubernetesClusters, right)
	if b == nil {
		return nil
	}
	s := b.subject
	return func(w *env) {
		if w.unprotectNodes(s) > 0 {
			return
		}
		if workers := w.workers(s); len(workers) > 0 {
			w.protect(subject{engine.Machines, s.namespace, workers[len(workers)-1].name})
		}
	}
}

// protectable returns an object of a kind that can be protected.
func (a *generator) protectable(protected bool) *plannedObject {
	kinds := []schema.GroupVersionResource{engine.Machines, engine.KubernetesClusters, engine.NetworkNamespaces}
	return a.pick(kinds[a.random.IntN(len(kinds))], func(b *plannedObject) bool { return b.protected == protected })
}

// node is a Machine of a cluster.
type node struct {
	name, address string
	uid           types.UID
	// isLeaving is whether it is being removed, and replaced the reason for which the cluster replaces it.
	isLeaving bool
	replaced  string
	template  string
}

// machinesOf returns the Machines of a cluster, by name.
func (w *env) machinesOf(cluster subject) (nodes []node) {
	w.t.Helper()
	for _, m := range w.list(engine.Machines) {
		if m.GetNamespace() != cluster.namespace || m.GetLabels()[v1alpha1.LabelClusterName] != cluster.name {
			continue
		}
		n := node{name: m.GetName(), uid: m.GetUID(), replaced: m.GetAnnotations()[v1alpha1.AnnotationReplace]}
		n.isLeaving = m.GetDeletionTimestamp() != nil || m.GetAnnotations()[v1alpha1.AnnotationRemoving] != ""
		n.template, _, _ = unstructured.NestedString(m.Object, "spec", "template")
		if addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses"); len(addresses) > 0 {
			n.address = addresses[0]
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return nodes
}

// workers returns the Machines of the pool of a cluster that are not being removed.
func (w *env) workers(cluster subject) []node {
	w.t.Helper()
	return slices.DeleteFunc(w.machinesOf(cluster), func(n node) bool {
		return n.isLeaving || !strings.HasPrefix(n.name, cluster.name+"-pool-")
	})
}

// isUpgrading reports whether a cluster is being upgraded, or is about to be.
func (w *env) isUpgrading(s subject) bool {
	w.t.Helper()
	kc := w.get(s)
	if kc == nil {
		return false
	}
	_, upgrading, _ := unstructured.NestedMap(kc.Object, "status", "upgrade")
	observed, _, _ := unstructured.NestedInt64(kc.Object, "status", "observedGeneration")
	return upgrading || observed != kc.GetGeneration()
}

// crash crashes nodes, and keeps those down that have crashed before.
func (w *env) crash(nodes []node) {
	w.t.Helper()
	for _, n := range nodes {
		if n.address != "" {
			w.crashed[n.uid] = n.address
		}
	}
	w.keepCrashed()
}

// keepCrashed crashes the nodes that should be down. A new Machine may have the address of a deleted one.
func (w *env) keepCrashed() {
	w.t.Helper()
	uids := map[types.UID]bool{}
	for _, m := range w.list(engine.Machines) {
		uids[m.GetUID()] = true
	}
	var addresses []string
	for uid, address := range w.crashed {
		if uids[uid] {
			addresses = append(addresses, address)
		} else {
			delete(w.crashed, uid)
		}
	}
	w.e.Crash(addresses...)
}

// forgetCrashes forgets which nodes are down, because the simulators end and start all of them.
func (w *env) forgetCrashes() {
	clear(w.crashed)
	clear(w.cut)
}

// restoreNodes restores the network of the nodes of a cluster.
func (w *env) restoreNodes(s subject) {
	w.t.Helper()
	if !w.cut[s] {
		return
	}
	w.record("the nodes of %s are connected again", s)
	w.checkReplacedUnhealthy()
	delete(w.cut, s)
	for _, n := range w.machinesOf(s) {
		delete(w.crashed, n.uid)
	}
	w.keepCrashed()
}

// protect protects an object from now on.
func (w *env) protect(s subject) {
	w.t.Helper()
	w.record("protect %s", s)
	w.try("protect "+s.String(), func(ctx context.Context) error {
		obj, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, []byte(`{"spec":{"protected":true}}`), metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil // the step that creates it was removed, or its cluster has removed it
		}
		if err == nil && obj.GetDeletionTimestamp() == nil {
			w.protected[s] = obj.GetUID()
		}
		return err
	})
}

// unprotect removes the protection of an object.
func (w *env) unprotect(s subject) {
	w.t.Helper()
	if _, protected := w.protected[s]; !protected {
		return
	}
	w.record("unprotect %s", s)
	delete(w.protected, s)
	w.try("unprotect "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, []byte(`{"spec":{"protected":false}}`), metav1.PatchOptions{})
		return err
	})
}

// unprotectNodes removes the protection of the Machines of a cluster, and returns how many there were.
func (w *env) unprotectNodes(cluster subject) (n int) {
	w.t.Helper()
	for s := range w.protected {
		if s.resource == engine.Machines && s.namespace == cluster.namespace && strings.HasPrefix(s.name, cluster.name+"-") {
			w.unprotect(s)
			n++
		}
	}
	return n
}

// requireProtection attempts to delete a protected object, which the API server must refuse.
func (w *env) requireProtection(s subject) {
	w.t.Helper()
	if _, protected := w.protected[s]; !protected {
		return
	}
	w.record("delete %s, which must be refused", s)
	w.try("delete "+s.String(), func(ctx context.Context) error {
		err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Delete(ctx, s.name, metav1.DeleteOptions{})
		switch {
		case err == nil:
			w.fail(s.namespace, "%s is protected, and was deleted", s)
		case apierrors.IsInvalid(err) && strings.Contains(err.Error(), "is protected: run kubectl patch"):
			return nil
		}
		return err
	})
}

// resumeAll ends what keeps clusters from becoming as planned: pauses, protected nodes, cut networks.
func (w *env) resumeAll() {
	w.t.Helper()
	for _, s := range w.order {
		if s.resource != engine.KubernetesClusters {
			continue
		}
		w.unprotectNodes(s)
		w.restoreNodes(s)
		if to, lives := w.living[s]; lives {
			w.patch(s, to, `{"spec":{"upgrade":{"paused":false}}}`)
		}
	}
}

// poolState is what is known of the pool of a cluster from earlier checks.
type poolState struct {
	// floor is the number of workers that the pool has reached, and away how many of them may be away.
	floor, away int
	// replaced are the Machines that the health check replaces.
	replaced map[types.UID]bool
}

// checkDayTwo checks what the stack must never do to a running cluster or a protected object by itself.
func (w *env) checkDayTwo() {
	w.t.Helper()
	for s, uid := range w.protected {
		if obj := w.get(s); obj == nil || obj.GetUID() != uid || obj.GetDeletionTimestamp() != nil {
			w.fail(s.namespace, "%s is protected, and is deleted", s)
		}
	}
	w.checkPools()
	w.checkReplacedUnhealthy()
	w.checkQuorum()
}

// checkPools checks that at most maxUnavailable of the workers of each pool are away because of a removal. A machine with an
// unhealthy node was away before.
func (w *env) checkPools() {
	w.t.Helper()
	for s, to := range w.living {
		if s.resource != engine.KubernetesClusters || to.phase == "" {
			continue // of a wrong spec, the stack creates nothing
		}
		state := w.pools[s]
		if state == nil {
			state = &poolState{replaced: map[types.UID]bool{}}
			w.pools[s] = state
		}
		if !w.isUpgrading(s) { // it follows the present limits
			state.away = to.pool.away
		}
		state.away = max(state.away, to.pool.away)
		staying := 0
		for _, n := range w.machinesOf(s) {
			if strings.HasPrefix(n.name, s.name+"-pool-") && (!n.isLeaving || n.replaced == string(v1alpha1.ReplaceUnhealthy)) {
				staying++
			}
		}
		state.floor = min(to.pool.workers, max(state.floor, staying))
		if staying < state.floor-state.away {
			w.fail(s.namespace, "%s keeps %d of %d workers, and %d may be away: %+v", s, staying, state.floor, state.away, w.machinesOf(s))
		}
	}
}

// checkReplacedUnhealthy checks that the health check replaces one machine of a pool at a time, and none whose whole network is cut.
func (w *env) checkReplacedUnhealthy() {
	w.t.Helper()
	for s, state := range w.pools {
		now := map[types.UID]bool{}
		for _, n := range w.machinesOf(s) {
			if n.replaced != string(v1alpha1.ReplaceUnhealthy) {
				continue
			}
			now[n.uid] = true
			if w.cut[s] && !state.replaced[n.uid] {
				w.fail(s.namespace, "%s replaces %s, although the network of all workers is cut", s, n.name)
			}
		}
		if len(now) > 1 {
			w.fail(s.namespace, "%s replaces %d unhealthy machines at the same time: %+v", s, len(now), w.machinesOf(s))
		}
		state.replaced = now
	}
}

// checkQuorum checks that a majority of the voting members of each etcd have their disks. Only the stack deletes disks.
func (w *env) checkQuorum() {
	w.t.Helper()
	const attempts = 5 // a member may leave between two reads
	namespace, why := w.lostQuorum()
	for range attempts {
		if why == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
		namespace, why = w.lostQuorum()
	}
	if why != "" {
		w.fail(namespace, "%s", why)
	}
}

// lostQuorum returns an etcd whose voting members have lost the majority of their disks.
func (w *env) lostQuorum() (namespace, why string) {
	w.t.Helper()
	clusters := w.talosClusters()
	disks := w.etcdDisks()
	for s, to := range w.living {
		if s.resource != engine.KubernetesClusters || to.phase == "" {
			continue
		}
		for _, c := range clusters {
			voters, lost := 0, []string{}
			ours := false
			for _, m := range c.Etcd.Members {
				ours = ours || strings.HasPrefix(m.Name, s.name+"-cp-")
				if m.Learner {
					continue
				}
				voters++
				if !disks[m.ID] {
					lost = append(lost, m.Name)
				}
			}
			if ours && len(lost) > (voters-1)/2 {
				return s.namespace, fmt.Sprintf("the disks of %v are deleted, and %s has %d voting members of etcd", lost, s, voters)
			}
		}
	}
	return "", ""
}

// etcdDisks returns the members of etcd whose data is on a disk.
func (w *env) etcdDisks() map[uint64]bool {
	w.t.Helper()
	paths, err := filepath.Glob(w.simState("talos", "machines", "*.json"))
	if err != nil {
		w.t.Fatal(err)
	}
	disks := map[uint64]bool{}
	for _, path := range paths {
		var r struct{ Etcd *struct{ Member uint64 } }
		if w.read(path, &r); r.Etcd != nil {
			disks[r.Etcd.Member] = true
		}
	}
	return disks
}

// differentWorkers returns how the workers of a cluster differ from its pool, or the size of its control planes from the
// wanted one, or an empty string.
func (w *env) differentWorkers(s subject, pool wantedPool) string {
	w.t.Helper()
	workers := w.workers(s)
	if len(workers) != pool.workers {
		return fmt.Sprintf("has %d workers, want %d", len(workers), pool.workers)
	}
	for _, n := range workers {
		if n.template != pool.size {
			return fmt.Sprintf("has worker %s of size %s, want %s", n.name, n.template, pool.size)
		}
	}
	for _, n := range w.machinesOf(s) {
		if isControl := strings.HasPrefix(n.name, s.name+"-cp-"); isControl && pool.controlSize != "" && n.template != pool.controlSize {
			return fmt.Sprintf("has control plane %s of size %s, want %s", n.name, n.template, pool.controlSize)
		}
	}
	return ""
}

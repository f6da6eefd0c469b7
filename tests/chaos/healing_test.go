package chaos

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
)

// shop is a cluster whose health checks include the control plane.
var shop = subject{engine.KubernetesClusters, "chaos-a", "shop"}

// TestDayTwoSuffers replaces machines of a cluster, lets nodes die, and cuts their network, while events are lost, duplicated and
// reordered, and functions are killed. What has to be replaced is, and nothing else.
func TestDayTwoSuffers(t *testing.T) {
	t.Parallel()
	w := newEnv(t, settings{seed: 3}, []string{"bootstrap-talos"}, "--config", "NODE_PROBE_INTERVAL=1s")
	w.n.SetFaults(EventFaults{Drop: 0.2, Duplicate: 1, Delay: 300 * time.Millisecond})
	stop := killFunctions(t, w.e, w.settings.seed)
	defer stop()
	w.e.CreateNamespace("chaos-a")
	w.create(subject{engine.NetworkNamespaces, "chaos-a", "network"}, want{phase: "Ready"}, map[string]any{
		"apiVersion": "vitistack.io/v1alpha2", "kind": "NetworkNamespace", "spec": networkSpec("chaos-a", w.base()),
	})
	b := &plannedObject{subject: shop, want: want{phase: "Running"}, minor: 33, controls: 3, surge: 1, controlHealthCheck: true, pool: wantedPool{workers: 3, size: "small"}}
	w.create(shop, b.wanted(), map[string]any{"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "spec": clusterSpec(b, 1)})
	w.awaitPlanned()

	w.pauseDuringReplacement(b)
	w.dies("-pool-")
	w.dies("-cp-")
	w.cutWorkers()

	stop()
	w.converge()
	w.checkOwners()
	w.deleteAll()
}

// awaitPlanned waits until every object is as planned.
func (w *env) awaitPlanned() {
	w.t.Helper()
	w.until(calmFor, 100*time.Millisecond, w.unreconciled)
}

// pauseDuringReplacement changes the size of the workers, pauses after the first replacement has begun, and resumes later.
func (w *env) pauseDuringReplacement(b *plannedObject) {
	w.t.Helper()
	before := w.uidsOf(shop)
	b.pool.size = "medium"
	w.patch(shop, b.wanted(), b.topologyPatch())
	w.until(calmFor, 20*time.Millisecond, func() (string, string) {
		w.checkInvariants()
		if slices.ContainsFunc(w.machinesOf(shop), func(n node) bool { return n.replaced != "" }) {
			return "", ""
		}
		return shop.namespace, "no machine is replaced"
	})
	w.patch(shop, b.wanted(), `{"spec":{"upgrade":{"paused":true}}}`)
	w.awaitCondition("MachinesCurrent", "spec.upgrade.paused is true")
	// A machine whose replacement has begun may still leave.
	w.until(calmFor, 100*time.Millisecond, func() (string, string) {
		w.checkInvariants()
		if n := len(w.machinesOf(shop)); n != 6 {
			return shop.namespace, fmt.Sprintf("%d machines", n)
		}
		return "", ""
	})
	w.holds5s(func() bool { return len(common(before, w.uidsOf(shop))) >= 4 }, "all workers were replaced while replacements are paused")
	w.patch(shop, b.wanted(), `{"spec":{"upgrade":{"paused":false}}}`)
	w.awaitPlanned()
	if kept := common(before, w.uidsOf(shop)); len(kept) != 3 {
		w.fail(shop.namespace, "%d of the machines before the change are left, want the control planes", len(kept))
	}
}

// dies crashes a node for good, and lets time pass. The health check replaces its machine, and no other.
func (w *env) dies(group string) {
	w.t.Helper()
	before := w.uidsOf(shop)
	nodes := w.machinesOf(shop)
	victim := nodes[slices.IndexFunc(nodes, func(n node) bool { return strings.Contains(n.name, group) })]
	w.record("node %s dies", victim.name)
	w.crash([]node{victim})
	w.awaitCondition("MachinesHealthy", "a machine is replaced after 1m0s without a Ready node")
	w.clocks.Set("bootstrap-talos", 4*time.Minute)
	w.until(calmFor, 100*time.Millisecond, func() (string, string) {
		w.checkInvariants()
		if slices.Contains(w.uidsOf(shop), victim.uid) {
			return shop.namespace, victim.name + " is left"
		}
		return "", ""
	})
	w.awaitPlanned()
	w.clocks.Reset()
	if kept := common(before, w.uidsOf(shop)); len(kept) != len(before)-1 {
		w.fail(shop.namespace, "%d of %d machines are left, want all but %s", len(kept), len(before), victim.name)
	}
}

// cutWorkers cuts the network of all workers, and lets an hour pass. No machine is replaced.
func (w *env) cutWorkers() {
	w.t.Helper()
	before := w.uidsOf(shop)
	w.cut[shop] = true
	w.crash(w.workers(shop))
	w.awaitCondition("NodesReady", "3 of 6 nodes") // a node that fails an hour before the others is replaced
	w.clocks.Set("bootstrap-talos", time.Hour)
	w.awaitCondition("MachinesHealthy", "3 are unhealthy, which is more than 1 (healthCheck.maxUnhealthy)")
	w.holds5s(func() bool { return slices.Equal(before, w.uidsOf(shop)) }, "a machine is replaced while the network is cut")
	w.clocks.Reset()
	w.restoreNodes(shop)
	w.awaitPlanned()
	if after := w.uidsOf(shop); !slices.Equal(before, after) {
		w.fail(shop.namespace, "the machines were %v, and are %v", before, after)
	}
}

// holds5s checks something for five seconds.
func (w *env) holds5s(holds func() bool, otherwise string) {
	w.t.Helper()
	for since := time.Now(); time.Since(since) < 5*time.Second; time.Sleep(100 * time.Millisecond) {
		w.checkInvariants()
		if !holds() {
			w.fail(shop.namespace, "%s: %+v", otherwise, w.machinesOf(shop))
		}
	}
}

// awaitCondition waits until a condition of the cluster is False with a text in its message.
func (w *env) awaitCondition(name, text string) {
	w.t.Helper()
	w.until(calmFor, 100*time.Millisecond, func() (string, string) {
		w.checkInvariants()
		conditions, _, _ := unstructured.NestedSlice(w.get(shop).Object, "status", "conditions")
		for _, c := range conditions {
			c := c.(map[string]any)
			if c["type"] == name && c["status"] == "False" && strings.Contains(fmt.Sprint(c["message"]), text) {
				return "", ""
			}
		}
		return shop.namespace, fmt.Sprintf("%s does not say %q: %v", name, text, conditions)
	})
}

// uidsOf returns the UIDs of the Machines of a cluster, sorted.
func (w *env) uidsOf(cluster subject) (uids []types.UID) {
	w.t.Helper()
	for _, n := range w.machinesOf(cluster) {
		uids = append(uids, n.uid)
	}
	slices.Sort(uids)
	return uids
}

// common returns what is in both.
func common(a, b []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(a), func(uid types.UID) bool { return !slices.Contains(b, uid) })
}

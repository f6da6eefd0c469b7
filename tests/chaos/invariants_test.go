package chaos

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// checkInvariants checks the invariants of every moment.
func (w *env) checkInvariants() {
	w.t.Helper()
	holders := map[string]string{}
	for _, a := range w.list(engine.IPAllocations) {
		address, _, _ := unstructured.NestedString(a.Object, "status", "address")
		if phaseOf(&a) == "Allocated" && address != "" {
			w.holds(holders, address, a.GetNamespace(), a.GetName())
		}
	}
	for _, nc := range w.list(engine.NetworkConfigurations) {
		interfaces, _, _ := unstructured.NestedSlice(nc.Object, "status", "networkInterfaces")
		for _, one := range interfaces {
			if reserved, _, _ := unstructured.NestedBool(one.(map[string]any), "dhcpReserved"); !reserved {
				continue
			}
			addresses, _, _ := unstructured.NestedStringSlice(one.(map[string]any), "ipv4Addresses")
			for _, address := range addresses {
				w.holds(holders, address, nc.GetNamespace(), nc.GetName())
			}
		}
	}
	machines := map[string]string{}
	for _, vm := range w.list(engine.VirtualMachines) {
		for _, owner := range vm.GetOwnerReferences() {
			w.oneEach(machines, string(owner.UID), vm.GetNamespace(), vm.GetName())
		}
	}
	for _, vm := range w.proxmox().Machines {
		if !vm.unborn() {
			w.oneEach(machines, vm.uid(), "", fmt.Sprint(vm.ID))
		}
	}
	w.checkClusters()
	w.checkDayTwo()
	w.checkSegments()
	w.checkLimits()
	for _, kind := range reported {
		for _, obj := range w.list(kind) {
			if why := untrue(&obj); why != "" {
				w.fail(obj.GetNamespace(), "%s %s/%s %s", kind.Resource, obj.GetNamespace(), obj.GetName(), why)
			}
		}
	}
}

// checkSegments checks that no two networks have overlapping prefixes on a VLAN, and that no two
// interfaces or machines have the same address on a VLAN, in any namespaces.
func (w *env) checkSegments() {
	w.t.Helper()
	type segment struct {
		vlan   int64
		prefix netip.Prefix
		of     string
	}
	var segments []segment
	for _, nn := range w.list(engine.NetworkNamespaces) {
		if phase := phaseOf(&nn); phase != "Ready" && phase != "Deleting" {
			continue
		}
		vlan, _, _ := unstructured.NestedInt64(nn.Object, "status", "vlanId")
		for _, field := range []string{"ipv4Prefix", "ipv6Prefix"} {
			text, _, _ := unstructured.NestedString(nn.Object, "status", field)
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			for _, other := range segments {
				if other.vlan == vlan && other.prefix.Overlaps(prefix) {
					w.fail(nn.GetNamespace(), "%s of %s/%s and %s of %s overlap on VLAN %d", prefix, nn.GetNamespace(), nn.GetName(), other.prefix, other.of, vlan)
				}
			}
			segments = append(segments, segment{vlan, prefix, nn.GetNamespace() + "/" + nn.GetName()})
		}
	}
	interfaces, machines := map[string]string{}, map[string]string{}
	for _, nc := range w.list(engine.NetworkConfigurations) {
		all, _, _ := unstructured.NestedSlice(nc.Object, "status", "networkInterfaces")
		for _, one := range all {
			vlan, _, _ := unstructured.NestedString(one.(map[string]any), "vlan")
			name, _, _ := unstructured.NestedString(one.(map[string]any), "name")
			for _, field := range []string{"ipv4Addresses", "ipv6Addresses"} {
				addresses, _, _ := unstructured.NestedStringSlice(one.(map[string]any), field)
				for _, address := range addresses {
					w.holds(interfaces, address+" on VLAN "+vlan, nc.GetNamespace(), nc.GetName()+" "+name)
				}
			}
		}
	}
	for _, m := range w.list(engine.Machines) {
		addresses, _, _ := unstructured.NestedStringSlice(m.Object, "status", "ipAddresses")
		for _, address := range addresses {
			if m.GetDeletionTimestamp() == nil {
				w.holds(machines, address, m.GetNamespace(), m.GetName())
			}
		}
	}
}

func (w *env) holds(holders map[string]string, address, namespace, name string) {
	w.t.Helper()
	holder := namespace + "/" + name
	if other, taken := holders[address]; taken {
		w.fail(namespace, "%s was allocated to %s and to %s", address, other, holder)
	}
	holders[address] = holder
}

func (w *env) oneEach(machines map[string]string, owner, namespace, name string) {
	w.t.Helper()
	if other, taken := machines[owner]; taken {
		w.fail(namespace, "the Machine with UID %s has the virtual machines %s and %s", owner, other, name)
	}
	machines[owner] = name
}

// checkClusters checks that a cluster keeps its keys, and that its etcd is bootstrapped once.
func (w *env) checkClusters() {
	w.t.Helper()
	for _, secret := range w.list(engine.Secrets) {
		for _, owner := range secret.GetOwnerReferences() {
			if !strings.HasSuffix(secret.GetName(), "-talos-secrets") {
				continue
			}
			if first, ok := w.keys[string(owner.UID)]; ok && first != string(secret.GetUID()) {
				w.fail(secret.GetNamespace(), "the keys of cluster %s were created twice", owner.Name)
			}
			w.keys[string(owner.UID)] = string(secret.GetUID())
		}
	}
	for _, c := range w.talosClusters() {
		if first, ok := w.etcds[c.Key]; ok && first != c.Etcd.ID {
			w.fail("", "the etcd of the cluster with the authority %s was bootstrapped twice", c.Key)
		}
		w.etcds[c.Key] = c.Etcd.ID
	}
	if log, err := os.ReadFile(filepath.Join(w.e.Dir, "logs", "sim.log")); err == nil && bytes.Contains(log, []byte("a real node would have split the cluster")) {
		w.fail("", "a second control plane was bootstrapped")
	}
}

// reported are the kinds with conditions.
var reported = []schema.GroupVersionResource{
	engine.NetworkNamespaces, engine.IPAllocations, engine.NetworkConfigurations, engine.Machines, engine.KubernetesClusters, engine.EtcdBackups,
}

// final are the phases of objects that are Ready.
var final = []string{"Ready", "Allocated", "Running", "Scheduled", "Completed"}

// untrue returns what is contradictory in an object's status, or an empty string.
func untrue(obj *unstructured.Unstructured) string {
	status, _, _ := unstructured.NestedMap(obj.Object, "status")
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		if c["type"] != "Ready" {
			continue
		}
		text, _ := json.Marshal(c)
		switch {
		case c["reason"] == "" || c["message"] == "" && c["status"] != "True":
			return "gives no reason: " + string(text)
		case c["status"] == "True" && !slices.Contains(final, phaseOf(obj)) && (c["reason"] != "Stopped" || phaseOf(obj) != "Stopped"):
			return "is " + phaseOf(obj) + " and says: " + string(text)
		}
		return ""
	}
	if observed := status["observedGeneration"]; observed != nil && observed != int64(-1) { // -1 is that of a new object
		text, _ := json.Marshal(status)
		return "was reconciled, and has no condition Ready: " + string(text)
	}
	return ""
}

// calmFor bounds the time to converge. If clocks were wrong, a recorded next check may be minutes
// away.
const calmFor = 8 * time.Minute

// converge ends all faults, and waits until every object is as planned.
func (w *env) converge() {
	w.t.Helper()
	w.record("calm")
	w.n.SetFaults(EventFaults{})
	w.api.SetFaults(RequestFaults{})
	for _, name := range simulators {
		w.e.SetFaults(name, "[]")
	}
	if w.clocks != nil {
		w.clocks.Reset()
	}
	w.resumeAll()
	w.until(calmFor, 200*time.Millisecond, w.unreconciled)
}

// unreconciled returns an object that is not as planned yet.
func (w *env) unreconciled() (namespace, why string) {
	w.t.Helper()
	w.checkInvariants()
	for _, s := range w.order {
		if to, lives := w.living[s]; lives {
			why := differs(w.get(s), to)
			if why == "" && s.resource == engine.KubernetesClusters && to.phase != "" {
				why = w.differentWorkers(s, to.pool)
			}
			if why != "" {
				return s.namespace, s.String() + " " + why
			}
		}
	}
	return "", ""
}

// differs returns how an object differs from its plan, or an empty string. obj is nil if it does not
// exist.
func differs(obj *unstructured.Unstructured, to want) string {
	if obj == nil {
		return "is gone"
	}
	found := want{phase: phaseOf(obj), pool: to.pool}
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	if to.reason != "" {
		found = want{reason: reasonOf(conditions), pool: to.pool}
	}
	late := ""
	if observed, ok, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration"); ok && observed != obj.GetGeneration() {
		late = fmt.Sprintf(" of generation %d, not %d", observed, obj.GetGeneration())
	}
	if found == to && late == "" {
		return ""
	}
	text, _ := json.MarshalIndent(conditions, "  ", "  ")
	return fmt.Sprintf("is %q%s, not %q:\n  %s", found.phase+found.reason, late, to.phase+to.reason, text)
}

// reasonOf returns why an object is not Ready.
func reasonOf(conditions []any) string {
	for _, one := range conditions {
		if c, _ := one.(map[string]any); c["type"] == "Ready" && c["status"] == "False" {
			reason, _ := c["reason"].(string)
			return reason
		}
	}
	return ""
}

// checkOwners waits until exactly one child of each object exists, and no other.
func (w *env) checkOwners() {
	w.t.Helper()
	w.until(calmFor, time.Second, func() (namespace, why string) {
		if why := w.orphan(); why != "" {
			return "", why
		}
		return "", w.backendMismatch()
	})
}

// orphan returns a child without its owner, or an owner without its child.
func (w *env) orphan() string {
	w.t.Helper()
	uids := map[types.UID]bool{}
	for _, kind := range []schema.GroupVersionResource{engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.NetworkNamespaces, engine.IPAllocations} {
		for _, obj := range w.list(kind) {
			uids[obj.GetUID()] = true
		}
	}
	made := []schema.GroupVersionResource{engine.VirtualMachines, engine.Claims, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations, engine.Secrets, engine.ConfigMaps}
	for _, kind := range made {
		for _, obj := range w.list(kind) {
			for _, owner := range obj.GetOwnerReferences() {
				if strings.HasPrefix(owner.APIVersion, "vitistack.io/") && !uids[owner.UID] {
					return fmt.Sprintf("%s %s/%s exists, but its owner %s %s is deleted", kind.Resource, obj.GetNamespace(), obj.GetName(), owner.Kind, owner.Name)
				}
			}
		}
	}
	return ""
}

// checkIdle checks that an idle system writes nothing but its heartbeats.
func (w *env) checkIdle() {
	w.t.Helper()
	feed.Until(w.t, "no function writes", func() (bool, string) {
		since := time.Now()
		time.Sleep(4 * time.Second)
		writes := ""
		for _, r := range w.e.Requests(since) {
			if r.Writes() && r.Function() != "" && !r.Heartbeat() {
				writes += fmt.Sprintf("%s %s %s %s; ", r.Function(), r.Verb, r.ObjectRef.Resource, r.ObjectRef.Name)
			}
		}
		return writes == "", writes
	})
}

// deleteAll deletes the remaining objects, networks and their users in any order, and checks that nothing
// of them is left.
func (w *env) deleteAll() {
	w.t.Helper()
	for _, s := range w.order {
		if _, lives := w.living[s]; lives {
			w.remove(s)
		}
	}
	for _, namespace := range append(slices.Clone(namespaces), "chaos-spare") {
		empty(w.t, w.e, namespace)
	}
	w.until(calmFor, time.Second, func() (namespace, why string) {
		if left := w.list(engine.NetworkNamespaces); len(left) > 0 {
			return "", fmt.Sprintf("%d networks are left, such as %s", len(left), left[0].GetName())
		}
		return "", w.backendMismatch()
	})
}

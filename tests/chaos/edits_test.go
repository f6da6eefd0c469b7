package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
)

// Edits of Ready networks that must be rejected: of every field that machines would not follow, and
// invalid values.
var wrongNetworkEdits = []string{
	`{"spec":{"networkProvisioning":{"manual":{"ipv4CIDR":"10.99.0.0/24","ipv4Gateway":"10.99.0.1"}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"ipv4CIDR":"10.99.0.7/24"}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"ipv4CIDR":"10.99.0.1/32"}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"ipv6CIDR":"2001:db8:99::/64"}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"ipv4Gateway":"10.99.0.1"}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"vlanId":99}}}}`,
	`{"spec":{"networkProvisioning":{"manual":{"vlanId":4095}}}}`,
	`{"spec":{"networkProvisioning":{"provider":"elsewhere","manual":null}}}`,
	`{"spec":{"networkProvisioning":null}}`,
	`{"spec":{"datacenterIdentifier":"no-east-az1"}}`,
	`{"spec":{"ipAllocation":null,"datacenterIdentifier":"no-east-az1"}}`,
	`{"spec":{"ipAllocation":{"provider":"infoblox"}}}`,
	`{"spec":{"ipAllocation":{"static":{"ipv4RangeStart":"10.99.0.9","ipv4RangeEnd":"10.99.0.5"}}}}`,
	`{"spec":{"ipAllocation":{"static":{"ipv4Gateway":"10.99.0.1","ipv4CIDR":"10.98.0.0/24"}}}}`,
	`{"spec":{"ipAllocation":{"static":{"excludedAddresses":["ten"]}}}}`,
}

// editNetwork makes an edit that must be rejected, in a network that machines use. A network that is
// not Ready is unchanged, because every field may be edited there.
func editNetwork(a *generator) func(*env) {
	s, merge := subject{engine.NetworkNamespaces, a.of(namespaces...), "network"}, a.of(wrongNetworkEdits...)
	return func(w *env) {
		if nn := w.get(s); nn != nil && phaseOf(nn) == "Ready" {
			w.requireRejection(s, merge)
		}
	}
}

// tuneNetwork makes an edit that is permitted in any network.
func tuneNetwork(a *generator) func(*env) {
	namespace := a.of("chaos-a", "chaos-b", "chaos-c", "chaos-e")
	tail := 100 + a.random.IntN(20)
	all := []string{
		fmt.Sprintf(`{"spec":{"supervisorIdentifier":"team-%d"}}`, tail),
		fmt.Sprintf(`{"spec":{"ipAllocation":{"static":{"dns":["192.0.2.%d"]}}}}`, tail),
		fmt.Sprintf(`{"spec":{"ipAllocation":{"static":{"excludedAddresses":["192.0.2.%d"]}}}}`, tail),
		`{"spec":{"ipAllocation":{"static":{"excludedAddresses":null}}}}`,
	}
	s, merge := subject{engine.NetworkNamespaces, namespace, "network"}, a.of(all...)
	return func(w *env) { w.patch(s, want{phase: "Ready"}, merge) }
}

// newRival creates a network whose segment is part of one that machines use. It becomes Ready with
// another VLAN.
func newRival(a *generator) func(*env) {
	if a.count(engine.NetworkNamespaces) >= 4 {
		return nil
	}
	b := a.named(engine.NetworkNamespaces, "chaos-spare", "rival", want{reason: "SegmentOverlap"})
	i := a.random.IntN(len(reached))
	number := 1000 + a.next
	spec := map[string]any{"ipAllocation": map[string]any{"type": "static"}, "datacenterIdentifier": a.of("no-west-az1", "no-east-az1")}
	b.fix = fmt.Sprintf(`{"spec":{"networkProvisioning":{"manual":{"vlanId":%d}}}}`, number)
	do := a.create(b, "NetworkNamespace", "v1alpha2", spec)
	return func(w *env) {
		spec["networkProvisioning"] = map[string]any{"provider": "manual", "manual": map[string]any{
			"ipv4CIDR": fmt.Sprintf("%s.%d/26", w.base(), 128*i), "vlanId": 100 + i,
		}}
		do(w)
	}
}

// wrongEdits are edits of other kinds that must always be rejected.
var wrongEdits = []struct {
	of    func(a *generator) *plannedObject
	merge string
}{
	{machineOf, `{"spec":{"powerState":"Off"}}`},
	{machineOf, `{"spec":{"resources":{"cpu":{"cores":0}}}}`},
	{machineOf, `{"spec":{"networks":[{"name":"eth0","networkName":"x","macAddress":"00:00:00:00:00:00"}]}}`},
	{machineOf, `{"spec":{"disks":[{"name":"root","size":"none"}]}}`},
	{clusterOf, `{"spec":{"networking":{"podCIDR":"ten"}}}`},
	{clusterOf, `{"spec":{"networkNamespaceName":"elsewhere","topology":{"controlplane":{"replicas":-1}}}}`},
	{reservationOf, `{"spec":{"requestedAddress":"10.99.0.9"}}`},
	{reservationOf, `{"spec":{"networkNamespaceName":"elsewhere"}}`},
}

func machineOf(a *generator) *plannedObject     { return a.pick(engine.Machines, nil) }
func clusterOf(a *generator) *plannedObject     { return a.pick(engine.KubernetesClusters, nil) }
func reservationOf(a *generator) *plannedObject { return a.pick(engine.IPAllocations, nil) }

func wrongEdit(a *generator) func(*env) {
	edit := wrongEdits[a.random.IntN(len(wrongEdits))]
	b := edit.of(a)
	if b == nil {
		return nil
	}
	s := b.subject
	return func(w *env) { w.requireRejection(s, edit.merge) }
}

// editConfiguration edits the NetworkConfiguration of a machine, and reverts that a moment later.
func editConfiguration(a *generator) func(*env) {
	b := a.pick(engine.Machines, right)
	if b == nil {
		return nil
	}
	s := subject{engine.NetworkConfigurations, b.namespace, b.name}
	pause := time.Duration(a.random.IntN(2000)) * time.Millisecond
	edit := a.of("vlan", "description", "address", "mac", "interface")
	return func(w *env) {
		nc := w.get(s)
		if nc == nil || nc.GetDeletionTimestamp() != nil {
			return
		}
		was, _, _ := unstructured.NestedSlice(nc.Object, "spec", "networkInterfaces")
		changed := map[string]any{}
		switch edit {
		case "vlan":
			changed["vlan"] = 4000
		case "description":
			changed["description"] = "edited"
		case "interface":
			changed["networkInterfaces"] = []any{}
		default:
			one := map[string]any{"name": "eth0", "macAddress": "02:00:00:00:99:99"}
			if edit == "address" {
				one = map[string]any{"name": "eth0", "macAddress": macIn(was), "ipv4Addresses": []any{w.base() + ".99"}}
			}
			changed["networkInterfaces"] = []any{one}
		}
		back := map[string]any{"vlan": nil, "description": nil, "networkInterfaces": was}
		w.edit(s, changed)
		time.Sleep(pause)
		w.checkInvariants()
		w.edit(s, back)
	}
}

func macIn(interfaces []any) string {
	for _, one := range interfaces {
		mac, _, _ := unstructured.NestedString(one.(map[string]any), "macAddress")
		return mac
	}
	return "02:00:00:00:99:98"
}

// newReservation creates an IPAllocation, as a user may.
func newReservation(a *generator) func(*env) {
	if a.count(engine.IPAllocations) >= 4 {
		return nil
	}
	b := a.named(engine.IPAllocations, a.of(reached...), "reserved", want{phase: "Allocated"})
	return a.create(b, "IPAllocation", "v1alpha2", map[string]any{"networkNamespaceName": "network"})
}

func deleteReservation(a *generator) func(*env) {
	return deleteOne(a, a.pick(engine.IPAllocations, nil))
}

// requireRejection makes an edit that the API server must reject.
func (w *env) requireRejection(s subject, merge string) {
	w.t.Helper()
	w.record("patch %s %s, which must be rejected", s, merge)
	w.try("patch "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
		switch {
		case err == nil:
			w.fail(s.namespace, "%s was accepted: %s", s, merge)
		case apierrors.IsInvalid(err), apierrors.IsNotFound(err):
			return nil
		}
		return err
	})
}

// edit changes a spec if the object still exists.
func (w *env) edit(s subject, spec map[string]any) {
	w.t.Helper()
	merge, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		w.t.Fatal(err)
	}
	w.record("patch %s %s", s, merge)
	w.try("patch "+s.String(), func(ctx context.Context) error {
		_, err := w.e.Client.Resource(s.resource).Namespace(s.namespace).Patch(ctx, s.name, types.MergePatchType, merge, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

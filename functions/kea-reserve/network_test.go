package main

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestRetire deletes a network whose subnet this function created.
func TestRetire(t *testing.T) {
	onEach(t, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.78.0.0/24"}}}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		keep := func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = []string{v1alpha1.FinalizerNetworkNamespace} }
		networks := []*v1alpha2.NetworkNamespace{w.network("made", "10.77.0.0/24", keep), w.network("found", "10.78.0.0/24", keep)}
		for i, nn := range networks {
			w.configuration(nn.Name, []string{[]string{macA, macB}[i]}, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkNamespaceName = nn.Name })
			w.reconcile(nn.Name)
			w.must(w.kube.Delete(t.Context(), nn))
			w.must(w.deliver("NetworkNamespace", nn.Name, events.TypeRefUpdate))
		}
		if got := len(subnetsOf(t, b)); got != 2 {
			t.Errorf("a subnet was deleted while it was in use: %d are left", got)
		}
		for _, nn := range networks {
			w.delete(nn.Name)
			w.must(w.deliver("NetworkConfiguration", nn.Name, events.TypeRefUpdate))
		}
		b.Restart(t)
		if diff := cmp.Diff(map[uint32]string{7: "10.78.0.0/24"}, subnetsOf(t, b)); diff != "" {
			t.Errorf("subnets after the deletion of the networks (-want +got):\n%s", diff)
		}
	})
}

// TestSubnetOfDeletedNetwork deletes a network before its last reservation is released, as happens while the function is scaled
// to zero.
func TestSubnetOfDeletedNetwork(t *testing.T) {
	onEach(t, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.78.0.0/24"}}}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: v1alpha1.ConfigMapOrphans}}))
		nn := w.network("gone", "10.77.0.0/24", nil)
		w.network("kept", "10.79.0.0/24", nil)
		for name, mac := range map[string]string{"gone": macA, "kept": macB} {
			w.configuration(name, []string{mac}, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkNamespaceName = name })
			w.reconcile(name)
		}
		w.must(w.kube.Delete(t.Context(), nn))
		w.orphans()
		if got := subnetsOf(t, b); len(got) != 3 {
			t.Errorf("a subnet with a reservation, or of an existing network, was removed: %v are left", got)
		}
		for _, name := range []string{"gone", "kept"} {
			w.delete(name)
			w.must(w.deliver("NetworkConfiguration", name, events.TypeRefUpdate))
		}
		w.f = w.function([]string{b.URL()}, "KEA_SHARED=true")
		w.orphans()
		if got := subnetsOf(t, b); len(got) != 3 {
			t.Errorf("the mark does not say which of several installations created a subnet: %v are left", got)
		}
		w.f = w.function([]string{b.URL()})
		w.orphans()
		b.Restart(t)
		if diff := cmp.Diff([]string{"10.78.0.0/24", "10.79.0.0/24"}, slices.Sorted(maps.Values(subnetsOf(t, b)))); diff != "" {
			t.Errorf("subnets after the check for orphans (-want +got):\n%s", diff)
		}
	})
}

// TestLostReservations resets a server to its state before any reservation, as the restore of a backup
// does. Then resync reconciles the network.
func TestLostReservations(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		command := func(name string, arguments, into any) {
			t.Helper()
			if result, err := b.Command(t.Context(), name, arguments, into); result != 0 || err != nil {
				t.Fatalf("%s: result %d, %v", name, result, err)
			}
		}
		var backup struct{ Dhcp4 map[string]any }
		command("config-get", nil, &backup)
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("vm", []string{macA, macB}, nil)
		w.reconcile("vm")
		want := hosts(t, b)
		command("config-set", map[string]any{"Dhcp4": backup.Dhcp4}, nil)

		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		if sent := w.sentNames(t); len(sent) > 0 {
			t.Errorf("an event about the network caused a check of Kea: %v", sent)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
		if diff := cmp.Diff([]string{"NetworkConfiguration vm"}, w.sentNames(t)); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
		if diff := cmp.Diff(want, hosts(t, b)); diff != "" {
			t.Errorf("reservations after they were lost (-want +got):\n%s", diff)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
		if sent := w.sentNames(t); len(sent) > 0 {
			t.Errorf("no reservation is lost, but %v are requeued", sent)
		}
	})
}

// TestCleanup deletes a NetworkConfiguration without its reservation.
func TestCleanup(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("lost", []string{macA}, nil)
		w.configuration("vm", []string{macB}, nil)
		lost, kept := w.reconcile("lost"), addressOf(t, w.reconcile("vm"), 0)
		before := lost.DeepCopy()
		lost.Finalizers = nil
		_, err := w.kube.Patch(t.Context(), before, lost)
		w.must(err)
		w.delete("lost")
		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		if got := len(hosts(t, b)); got != 2 {
			t.Errorf("an event about the network removed a reservation: %d are left", got)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
		if diff := cmp.Diff(map[string]string{macB: kept}, hosts(t, b)); diff != "" {
			t.Errorf("after the cleanup (-want +got):\n%s", diff)
		}

		w.configuration("lost", []string{macA}, nil)
		if got := addressOf(t, w.reconcile("lost"), 0); hosts(t, b)[macA] != got {
			t.Errorf("a successor of the same name has %s, and Kea %v", got, hosts(t, b))
		}
	})
}

// TestOrphanRuns has a virtual machine run whose NetworkConfiguration does not exist, as after etcd was restored to an earlier time. Its
// address is given to no other machine until its lease has expired.
func TestOrphanRuns(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("runs", []string{macA}, nil)
		nc := w.reconcile("runs")
		address := addressOf(t, nc, 0)
		if offer, err := b.Lease(t.Context(), macA, netip.MustParseAddr("10.77.0.1")); err != nil || offer.Address.String() != address {
			t.Fatalf("DHCP gives %+v, %v", offer, err)
		}
		before := nc.DeepCopy()
		nc.Finalizers = nil
		_, err := w.kube.Patch(t.Context(), before, nc)
		w.must(err)
		w.delete("runs")
		for range 2 {
			w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
			if diff := cmp.Diff(map[string]string{macA: address}, hosts(t, b)); diff != "" {
				t.Errorf("while it runs (-want +got):\n%s", diff)
			}
		}
		if _, err := b.Command(t.Context(), "lease4-del", map[string]any{"ip-address": address}, nil); err != nil {
			t.Fatal(err)
		}
		w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
		if got := hosts(t, b); len(got) != 0 {
			t.Errorf("without a lease: %v", got)
		}
	})
}

// move changes the prefix of a network, or removes it.
func (w *env) move(nn *v1alpha2.NetworkNamespace, prefix, gateway string) {
	w.t.Helper()
	before := nn.DeepCopy()
	if nn.Status.IPv4Prefix, nn.Status.IPv4Gateway = prefix, gateway; prefix == "" {
		nn.Status.ProvisioningPhase = v1alpha2.ProvisioningError
	}
	_, err := w.kube.PatchStatus(w.t.Context(), before, nn)
	w.must(err)
}

// TestMove changes the prefix of a network, and moves one machine after another.
func TestMove(t *testing.T) {
	found := []stand.Subnet{{ID: 7, Subnet: "10.79.0.0/24"}}
	onEach(t, stand.Options{Subnets: found}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		keep := func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = []string{v1alpha1.FinalizerNetworkNamespace} }
		nn := w.network("net", "10.77.0.0/24", keep)
		for name, mac := range map[string]string{"first": macA, "last": macB, "going": "52:54:00:00:00:0c"} {
			w.configuration(name, []string{mac}, nil)
			w.reconcile(name)
		}
		has := func(what string, reservations int, subnets ...string) {
			t.Helper()
			if got := slices.Sorted(maps.Values(subnetsOf(t, b))); !slices.Equal(got, subnets) || len(reservationsOf(t, b)) != reservations {
				t.Errorf("%s: subnets %v with %v, want %v with %d reservations", what, got, reservationsOf(t, b), subnets, reservations)
			}
		}
		w.move(nn, "10.78.0.0/24", "10.78.0.1")
		if got := addressOf(t, w.reconcile("first"), 0); hosts(t, b)[macA] != got || !strings.HasPrefix(got, "10.78.0.") {
			t.Errorf("it has %s, and Kea %v", got, hosts(t, b))
		}
		has("one machine has moved", 3, "10.77.0.0/24", "10.78.0.0/24", "10.79.0.0/24")
		w.reconcile("last")
		w.delete("going")
		w.must(w.deliver("NetworkConfiguration", "going", events.TypeRefUpdate))
		b.Restart(t)
		has("every machine has moved or is deleted", 2, "10.78.0.0/24", "10.79.0.0/24")

		w.move(nn, "", "")
		for _, name := range []string{"first", "last"} {
			w.delete(name)
			w.must(w.deliver("NetworkConfiguration", name, events.TypeRefUpdate))
		}
		has("a network that has lost its prefix may get it back", 0, "10.78.0.0/24", "10.79.0.0/24")
		w.must(w.kube.Delete(t.Context(), nn))
		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		has("the network is being deleted", 0, "10.79.0.0/24")
	})
}

// TestMoveInOutage changes the prefix of a network while one of two servers is down.
func TestMoveInOutage(t *testing.T) {
	t.Parallel()
	for name, generation := range map[string]sim.Generation{"Sim2": sim.Kea2, "Sim3": sim.Kea3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, secondary := simulate(t, generation, stand.Options{}), simulate(t, generation, stand.Options{})
			w := newEnv(t, []string{primary.URL(), secondary.URL()})
			nn := w.network("net", "10.77.0.0/24", nil)
			w.configuration("vm", []string{macA}, nil)
			w.reconcile("vm")
			w.must(secondary.faults.Set(faults.Rule{Error: "503"}))
			w.move(nn, "10.78.0.0/24", "10.78.0.1")
			if nc := w.reconcile("vm"); nc.Status.Status != "Degraded" || nc.Status.NetworkInterfaces[0].IPv4Subnet != "10.78.0.0/24" {
				t.Fatalf("it must move on the available server: %+v", nc.Status)
			}
			w.must(secondary.faults.Set())
			w.clock.Pass(2 * outageCheckInterval)
			w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
			nc := w.get("vm")
			if got := condition(nc, conditionRedundant); !strings.HasPrefix(got, "True InStep") {
				t.Errorf("Redundant %s", got)
			}
			for _, b := range []backend{primary, secondary} {
				if diff := cmp.Diff(map[string]string{macA: addressOf(t, nc, 0)}, hosts(t, b)); diff != "" || len(reservationsOf(t, b)) != 1 || len(subnetsOf(t, b)) != 1 {
					t.Errorf("subnets %v with %v (-want +got):\n%s", subnetsOf(t, b), reservationsOf(t, b), diff)
				}
			}
		})
	}
}

// TestClosed deletes a network that is in use. Existing addresses are kept, and new requests are
// rejected, as are a duplicate MAC address and another VLAN.
func TestClosed(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newEnv(t, []string{b.URL()})
		nn := w.network("net", "10.77.0.0/24", func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = []string{v1alpha1.FinalizerNetworkNamespace} })
		w.configuration("vm", []string{macA}, nil)
		vm := w.reconcile("vm")
		w.configuration("twin", []string{macA}, nil)
		if got, want := ready(w.reconcile("twin")), "False DuplicateMACAddress: MAC address "+macA+" of interface eth0 is also that of NetworkConfiguration "+w.namespace+"/vm in the same network"; !strings.HasPrefix(got, want) {
			t.Errorf("twin: got %s, want %s", got, want)
		}
		other := v1alpha2.VLANID(7)
		w.configuration("tagged", []string{macB}, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.VLAN = &other })
		if got := ready(w.reconcile("tagged")); !strings.HasPrefix(got, "False VLANMismatch: spec.vlan is 7, but NetworkNamespace net is in VLAN 42") {
			t.Errorf("tagged: got %s", got)
		}
		w.must(w.kube.Delete(t.Context(), nn))
		for _, phase := range []v1alpha2.ProvisioningPhase{v1alpha2.ProvisioningReady, v1alpha2.ProvisioningDeleting} {
			w.must(w.kube.Get(t.Context(), w.namespace, "net", nn))
			before := nn.DeepCopy()
			nn.Status.ProvisioningPhase = phase
			_, err := w.kube.PatchStatus(t.Context(), before, nn)
			w.must(err)
			name := "late-" + strings.ToLower(string(phase))
			w.configuration(name, []string{macB}, nil)
			if got := ready(w.reconcile(name)); !strings.HasPrefix(got, "False NetworkDeleting: NetworkNamespace net is being deleted") {
				t.Errorf("%s: got %s", name, got)
			}
			w.must(w.deliver("NetworkConfiguration", "vm", events.TypeResync))
			if now := w.get("vm"); now.ResourceVersion != vm.ResourceVersion {
				t.Errorf("%s: an unchanged status was written: %+v", phase, now.Status)
			}
		}
		if diff := cmp.Diff(map[string]string{macA: addressOf(t, vm, 0)}, hosts(t, b)); diff != "" {
			t.Errorf("reservations (-want +got):\n%s", diff)
		}
	})
}

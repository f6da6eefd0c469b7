package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestRetire deletes a network whose subnet this function made.
func TestRetire(t *testing.T) {
	onEach(t, stand.Options{Subnets: []stand.Subnet{{ID: 7, Subnet: "10.78.0.0/24"}}}, func(t *testing.T, b backend) {
		w := newWorld(t, []string{b.URL()})
		keep := func(nn *v1alpha2.NetworkNamespace) { nn.Finalizers = []string{v1alpha1.FinalizerNetworkNamespace} }
		networks := []*v1alpha2.NetworkNamespace{w.network("made", "10.77.0.0/24", keep), w.network("found", "10.78.0.0/24", keep)}
		for i, nn := range networks {
			w.configuration(nn.Name, []string{[]string{macA, macB}[i]}, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkNamespaceName = nn.Name })
			w.settle(nn.Name)
			w.must(w.kube.Delete(t.Context(), nn))
			w.must(w.deliver("NetworkNamespace", nn.Name, events.TypeRefUpdate))
		}
		if got := len(subnetsOf(t, b)); got != 2 {
			t.Errorf("a subnet went while it was used: %d are left", got)
		}
		for _, nn := range networks {
			w.delete(nn.Name)
			w.must(w.deliver("NetworkConfiguration", nn.Name, events.TypeRefUpdate))
		}
		b.Restart(t)
		if diff := cmp.Diff(map[uint32]string{7: "10.78.0.0/24"}, subnetsOf(t, b)); diff != "" {
			t.Errorf("subnets after the networks are gone (-want +got):\n%s", diff)
		}
	})
}

// TestLostReservations brings a server back to where it was before it had any, as a
// backup would, and lets resync look at the network.
func TestLostReservations(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newWorld(t, []string{b.URL()})
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
		w.settle("vm")
		want := hosts(t, b)
		command("config-set", map[string]any{"Dhcp4": backup.Dhcp4}, nil)

		w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
		if sent := w.sentNames(t); len(sent) > 0 {
			t.Errorf("an event about the network had Kea looked at: %v", sent)
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
			t.Errorf("nothing is lost, and %v are sent", sent)
		}
	})
}

// TestSweep loses a NetworkConfiguration without its reservation.
func TestSweep(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		w := newWorld(t, []string{b.URL()})
		w.network("net", "10.77.0.0/24", nil)
		w.configuration("lost", []string{macA}, nil)
		w.configuration("vm", []string{macB}, nil)
		lost, kept := w.settle("lost"), addressOf(t, w.settle("vm"), 0)
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
			t.Errorf("after a sweep (-want +got):\n%s", diff)
		}

		w.configuration("lost", []string{macA}, nil)
		if got := addressOf(t, w.settle("lost"), 0); hosts(t, b)[macA] != got {
			t.Errorf("a successor of the same name has %s, and Kea %v", got, hosts(t, b))
		}
	})
}

package main

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// patience bounds each wait of a test. It is long, because the machine may be busy.
const patience = 60 * time.Second

// pairs are pairs of servers that a function keeps in step.
var pairs = map[string][2]func(*testing.T) *stand.Server{
	"Kea2": {
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea2, stand.Options{}) },
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea2, stand.Options{}) },
	},
	"Kea3": {
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea3, stand.Options{}) },
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea3, stand.Options{}) },
	},
	"Upgrade": {
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea2, stand.Options{}) },
		func(t *testing.T) *stand.Server { return stand.Start(t, stand.Kea3, stand.Options{}) },
	},
}

// TestFailover stops the primary server and starts it again.
func TestFailover(t *testing.T) {
	t.Parallel()
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, secondary := pair[0](t), pair[1](t)
			w := newEnv(t, []string{primary.URL(), secondary.URL()})
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("before", []string{macA}, nil)
			nc := w.reconcile("before")
			first := addressOf(t, nc, 0)
			if condition(nc, conditionRedundant) != "True InStep: every Kea server has the reservations" || nc.Status.NextCheckTime != nil {
				t.Errorf("both servers up: Redundant %s, next check %v", condition(nc, conditionRedundant), nc.Status.NextCheckTime)
			}
			if diff := cmp.Diff(hosts(t, primary), hosts(t, secondary)); diff != "" {
				t.Errorf("the servers differ (-primary +secondary):\n%s", diff)
			}

			primary.Stop()
			w.configuration("during", []string{macB}, nil)
			nc = w.reconcile("during")
			second := addressOf(t, nc, 0)
			want := "False KeaUnavailable: ask the primary Kea server for list-commands: POST 127.0.0.1/: connection refused"
			if condition(nc, conditionRedundant) != want || nc.Status.Status != "Degraded" || nc.Status.Phase != v1alpha1.NetworkConfigurationReady || nc.Status.NextCheckTime == nil {
				t.Errorf("primary down: phase %s, status %s, next check %v, Redundant %s", nc.Status.Phase, nc.Status.Status, nc.Status.NextCheckTime, condition(nc, conditionRedundant))
			}
			if again := w.reconcile("during"); again.ResourceVersion != nc.ResourceVersion {
				t.Error("a repeated delivery while the primary is down writes")
			}
			offer, err := secondary.Lease(t.Context(), macB, netip.MustParseAddr("10.77.0.1"))
			if err != nil || offer.Address.String() != second {
				t.Errorf("the secondary offers %v, error %v, want %s", offer, err, second)
			}

			primary.Restart(t)
			w.clock.Pass(2 * outageCheckInterval)
			w.must(w.deliver("NetworkConfiguration", "during", events.TypeResync))
			nc = w.get("during")
			if got := condition(nc, conditionRedundant); !strings.HasPrefix(got, "True InStep") || nc.Status.Status != "OK" || nc.Status.NextCheckTime != nil || addressOf(t, nc, 0) != second {
				t.Errorf("recovered: status %s, next check %v, address %s, Redundant %s", nc.Status.Status, nc.Status.NextCheckTime, addressOf(t, nc, 0), got)
			}
			primary.Restart(t)
			secondary.Restart(t)
			both := map[string]string{macA: first, macB: second}
			for _, server := range []*stand.Server{primary, secondary} {
				if diff := cmp.Diff(both, hosts(t, server)); diff != "" {
					t.Errorf("after a restart of both (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff(subnetsOf(t, primary), subnetsOf(t, secondary)); diff != "" {
				t.Errorf("the servers differ in their subnets (-primary +secondary):\n%s", diff)
			}
		})
	}
}

// TestOutage stops all servers, before and after there are reservations.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, pair := range pairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, secondary := pair[0](t), pair[1](t)
			w := newEnv(t, []string{primary.URL(), secondary.URL()})
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("served", []string{macA}, nil)
			address := addressOf(t, w.reconcile("served"), 0)
			primary.Stop()
			secondary.Stop()

			w.configuration("new", []string{macB}, nil)
			if err := w.deliver("NetworkConfiguration", "new", events.TypeRefAdd); err == nil || events.IsPermanent(err) {
				t.Errorf("the broker must redeliver, got %v", err)
			}
			w.must(ignoreOutage(w.deliver("NetworkConfiguration", "served", events.TypeResync)))
			want := "False KeaUnavailable: ask the primary Kea server for list-commands: POST 127.0.0.1/: connection refused; " +
				"ask the secondary Kea server for list-commands: POST 127.0.0.1/: connection refused"
			for name, phase := range map[string]v1alpha1.NetworkConfigurationPhase{"new": v1alpha1.NetworkConfigurationPending, "served": v1alpha1.NetworkConfigurationReady} {
				nc := w.get(name)
				if ready(nc) != want || nc.Status.Phase != phase {
					t.Errorf("%s: got phase %s, Ready %s", name, nc.Status.Phase, ready(nc))
				}
			}
			if got := addressOf(t, w.get("served"), 0); got != address {
				t.Errorf("during an outage the address changed from %s to %s", address, got)
			}
			before := w.get("new")
			w.must(ignoreOutage(w.deliver("NetworkConfiguration", "new", events.TypeRefUpdate)))
			if again := w.get("new"); again.ResourceVersion != before.ResourceVersion {
				t.Errorf("a repeated delivery wrote: %s", cmp.Diff(before.Status, again.Status))
			}

			w.delete("served")
			w.must(ignoreOutage(w.deliver("NetworkConfiguration", "served", events.TypeRefUpdate)))
			if nc := w.get("served"); nc.Status.Phase != v1alpha1.NetworkConfigurationDeleting || !strings.Contains(ready(nc), "waiting for every Kea server to remove the reservations") {
				t.Errorf("deleting: phase %s, Ready %s", nc.Status.Phase, ready(nc))
			}
			primary.Restart(t)
			w.must(ignoreOutage(w.deliver("NetworkConfiguration", "served", events.TypeRefUpdate)))
			if w.isDeleted("served") {
				t.Error("deleted while one server still has its reservation")
			}
			secondary.Restart(t)
			w.must(w.deliver("NetworkConfiguration", "served", events.TypeRefUpdate))
			w.must(w.deliver("NetworkConfiguration", "new", events.TypeRefUpdate))
			address = addressOf(t, w.get("new"), 0)
			for _, server := range []*stand.Server{primary, secondary} {
				server.Restart(t)
				if diff := cmp.Diff(map[string]string{macB: address}, hosts(t, server)); diff != "" || !w.isDeleted("served") {
					t.Errorf("recovered (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// ignoreOutage returns an error unless it reports that Kea is unavailable.
func ignoreOutage(err error) error {
	if err != nil && strings.Contains(err.Error(), "connection refused") {
		return nil
	}
	return err
}

// TestSplit has each of two servers down in turn while the other one gets a reservation.
func TestSplit(t *testing.T) {
	t.Parallel()
	primary, secondary := pairs["Kea3"][0](t), pairs["Kea3"][1](t)
	w := newEnv(t, []string{primary.URL(), secondary.URL()})
	w.network("net", "10.77.0.0/29", nil)
	macs := []string{"52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04", "52:54:00:00:00:05"}
	for i, mac := range macs {
		name := "vm" + mac[15:]
		away := []*stand.Server{primary, secondary}[i%2]
		away.Stop()
		w.configuration(name, []string{mac}, nil)
		w.reconcile(name)
		away.Restart(t)
	}
	want := map[string]string{}
	for _, mac := range macs {
		w.must(w.deliver("NetworkConfiguration", "vm"+mac[15:], events.TypeResync))
	}
	for _, mac := range macs {
		want[mac] = addressOf(t, w.get("vm"+mac[15:]), 0)
	}
	for _, server := range []*stand.Server{primary, secondary} {
		got := hosts(t, server)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-status +Kea):\n%s", diff)
		}
		distinct := map[string]bool{}
		for _, address := range got {
			distinct[address] = true
		}
		if len(distinct) != len(macs) {
			t.Errorf("addresses are reserved twice: %v", got)
		}
	}
}

// TestReleaseWaitsForBoth has one of two servers down while an interface requests another address, or is removed. Both servers keep the reservation,
// so that no other machine gets the address and has to give it back when the server answers again.
func TestReleaseWaitsForBoth(t *testing.T) {
	t.Parallel()
	const macC = "52:54:00:00:00:0c"
	for name, tc := range map[string]struct {
		change func(*v1alpha1.NetworkConfiguration)
		after  map[string]string
	}{
		"AnotherAddress": {func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces[1].IPv4Addresses[0] = "10.77.0.51" }, map[string]string{macA: "10.77.0.40", macB: "10.77.0.51", macC: "10.77.0.50"}},
		"NoInterface":    {func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[:1] }, map[string]string{macA: "10.77.0.40", macC: "10.77.0.50"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			primary, secondary := simulate(t, sim.Kea3, stand.Options{}), simulate(t, sim.Kea2, stand.Options{})
			w := newEnv(t, []string{primary.URL(), secondary.URL()})
			w.network("net", "10.77.0.0/24", nil)
			ask := func(addresses ...v1alpha2.IPv4Address) func(*v1alpha1.NetworkConfiguration) {
				return func(nc *v1alpha1.NetworkConfiguration) {
					for i, a := range addresses {
						nc.Spec.NetworkInterfaces[i].IPv4Addresses = []v1alpha2.IPv4Address{a}
					}
				}
			}
			w.configuration("first", []string{macA, macB}, ask("10.77.0.40", "10.77.0.50"))
			w.reconcile("first")
			w.must(secondary.faults.Set(faults.Rule{Error: "503"}))
			before := w.get("first")
			nc := before.DeepCopy()
			tc.change(nc)
			_, err := w.kube.Patch(t.Context(), before, nc)
			w.must(err)
			if err := w.deliver("NetworkConfiguration", "first", events.TypeRefUpdate); err == nil || events.IsPermanent(err) {
				t.Errorf("the Broker must redeliver, got %v", err)
			}
			if nc = w.get("first"); addressOf(t, nc, 1) != "10.77.0.50" || !strings.HasPrefix(ready(nc), "False KeaUnavailable: ask the secondary Kea server") {
				t.Errorf("one server is down: Ready %s, address %s", ready(nc), addressOf(t, nc, 1))
			}
			w.configuration("second", []string{macC}, ask("10.77.0.50"))
			if nc = w.reconcile("second"); !strings.HasPrefix(ready(nc), "False AddressTaken") {
				t.Errorf("the other server has the address for another machine: Ready %s", ready(nc))
			}
			w.must(secondary.faults.Set())
			w.clock.Pass(2 * userErrorCheckInterval)
			w.must(w.deliver("NetworkConfiguration", "second", events.TypeResync))
			w.must(w.deliver("NetworkConfiguration", "first", events.TypeResync))
			w.must(w.deliver("NetworkConfiguration", "second", events.TypeResync))
			for _, server := range []*simulated{primary, secondary} {
				if diff := cmp.Diff(tc.after, hosts(t, server)); diff != "" || !strings.HasPrefix(ready(w.get("second")), "True") || !strings.HasPrefix(ready(w.get("first")), "True") {
					t.Errorf("both servers are up (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// TestWriters has many replicas write concurrently.
func TestWriters(t *testing.T) {
	onEach(t, stand.Options{}, func(t *testing.T, b backend) {
		const writers = 10
		w := newEnv(t, []string{b.URL()})
		w.network("net", "10.77.0.0/27", nil)
		names := make([]string, writers)
		for i := range writers {
			names[i] = "vm" + string(rune('a'+i))
			w.configuration(names[i], []string{"52:54:00:00:01:0" + string(rune('0'+i)), "52:54:00:00:02:0" + string(rune('0'+i))}, nil)
		}
		deadline := time.Now().Add(patience)
		var wait sync.WaitGroup
		for _, name := range names {
			replica := w.function([]string{b.URL()})
			wait.Go(func() {
				for time.Now().Before(deadline) {
					if deliver(t.Context(), replica, "NetworkConfiguration", w.namespace, name, events.TypeRefAdd) == nil {
						return
					}
				}
				t.Errorf("%s is not served in time", name)
			})
		}
		wait.Wait()
		b.Restart(t)
		want := map[string]string{}
		var all []string
		for _, name := range names {
			nc := w.get(name)
			for i := range nc.Spec.NetworkInterfaces {
				want[string(nc.Spec.NetworkInterfaces[i].MACAddress)] = addressOf(t, nc, i)
				all = append(all, addressOf(t, nc, i))
			}
		}
		if diff := cmp.Diff(want, hosts(t, b)); diff != "" {
			t.Errorf("lost updates (-status +Kea):\n%s", diff)
		}
		slices.Sort(all)
		if n := len(slices.Compact(all)); n != 2*writers {
			t.Errorf("%d addresses for %d interfaces", n, 2*writers)
		}
	})
}

// TestLock has a lock whose holder has crashed.
func TestLock(t *testing.T) {
	t.Parallel()
	b := backends["Sim2"](t, stand.Options{})
	w := newEnv(t, []string{b.URL()})
	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	holder, seconds, since := "crashed", int32(40), metav1.NewMicroTime(w.clock.Now())
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: kea.LockName}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &since}
	w.must(w.kube.Create(t.Context(), lease))
	err := w.deliver("NetworkConfiguration", "vm", events.TypeRefAdd)
	if err == nil || events.IsPermanent(err) || !strings.Contains(err.Error(), kea.ErrLocked.Error()) {
		t.Errorf("another holder has the lock: got %v", err)
	}
	if len(hosts(t, b)) != 0 {
		t.Errorf("Kea was changed without the lock: %v", hosts(t, b))
	}
	w.clock.Pass(41 * time.Second)
	if addressOf(t, w.reconcile("vm"), 0) == "" {
		t.Error("the lock of a holder that crashed is not taken over")
	}
	lease = &coordinationv1.Lease{}
	w.must(w.kube.Get(t.Context(), w.namespace, kea.LockName, lease))
	if lease.Spec.HolderIdentity != nil {
		t.Errorf("the lock is still held by %s", *lease.Spec.HolderIdentity)
	}
}

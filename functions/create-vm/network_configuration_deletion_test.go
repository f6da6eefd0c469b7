package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// inNetworks returns a machine whose interfaces eth0, eth1 and so on are in the given
// NetworkConfigurations.
func inNetworks(name string, networks ...string) *v1alpha1.Machine {
	return machineWith(name, func(m *v1alpha1.MachineSpec) {
		for i, network := range networks {
			m.Networks = append(m.Networks, v1alpha1.MachineNetwork{Name: "eth" + string(rune('0'+i)), NetworkName: network})
		}
	})
}

func (e *env) remove(obj kube.Object) {
	e.Helper()
	obj.SetNamespace(e.Namespace)
	if err := e.Kube.Delete(e.Context(), obj); err != nil {
		e.Fatal(err)
	}
}

func configuration(name string) *v1alpha1.NetworkConfiguration {
	return &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// awaitNetwork waits until done accepts a NetworkConfiguration. nc is nil after its deletion.
func (e *env) awaitNetwork(name, what string, done func(nc *v1alpha1.NetworkConfiguration) bool) {
	e.Helper()
	feed.Until(e.T, "NetworkConfiguration "+name+" "+what, func() (bool, string) {
		nc := &v1alpha1.NetworkConfiguration{}
		if err := e.Kube.Get(e.Context(), e.Namespace, name, nc); kube.NotFound(err) {
			return done(nil), "it is deleted"
		} else if err != nil {
			return false, err.Error()
		}
		return done(nc), strings.Join(nc.Finalizers, ", ") + " " + nc.Status.Message
	})
}

// waitsFor returns a condition for untilNetwork: the NetworkConfiguration has its addresses, and Ready
// names the machines that it is kept for.
func waitsFor(machines string) func(*v1alpha1.NetworkConfiguration) bool {
	return func(nc *v1alpha1.NetworkConfiguration) bool {
		if nc == nil || len(nc.Status.NetworkInterfaces) == 0 {
			return false
		}
		c := meta.FindStatusCondition(nc.Status.Conditions, "Ready")
		return c != nil && c.Reason == "InUse" && c.Message == "waiting for "+machines+" to be deleted"
	}
}

func isGone(nc *v1alpha1.NetworkConfiguration) bool { return nc == nil }

// TestNetworkOfARunningMachineStays deletes NetworkConfigurations: one of a single machine, one that
// machines share, and one whose machine is deleted.
func TestNetworkOfARunningMachineStays(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	ghosts := configuration("ghosts")
	ghosts.Finalizers = []string{v1alpha1.FinalizerUsedBy + "ghost"}
	s.Create(ghosts)
	s.Create(configuration("lan"))
	for _, m := range []*v1alpha1.Machine{machineWith("own", func(*v1alpha1.MachineSpec) {}), inNetworks("a", "lan"), inNetworks("b", "lan")} {
		s.Create(m)
		s.awaitMachine(m.Name, "runs", hypervisortest.IsRunning)
	}
	for _, name := range []string{"ghosts", "own", "lan"} {
		s.remove(configuration(name))
	}
	s.awaitNetwork("ghosts", "is deleted, because its machine is", isGone)
	s.awaitNetwork("own", "is kept", waitsFor("Machine own"))
	s.awaitNetwork("lan", "is kept for both machines", func(nc *v1alpha1.NetworkConfiguration) bool {
		return waitsFor("Machine a, Machine b")(nc) || waitsFor("Machine b, Machine a")(nc)
	})
	s.Create(inNetworks("late", "lan"))
	s.awaitMachine("late", "is rejected, because the network is being deleted", hypervisortest.HasReason("NetworkConfigurationNotFound"))
	s.remove(machineWith("a", func(*v1alpha1.MachineSpec) {}))
	s.awaitNetwork("lan", "is kept for one machine", waitsFor("Machine b"))
	for _, name := range []string{"b", "own"} {
		s.awaitMachine(name, "keeps running", hypervisortest.IsRunning)
		s.remove(machineWith(name, func(*v1alpha1.MachineSpec) {}))
		s.awaitNetwork(map[string]string{"b": "lan", "own": "own"}[name], "is deleted with the last machine", isGone)
	}
	s.Create(configuration("lan"))
	s.awaitMachine("late", "runs in the network after it is created again", hypervisortest.IsRunning)
}

// TestNetworkOfAWaitingMachineGoes deletes one of two networks of a machine that has no virtual
// machine yet, so its address is unused.
func TestNetworkOfAWaitingMachineGoes(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.createStuckMachine("web")
	s.remove(configuration("lan-b"))
	s.awaitNetwork("lan-b", "is deleted at once", isGone)
	s.awaitMachine("web", "lacks a network", hypervisortest.HasReason("NetworkConfigurationNotFound"))
	s.Create(configuration("lan-b"))
	s.awaitMachine("web", "runs in the network after it is created again", hypervisortest.IsRunning)
}

// TestNetworksOfEarlierAreLeft deletes a machine that has waited in networks other than those its spec
// now names.
func TestNetworksOfEarlierAreLeft(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.MachineSpec)
	}{
		"Other": {"its spec names another network", func(m *v1alpha1.MachineSpec) {
			m.Networks = []v1alpha1.MachineNetwork{{Name: "eth5", NetworkName: "lan-c"}}
		}},
		"Own": {"its spec names no network, so it has its own", func(m *v1alpha1.MachineSpec) { m.Networks = nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.createStuckMachine("web")
			s.Create(configuration("lan-c"))
			s.remove(configuration("lan-b"))
			s.awaitMachine("web", "lacks a network", hypervisortest.HasReason("NetworkConfigurationNotFound"))
			s.Edit("web", func(m *v1alpha1.Machine) { tc.change(&m.Spec) })
			s.awaitMachine("web", "runs: "+tc.reason, hypervisortest.IsRunning)
			s.remove(machineWith("web", func(*v1alpha1.MachineSpec) {}))
			s.awaitEmpty()
			for _, name := range []string{"lan-a", "lan-c"} {
				s.awaitNetwork(name, "is left", func(nc *v1alpha1.NetworkConfiguration) bool {
					return nc != nil && len(nc.Spec.NetworkInterfaces)+len(nc.Finalizers) == 0
				})
			}
		})
	}
}

// createStuckMachine creates a machine in lan-a and lan-b that gets no address in lan-b.
func (e *env) createStuckMachine(name string) {
	e.Helper()
	e.Create(configuration("lan-a"))
	other := configuration("lan-b")
	other.Spec.Description = hypervisortest.Unserved
	e.Create(other)
	e.Create(inNetworks(name, "lan-a", "lan-b"))
	e.awaitMachine(name, "waiting for an address", hypervisortest.HasReason(reasonWaitingForAddress))
	e.awaitNetwork("lan-b", "is used", func(nc *v1alpha1.NetworkConfiguration) bool {
		return nc != nil && slices.Contains(nc.Finalizers, v1alpha1.FinalizerUsedBy+name)
	})
}

// TestNetworkFromBefore reconciles machines whose networks an earlier release has created.
func TestNetworkFromBefore(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(configuration("lan"))
	networks := map[string]string{"own": "own", "web": "lan"}
	s.Create(machineWith("own", func(*v1alpha1.MachineSpec) {}))
	s.Create(inNetworks("web", "lan"))
	for name, in := range networks {
		s.awaitMachine(name, "runs", hypervisortest.IsRunning)
		hypervisortest.Change(s.Env, &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: in}}, func(nc *v1alpha1.NetworkConfiguration) {
			nc.Finalizers = nil
		})
		s.Edit(name, func(m *v1alpha1.Machine) {
			metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.AnnotationReconcile, "now")
		})
		s.awaitNetwork(in, "is kept from the next reconciliation on", func(nc *v1alpha1.NetworkConfiguration) bool {
			return slices.Contains(nc.Finalizers, v1alpha1.FinalizerUsedBy+name)
		})
	}
}

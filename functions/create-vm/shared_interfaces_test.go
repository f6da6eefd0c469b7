package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// named returns a machine with one interface in a NetworkConfiguration.
func named(name, iface, in string) *v1alpha1.Machine {
	return machineWith(name, func(m *v1alpha1.MachineSpec) {
		m.Networks = []v1alpha1.MachineNetwork{{Name: iface, NetworkName: in}}
	})
}

// interfacesOf returns the MAC addresses of a NetworkConfiguration by interface name.
func (e *env) interfacesOf(name string) map[string]string {
	e.Helper()
	nc := &v1alpha1.NetworkConfiguration{}
	if err := e.Kube.Get(e.Context(), e.Namespace, name, nc); err != nil {
		e.Fatal(err)
	}
	macs := map[string]string{}
	for _, i := range nc.Spec.NetworkInterfaces {
		macs[i.Name] = string(i.MACAddress)
	}
	return macs
}

func TestSharedNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	const leftBehind = "02:00:00:00:00:01"
	cases := map[string]struct {
		reason   string
		there    []v1alpha1.InterfaceSpec
		machines []*v1alpha1.Machine
		// want has the names of the machines' interfaces.
		want []string
	}{
		"plain":       {reason: "an interface is named after its machine", machines: []*v1alpha1.Machine{named("p", "eth0", "plain")}, want: []string{"p-eth0"}},
		"longer":      {reason: "a prefix of another machine's name is no conflict", machines: []*v1alpha1.Machine{named("w", "db-eth0", "longer"), named("w-db", "eth0", "longer")}, want: []string{"w-db-eth0", "w-db-eth0-79753679"}},
		"shorter":     {reason: "the order of creation does not matter", machines: []*v1alpha1.Machine{named("v-db", "eth0", "shorter"), named("v", "db-eth0", "shorter")}, want: []string{"v-db-eth0", "v-db-eth0-00cf7347"}},
		"dots":        {reason: "a name of an interface has no dots", machines: []*v1alpha1.Machine{named("web.1", "eth0", "dots"), named("web-1", "eth0", "dots")}, want: []string{"web-1-eth0", "web-1-eth0-3e4e0916"}},
		"predecessor": {reason: "a machine takes over the interface of its predecessor", there: []v1alpha1.InterfaceSpec{{Name: "r-eth0", MACAddress: leftBehind}}, machines: []*v1alpha1.Machine{named("r", "eth0", "predecessor")}, want: []string{"r-eth0"}},
		"prepared":    {reason: "a prepared interface waits for its machine", there: []v1alpha1.InterfaceSpec{{Name: "eth7"}}, machines: []*v1alpha1.Machine{named("e", "eth7", "prepared")}, want: []string{"eth7"}},
	}
	for name, tc := range cases {
		nc := configuration(name)
		nc.Spec.NetworkInterfaces = tc.there
		s.Create(nc)
		want, addresses := map[string]string{}, map[string]bool{}
		for i, m := range tc.machines {
			s.Create(m)
			m = s.awaitMachine(m.Name, "runs", hypervisortest.IsRunning)
			want[tc.want[i]] = interfaceMAC(m, m.Spec.Networks[0])
			addresses[m.Status.IPAddresses[0]] = true
		}
		if diff := cmp.Diff(want, s.interfacesOf(name)); diff != "" {
			t.Errorf("%s: interfaces (-want +got):\n%s", tc.reason, diff)
		}
		if len(addresses) != len(tc.machines) {
			t.Errorf("%s: %d machines have %d addresses", tc.reason, len(tc.machines), len(addresses))
		}
		s.remove(tc.machines[0])
		s.awaitNetwork(name, "has the interfaces of the other machines", func(nc *v1alpha1.NetworkConfiguration) bool {
			return !slices.ContainsFunc(nc.Spec.NetworkInterfaces, func(i v1alpha1.InterfaceSpec) bool { return string(i.MACAddress) == want[tc.want[0]] })
		})
		delete(want, tc.want[0])
		left := s.interfacesOf(name)
		delete(left, "eth7")
		if diff := cmp.Diff(want, left); diff != "" {
			t.Errorf("%s: interfaces without the first machine (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// TestFullNetwork rejects a machine until a place in its NetworkConfiguration is free.
func TestFullNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	nc := configuration("full")
	const places = 512
	for i := range places {
		nc.Spec.NetworkInterfaces = append(nc.Spec.NetworkInterfaces, v1alpha1.InterfaceSpec{Name: fmt.Sprintf("other%d-eth0", i)})
	}
	s.Create(nc)
	s.Create(inNetworks("late", "full"))
	m := s.awaitMachine("late", "is refused", hypervisortest.HasReason("NetworkFailed"))
	if got := condition(m, "NetworkReady"); !strings.Contains(got, "the API server refuses interface late-eth0 in NetworkConfiguration full") || !strings.Contains(got, "at most 512") {
		t.Errorf("got %s", got)
	}
	full := &v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "full"}}
	hypervisortest.Change(s.Env, full, func(nc *v1alpha1.NetworkConfiguration) { nc.Spec.NetworkInterfaces = nc.Spec.NetworkInterfaces[1:] })
	s.awaitMachine("late", "runs in the freed place", hypervisortest.IsRunning)
}

// TestSharedMAC creates a second machine with the MAC address of the first one, as a copy of its manifest has. It gets no address, and its deletion leaves the first one
// its interface.
func TestSharedMAC(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	const mac = "52:54:00:00:00:55"
	nc := configuration("twins")
	nc.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: mac}}
	s.Create(nc)
	with := func(name, mac string) *v1alpha1.Machine {
		return machineWith(name, func(m *v1alpha1.MachineSpec) {
			m.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "twins", MACAddress: v1alpha1.MACAddress(mac)}}
		})
	}
	s.Create(with("first", mac))
	first := s.awaitMachine("first", "runs", hypervisortest.IsRunning)
	s.Create(with("second", mac))
	second := s.awaitMachine("second", "is refused", hypervisortest.HasReason("NetworkFailed"))
	if got := condition(second, "NetworkReady"); !strings.Contains(got, "interface eth0 has MAC address "+mac+", which Machine first uses in NetworkConfiguration twins") {
		t.Errorf("got %s", got)
	}
	s.remove(second)
	feed.Until(t, "the second machine is gone", func() (bool, string) {
		return kube.NotFound(s.Kube.Get(t.Context(), s.Namespace, "second", second)), string(second.Status.Phase)
	})
	if diff := cmp.Diff(map[string]string{"eth0": mac}, s.interfacesOf("twins")); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	s.Create(with("second", ""))
	second = s.awaitMachine("second", "runs without the MAC address, as the message says", hypervisortest.IsRunning)
	if second.Status.IPAddresses[0] == first.Status.IPAddresses[0] {
		t.Errorf("both have %s", first.Status.IPAddresses[0])
	}
}

func TestSharedNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("m", 63)
	plain, apart := sharedNames(long, strings.Repeat("e", 15))
	if len(plain) > 80 || len(apart) > 80 || plain == apart {
		t.Errorf("got %s and %s, which have to differ and fit into 80 characters", plain, apart)
	}
}

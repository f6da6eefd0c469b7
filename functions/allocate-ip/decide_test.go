package main

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
)

// networked returns a provisioned network with a static pool.
func networked(v4, gateway string, static v1alpha2.StaticPool) *v1alpha2.NetworkNamespace {
	nn := &v1alpha2.NetworkNamespace{}
	nn.Name = "net"
	nn.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &static}
	nn.Status = v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningReady, IPv4Prefix: v4, IPv4Gateway: gateway}
	return nn
}

func TestServesStatic(t *testing.T) {
	t.Parallel()
	static, dhcp := networked("10.0.0.0/24", "", v1alpha2.StaticPool{}), &v1alpha2.NetworkNamespace{}
	others := static.DeepCopy()
	others.Spec.IPAllocation.Provider = "infoblox"
	cases := map[string]struct {
		reason   string
		nn       *v1alpha2.NetworkNamespace
		provider string
		ours     bool
		problem  bool
	}{
		"Static":       {reason: "the network selects the allocator", nn: static, ours: true},
		"Named":        {reason: "the provider names this function explicitly", nn: static, provider: "Static-IP-Operator", ours: true},
		"DHCP":         {reason: "kea-reserve serves DHCP networks", nn: dhcp},
		"KeaOnStatic":  {reason: "the provider contradicts the network, which this function serves", nn: static, provider: "kea", problem: true},
		"StaticOnDHCP": {reason: "the provider contradicts the network, and kea-reserve does not see the object", nn: dhcp, provider: "static-ip-operator", problem: true},
		"KeaOnDHCP":    {reason: "kea-reserve serves DHCP networks", nn: dhcp, provider: "kea"},
		"External":     {reason: "an external allocator serves the network", nn: others},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if ours, problem := networkplan.ServesStatic(tc.nn, tc.provider); ours != tc.ours || (problem != "") != tc.problem {
				t.Errorf("%s: got ours %t, problem %q", tc.reason, ours, problem)
			}
		})
	}
}

// allocation returns the outcome of the allocation for an interface.
func allocation(iface string, phase v1alpha2.IPAllocationPhase, address, reason string) v1alpha2.IPAllocation {
	a := v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "web-" + iface}}
	a.Spec.InterfaceName = iface
	a.Status.Phase, a.Status.Address = phase, address
	a.Status.Prefix, a.Status.Gateway, a.Status.DNS = 24, "10.0.0.1", []string{"10.0.0.53"}
	kube.SetReady(&a.Status.Conditions, 0, phase == v1alpha2.IPAllocationAllocated, reason, "because")
	return a
}

func TestDecide(t *testing.T) {
	t.Parallel()
	with, without := eth0(), v1alpha1.InterfaceSpec{Name: "eth1"}
	cases := map[string]struct {
		reason     string
		interfaces []v1alpha1.InterfaceSpec
		held       []v1alpha2.IPAllocation
		phase      v1alpha1.NetworkConfigurationPhase
		why        string
		allocated  []bool
	}{
		"None":      {reason: "create-vm adds the interface later", phase: "Pending", why: "WaitingForMAC"},
		"NoMAC":     {reason: "create-vm adds the MAC address later", interfaces: []v1alpha1.InterfaceSpec{with, without}, held: []v1alpha2.IPAllocation{allocation("eth0", "Allocated", "10.0.0.5", "Allocated")}, phase: "Pending", why: "WaitingForMAC", allocated: []bool{true}},
		"All":       {reason: "every interface has its addresses", interfaces: []v1alpha1.InterfaceSpec{with}, held: []v1alpha2.IPAllocation{allocation("eth0", "Allocated", "10.0.0.5", "Allocated")}, phase: "Ready", why: "NetworkConfigured", allocated: []bool{true}},
		"Exhausted": {reason: "it is allocated once an address is free", interfaces: []v1alpha1.InterfaceSpec{with}, held: []v1alpha2.IPAllocation{allocation("eth0", "Pending", "", "PoolExhausted")}, phase: "Pending", why: "PoolExhausted", allocated: []bool{false}},
		"Taken":     {reason: "the requester has to choose another address", interfaces: []v1alpha1.InterfaceSpec{with}, held: []v1alpha2.IPAllocation{allocation("eth0", "Error", "", "AddressTaken")}, phase: "Error", why: "AddressTaken", allocated: []bool{false}},
		"HalfDual":  {reason: "a dual-stack interface is allocated only with both families", interfaces: []v1alpha1.InterfaceSpec{with}, held: []v1alpha2.IPAllocation{allocation("eth0", "Allocated", "10.0.0.5", "Allocated"), allocation("eth0", "Pending", "", "PoolExhausted")}, phase: "Pending", why: "PoolExhausted", allocated: []bool{false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := &v1alpha1.NetworkConfiguration{Spec: v1alpha1.NetworkConfigurationSpec{NetworkInterfaces: tc.interfaces}}
			nn := networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{})
			outcome := setConfigurationResult(nc, nn, tc.held)
			var allocated []bool
			for _, i := range nc.Status.NetworkInterfaces {
				allocated = append(allocated, i.IPAllocated)
			}
			if nc.Status.Phase != tc.phase || outcome.Reason != tc.why || !cmp.Equal(allocated, tc.allocated) {
				t.Errorf("%s: got phase %s, reason %s, allocated %v", tc.reason, nc.Status.Phase, outcome.Reason, allocated)
			}
			before := nc.DeepCopy()
			if again := setConfigurationResult(nc, nn, tc.held); again.Changed || !cmp.Equal(before.Status, nc.Status) {
				t.Errorf("a second decision on the same input must change nothing, got Changed %t", again.Changed)
			}
		})
	}
}

func TestStale(t *testing.T) {
	t.Parallel()
	nn := networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{DNS: []string{"10.0.0.53"}})
	nc := &v1alpha1.NetworkConfiguration{Spec: v1alpha1.NetworkConfigurationSpec{NetworkInterfaces: []v1alpha1.InterfaceSpec{eth0()}}}
	setConfigurationResult(nc, nn, []v1alpha2.IPAllocation{allocation("eth0", "Allocated", "10.0.0.5", "Allocated")})
	if isConfigurationOutdated(nc, nn) {
		t.Error("a decision must repeat the network's terms without a change")
	}
	for name, change := range map[string]func(*v1alpha2.NetworkNamespace){
		"gateway": func(nn *v1alpha2.NetworkNamespace) { nn.Status.IPv4Gateway = "10.0.0.254" },
		"VLAN":    func(nn *v1alpha2.NetworkNamespace) { nn.Status.VLANID = 9 },
		"DNS":     func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.DNS = nil },
		"range":   func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.IPv4RangeStart = "10.0.0.6" },
		"segment": func(nn *v1alpha2.NetworkNamespace) { nn.Status.IPv4Prefix, nn.Status.IPv4Gateway = "10.1.0.0/24", "" },
	} {
		changed := nn.DeepCopy()
		if change(changed); !isConfigurationOutdated(nc, changed) {
			t.Errorf("a changed %s has to reach the machines of the network", name)
		}
	}
}

func TestConclude(t *testing.T) {
	t.Parallel()
	nn := networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{})
	p, err := ipam.New(nn, v1alpha2.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	expires := metav1.NewTime(time.Unix(1000, 0))
	cases := map[string]struct {
		reason  string
		address string
		until   validity
		err     error
		phase   v1alpha2.IPAllocationPhase
		why     string
		warning bool
	}{
		"Allocated": {reason: "the address is allocated", address: "10.0.0.5", phase: "Allocated", why: "Allocated"},
		"Expiring":  {reason: "an address with a TTL reports when it expires", address: "10.0.0.5", until: validity{expires: &expires, check: &expires}, phase: "Allocated", why: "Allocated"},
		"Exhausted": {reason: "it is allocated once an address is free", err: errExhausted, phase: "Pending", why: "PoolExhausted"},
		"Taken":     {reason: "a requested address is never replaced by another", err: errAddressTaken{by: "IPAllocation x"}, phase: "Error", why: "AddressTaken", warning: true},
		"Outside":   {reason: "a requested address is never replaced by another", err: ipam.OutsidePool{Address: "10.9.9.9"}, phase: "Error", why: "AddressOutsidePool", warning: true},
		"Lapsed":    {reason: "no NetworkConfiguration needs the address", err: errExpired, phase: "Released", why: "Lapsed"},
		"Invalid":   {reason: "the network team has to change the pool", err: errInvalidPool{errors.New("no")}, phase: "Pending", why: "InvalidPool"},
		"Kept":      {reason: "a machine uses the address, even outside the present pool", address: "10.0.0.1", phase: "Allocated", why: "OutsidePool", warning: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &v1alpha2.IPAllocation{}
			address, _ := netip.ParseAddr(tc.address)
			outcome := setAllocationResult(a, nn, p, address, tc.until, tc.err)
			if a.Status.Phase != tc.phase || outcome.Reason != tc.why || outcome.Warning != tc.warning || a.Status.Address != tc.address {
				t.Errorf("%s: got phase %s, reason %s, warning %t, address %q", tc.reason, a.Status.Phase, outcome.Reason, outcome.Warning, a.Status.Address)
			}
			if a.Status.ExpiresAt != tc.until.expires || a.Status.NextCheckTime != tc.until.check {
				t.Errorf("%s: got expiry %v", tc.reason, a.Status.ExpiresAt)
			}
		})
	}
}

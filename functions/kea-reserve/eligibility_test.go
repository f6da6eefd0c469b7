package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestServes(t *testing.T) {
	t.Parallel()
	dhcp := &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationDHCP}
	cases := map[string]struct {
		reason   string
		policy   *v1alpha2.IPAllocationPolicy
		provider string
		strict   bool
		ours     bool
		why      string
	}{
		"Default":        {reason: "Kea is the default for DHCP networks", ours: true},
		"DHCP":           {reason: "Kea serves DHCP networks", policy: dhcp, ours: true},
		"Explicit":       {reason: "network and spec name Kea", policy: &v1alpha2.IPAllocationPolicy{Type: "dhcp", Provider: "Kea"}, provider: "KEA", ours: true},
		"Static":         {reason: "allocate-ip's", policy: &v1alpha2.IPAllocationPolicy{Type: "static"}},
		"StaticKea":      {reason: "allocate-ip reports the contradiction", policy: &v1alpha2.IPAllocationPolicy{Type: "static"}, provider: "kea"},
		"StaticProvider": {reason: "allocate-ip reports the contradiction", policy: dhcp, provider: "static-ip-operator"},
		"OtherServer":    {reason: "another DHCP server serves it", policy: &v1alpha2.IPAllocationPolicy{Type: "dhcp", Provider: "dnsmasq"}},
		"OtherProvider":  {reason: "no function would act", policy: dhcp, provider: "proxmox", ours: true, why: "ProviderMismatch"},
		"Strict":         {reason: "the default provider is rejected", policy: dhcp, strict: true, ours: true, why: "ProviderNotExplicit"},
		"StrictPolicy":   {reason: "the default policy is rejected", provider: "kea", strict: true, ours: true, why: "ProviderNotExplicit"},
		"StrictBoth":     {reason: "both are explicit", policy: dhcp, provider: "kea", strict: true, ours: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := &v1alpha1.NetworkConfiguration{Spec: v1alpha1.NetworkConfigurationSpec{Provider: tc.provider}}
			nn := &v1alpha2.NetworkNamespace{Spec: v1alpha2.NetworkNamespaceSpec{IPAllocation: tc.policy}}
			ours, p := isServed(nc, nn, tc.strict)
			why := ""
			if userError, ok := reconcile.AsUserError(p); ok {
				why = userError.Reason
			}
			if ours != tc.ours || why != tc.why {
				t.Errorf("%s: got ours %t, problem %q", tc.reason, ours, why)
			}
		})
	}
}

// TestWaiting has NetworkConfigurations wait for what does not exist yet, without a request to Kea.
func TestWaiting(t *testing.T) {
	t.Parallel()
	const nowhere = "http://127.0.0.1:9"
	pendingNetwork := func(nn *v1alpha2.NetworkNamespace) {
		nn.Status = v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningPending, Conditions: []metav1.Condition{{
			Type: "Ready", Status: "False", Reason: "Provisioning", Message: "the provider is making the segment", LastTransitionTime: metav1.Now(),
		}}}
	}
	cases := map[string]struct {
		reason      string
		network     func(*v1alpha2.NetworkNamespace)
		second      bool
		macs        []string
		change      func(*v1alpha1.NetworkConfiguration)
		environment []string
		noKea       bool
		phase       v1alpha1.NetworkConfigurationPhase
		ready       string
	}{
		"NotReady": {
			reason: "the network comes first", network: pendingNetwork, macs: []string{macA}, phase: "Pending",
			ready: "False NetworkNotReady: waiting for NetworkNamespace net: Provisioning: the provider is making the segment",
		},
		"NoMAC": {
			reason: "create-vm adds the MAC address", macs: []string{macA, ""}, phase: "Pending",
			ready: "False WaitingForMAC: waiting for the MAC address of eth1: a Machine sets its own; without a Machine, write it into spec.networkInterfaces",
		},
		"NoInterfaces": {
			reason: "create-vm adds the interface", phase: "Pending",
			ready: "False NoInterfaces: waiting for an interface: a Machine adds its own; without a Machine, write it into spec.networkInterfaces",
		},
		"SameMAC": {
			reason: "Kea identifies clients by their MAC address", macs: []string{macA, macA}, phase: "Error",
			ready: "False DuplicateMACAddress: interfaces eth0 and eth1 have the same MAC address " + macA + ": give each its own",
		},
		"IPv6": {
			reason: "Kea's DHCPv4 server has no IPv6 addresses", macs: []string{macA}, phase: "Error",
			change: func(nc *v1alpha1.NetworkConfiguration) {
				nc.Spec.NetworkInterfaces[0].IPv6Addresses = []v1alpha2.IPv6Address{"2001:db8::9"}
			},
			ready: "False IPv6NotServed: interface eth0 requests 2001:db8::9, but Kea allocates IPv4 addresses only: remove ipv6Addresses, or use a network whose ipAllocation.type is static",
		},
		"NoIPv4": {
			reason: "the network is IPv6 only", network: func(nn *v1alpha2.NetworkNamespace) { nn.Status.IPv4Prefix = "" }, macs: []string{macA}, phase: "Error",
			ready: "False NoIPv4Prefix: NetworkNamespace net has no IPv4 prefix, and Kea allocates IPv4 addresses only: use a network with one, or set its ipAllocation.type to static",
		},
		"Ambiguous": {
			reason: "a guess would be wrong half of the time", second: true, macs: []string{macA}, phase: "Pending",
			ready: "False NetworkNamespaceAmbiguous: namespace {ns} has several NetworkNamespaces: write one of net, second into networkNamespaceName",
		},
		"Strict": {
			reason: "defaults are disabled", macs: []string{macA}, environment: []string{"KEA_STRICT_DEFAULTS=true"}, phase: "Error",
			ready: "False ProviderNotExplicit: KEA_STRICT_DEFAULTS is set: write kea into spec.provider",
		},
		"NoKea": {
			reason: "the installation has static addresses only", macs: []string{macA}, noKea: true, phase: "Pending",
			ready: "False KeaNotConfigured: this installation has no Kea: set KEA_URL, or use a network of type static in place of NetworkNamespace net",
		},
		"Static": {
			reason: "allocate-ip's", macs: []string{macA}, ready: "none",
			network: func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Type = v1alpha2.AllocationStatic },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls := []string{nowhere}
			if tc.noKea {
				urls = nil
			}
			w := newEnv(t, urls, tc.environment...)
			w.network("net", "10.77.0.0/24", tc.network)
			if tc.second {
				w.network("second", "10.78.0.0/24", nil)
			}
			w.configuration("vm", tc.macs, tc.change)
			nc := w.reconcile("vm")
			want := expand(tc.ready, w.namespace)
			if ready(nc) != want || nc.Status.Phase != tc.phase || len(nc.Finalizers) != 0 {
				t.Errorf("%s: got phase %s, finalizers %v, Ready %s, want %s", tc.reason, nc.Status.Phase, nc.Finalizers, ready(nc), want)
			}
			if again := w.reconcile("vm"); again.ResourceVersion != nc.ResourceVersion {
				t.Errorf("%s: a repeated delivery wrote a difference", tc.reason)
			}
		})
	}
}

package main

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

// staticProvider is the value of provider that selects this function.
const staticProvider = "static-ip-operator"

// servesStatic reports whether this function allocates the addresses of a network for the
// value provider. If the network and provider contradict each other, problem says what to
// change.
func servesStatic(nn *v1alpha2.NetworkNamespace, provider string) (ours bool, problem string) {
	policy := nn.Spec.IPAllocation
	static := policy != nil && policy.Type == v1alpha2.AllocationStatic
	switch {
	case static && policy.Provider != "" && !strings.EqualFold(policy.Provider, staticProvider):
		return false, ""
	case static && (provider == "" || strings.EqualFold(provider, staticProvider)):
		return true, ""
	case static:
		return false, fmt.Sprintf("NetworkNamespace %s allocates addresses by %s, but spec.provider is %s: leave spec.provider out", nn.Name, staticProvider, provider)
	case strings.EqualFold(provider, staticProvider):
		return false, fmt.Sprintf("NetworkNamespace %s allocates addresses by dhcp, but spec.provider is %s: leave spec.provider out", nn.Name, provider)
	default:
		return false, ""
	}
}

// waitsForNetwork says what a network waits for, and is empty if it is provisioned.
func waitsForNetwork(nn *v1alpha2.NetworkNamespace) string {
	if network.IsProvisioned(nn) {
		return ""
	}
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return fmt.Sprintf("waits for NetworkNamespace %s: %s: %s", nn.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("waits for NetworkNamespace %s to be provisioned", nn.Name)
}

// families returns the address families of a network, IPv4 first.
func families(nn *v1alpha2.NetworkNamespace) (f []v1alpha2.IPFamily) {
	if nn.Status.IPv4Prefix != "" {
		f = append(f, v1alpha2.IPv4)
	}
	if nn.Status.IPv6Prefix != "" {
		f = append(f, v1alpha2.IPv6)
	}
	return f
}

func gatewayOf(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) string {
	if g := ipam.Gateway(nn, family); g.IsValid() {
		return g.String()
	}
	return ""
}

func dnsOf(nn *v1alpha2.NetworkNamespace) []string {
	if p := nn.Spec.IPAllocation; p != nil && p.Static != nil && len(p.Static.DNS) > 0 {
		return p.Static.DNS
	}
	return nn.Status.DNS
}

func ttlOf(nn *v1alpha2.NetworkNamespace) int32 {
	if p := nn.Spec.IPAllocation; p != nil && p.Static != nil {
		return p.Static.TTLSeconds
	}
	return 0
}

func reuseDelay(nn *v1alpha2.NetworkNamespace) time.Duration {
	if p := nn.Spec.IPAllocation; p != nil && p.Static != nil {
		return time.Duration(p.Static.ReuseDelaySeconds) * time.Second
	}
	return 0
}

// familyOf returns the family of an IPAllocation's address.
func familyOf(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) v1alpha2.IPFamily {
	if a.Spec.IPFamily != "" {
		return a.Spec.IPFamily
	}
	if have, err := netip.ParseAddr(a.Status.Address); err == nil && have.Is4() {
		return v1alpha2.IPv4
	}
	if requested, err := netip.ParseAddr(a.Spec.RequestedAddress); err == nil && requested.Is6() {
		return v1alpha2.IPv6
	}
	if nn.Status.IPv4Prefix == "" && a.Spec.RequestedAddress == "" {
		return v1alpha2.IPv6
	}
	return v1alpha2.IPv4
}

package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/network"
)

// waitsForNetwork says what a network waits for, and is empty if it is provisioned.
func waitsForNetwork(nn *v1alpha2.NetworkNamespace) string {
	if network.IsProvisioned(nn) {
		return ""
	}
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return fmt.Sprintf("waiting for NetworkNamespace %s: %s: %s", nn.Name, c.Reason, c.Message)
	}
	return fmt.Sprintf("waiting for NetworkNamespace %s to be provisioned", nn.Name)
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

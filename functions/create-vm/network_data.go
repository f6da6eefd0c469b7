package main

import (
	"fmt"
	"net/netip"
	"slices"

	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// secondaryMetric is the metric of a default route by DHCP on an interface that does not
// have the machine's default route. It is above the metrics of static routes and of other
// leases.
const secondaryMetric = 4096

// networkData returns a network configuration of version 2, as cloud-init documents it,
// or nothing if the guest needs none: with one interface that requests a
// lease. With a configuration, a guest sets up no interface that is not in it, so that it
// has them all. The gateways are in gateway4 and gateway6, since cloud-init 22.4 turns a
// route to ::/0 into one to ::/64.
func networkData(nics []hypervisor.NIC) (string, error) {
	if len(nics) == 0 || (len(nics) == 1 && !nics[0].Static) {
		return "", nil
	}
	ethernets := map[string]any{}
	for _, n := range nics {
		e := map[string]any{"match": map[string]any{"macaddress": n.MAC}, "set-name": n.Name}
		if n.Static {
			describeStatic(n, e)
		} else {
			describeLease(n, e)
		}
		if n.MTU > 0 {
			e["mtu"] = n.MTU
		}
		ethernets[n.Name] = e
	}
	out, err := yaml.Marshal(map[string]any{"version": 2, "ethernets": ethernets})
	if err != nil {
		return "", fmt.Errorf("write network configuration: %w", err)
	}
	return string(out), nil
}

// describeStatic writes the addresses of an interface into its part of a network
// configuration.
func describeStatic(n hypervisor.NIC, e map[string]any) {
	e["dhcp4"], e["dhcp6"] = false, false
	e["addresses"] = formatPrefixes(n.Addresses)
	for _, g := range n.Gateways {
		if g.Is6() {
			e["gateway6"] = g.String()
		} else {
			e["gateway4"] = g.String()
		}
	}
	if len(n.DNS) > 0 {
		e["nameservers"] = map[string]any{"addresses": n.DNS}
	}
}

// describeLease has an interface ask for leases.
func describeLease(n hypervisor.NIC, e map[string]any) {
	e["dhcp4"], e["dhcp6"] = true, slices.ContainsFunc(n.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() })
	if n.Secondary {
		e["dhcp4-overrides"] = map[string]any{"route-metric": secondaryMetric}
	}
}

// formatPrefixes returns prefixes as text.
func formatPrefixes(prefixes []netip.Prefix) []string {
	out := make([]string, len(prefixes))
	for i, p := range prefixes {
		out[i] = p.String()
	}
	return out
}

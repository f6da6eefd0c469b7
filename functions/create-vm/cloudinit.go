package main

import (
	"fmt"

	"sigs.k8s.io/yaml"
)

// networkConfig writes a network configuration of version 2, as cloud-init
// documents it, for the interfaces whose addresses the guest has to be told.
// Without such an interface it is empty.
func networkConfig(nics []nic) (string, error) {
	ethernets := map[string]any{}
	for _, n := range nics {
		if !n.static {
			continue
		}
		e := map[string]any{"match": map[string]any{"macaddress": n.mac}, "set-name": n.name, "dhcp4": false, "dhcp6": false}
		var addresses []string
		for _, a := range n.addresses {
			addresses = append(addresses, a.String())
		}
		e["addresses"] = addresses
		var routes []any
		for _, g := range n.gateways {
			to := "0.0.0.0/0"
			if g.Is6() {
				to = "::/0"
			}
			routes = append(routes, map[string]any{"to": to, "via": g.String()})
		}
		if routes != nil {
			e["routes"] = routes
		}
		if len(n.dns) > 0 {
			e["nameservers"] = map[string]any{"addresses": n.dns}
		}
		if n.mtu > 0 {
			e["mtu"] = n.mtu
		}
		ethernets[n.name] = e
	}
	if len(ethernets) == 0 {
		return "", nil
	}
	out, err := yaml.Marshal(map[string]any{"version": 2, "ethernets": ethernets})
	if err != nil {
		return "", fmt.Errorf("write network configuration: %w", err)
	}
	return string(out), nil
}

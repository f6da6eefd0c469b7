package kubevirt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// defaultBridge is the bridge of a network if nothing names one.
const defaultBridge = "br0"

// attachmentName returns the name of the NetworkAttachmentDefinition of an interface. Machines
// of one network share it if they have the same bridge and MTU.
func attachmentName(n hypervisor.NIC, defaults v1alpha1.ProviderDefaults) string {
	parts := []string{n.Network, bridgeName(n, defaults)}
	if n.VLAN != 0 {
		parts = append(parts, fmt.Sprintf("vlan%d", n.VLAN))
	}
	if n.MTU != 0 {
		parts = append(parts, fmt.Sprintf("mtu%d", n.MTU))
	}
	return kube.Name(parts...)
}

// attachmentNameIn is attachmentName for an interface of a virtual machine with networks. A virtual machine of an earlier version
// has an attachment whose name lacks the MTU, and keeps it.
func attachmentNameIn(networks []kubevirtv1.Network, n hypervisor.NIC, defaults v1alpha1.ProviderDefaults) string {
	earlier := n
	earlier.MTU = 0
	name := attachmentName(earlier, defaults)
	if slices.ContainsFunc(networks, func(has kubevirtv1.Network) bool {
		return has.Name == n.Name && has.Multus != nil && has.Multus.NetworkName == name
	}) {
		return name
	}
	return attachmentName(n, defaults)
}

// bridgeName returns the bridge of an interface.
func bridgeName(n hypervisor.NIC, defaults v1alpha1.ProviderDefaults) string {
	return cmp.Or(n.Bridge, defaults.Bridge, defaultBridge)
}

// attachmentConfig returns the CNI configuration of an interface: a port of a bridge on the
// host, without address management, because layer 2 allocates the addresses. The port accepts
// frames only from the MAC address of the interface.
func attachmentConfig(n hypervisor.NIC, name string, defaults v1alpha1.ProviderDefaults) (string, error) {
	plugin := map[string]any{"type": "bridge", "bridge": bridgeName(n, defaults), "ipam": map[string]any{}, spoofCheck: true}
	if n.VLAN != 0 {
		plugin["vlan"] = n.VLAN
	}
	if n.MTU != 0 {
		plugin["mtu"] = n.MTU
	}
	config, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": []any{plugin}})
	if err != nil {
		return "", fmt.Errorf("write CNI configuration %s: %w", name, err)
	}
	return string(config), nil
}

// sameSegment reports whether two CNI configurations attach to one bridge and VLAN. Other content, such
// as another plugin, may differ.
func sameSegment(there, wanted string) bool {
	type plugin struct {
		Bridge string `json:"bridge"`
		VLAN   int32  `json:"vlan"`
	}
	segment := func(config string) (plugin, bool) {
		var c struct {
			plugin
			Plugins []plugin `json:"plugins"`
		}
		if json.Unmarshal([]byte(config), &c) != nil {
			return plugin{}, false
		}
		for _, p := range append(c.Plugins, c.plugin) {
			if p.Bridge != "" {
				return p, true
			}
		}
		return plugin{}, false
	}
	a, known := segment(there)
	b, _ := segment(wanted)
	return known && a == b
}

// spoofCheck is the parameter with which the CNI plugin bridge drops frames whose source
// is not the MAC address of the interface (https://www.cni.dev/plugins/current/main/bridge/).
const spoofCheck = "macspoofchk"

// withSpoofCheck returns a CNI configuration that checks MAC addresses in each plugin that attaches to
// a bridge. It returns a malformed configuration unchanged.
func withSpoofCheck(config string) string {
	var c map[string]any
	if json.Unmarshal([]byte(config), &c) != nil {
		return config
	}
	plugins, _ := c["plugins"].([]any)
	changed := false
	for _, p := range append(plugins, c) {
		plugin, _ := p.(map[string]any)
		if bridge, _ := plugin["bridge"].(string); bridge != "" && plugin[spoofCheck] != true {
			plugin[spoofCheck], changed = true, true
		}
	}
	out, err := json.Marshal(c)
	if !changed || err != nil {
		return config
	}
	return string(out)
}

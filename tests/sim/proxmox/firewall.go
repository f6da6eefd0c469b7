package proxmox

import (
	"maps"
	"strconv"
)

// firewallOptions are the options of a machine's firewall (pve-firewall,
// PVE::Firewall::vm_option_properties).
var firewallOptions = schema{
	"enable": boolean(), "macfilter": boolean(), "dhcp": boolean(), "ndp": boolean(), "radv": boolean(), "ipfilter": boolean(),
	"policy_in": text().oneOf("ACCEPT", "REJECT", "DROP"), "policy_out": text().oneOf("ACCEPT", "REJECT", "DROP"),
	"log_level_in": text().oneOf(firewallLevels...), "log_level_out": text().oneOf(firewallLevels...),
}

var firewallLevels = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug", "nolog"}

// firewallMethods are the methods of pve-firewall: PVE::API2::Firewall::VM and Cluster.
func firewallMethods(add adder) {
	add("GET", "/cluster/firewall/options", method{run: clusterFirewall, allowed: func(c *call) error { return c.demand("/", "Sys.Audit") }})
	add("GET", machinePath+"/firewall/options", method{run: machineFirewall, params: onMachine, allowed: onVM("VM.Audit")})
	add("PUT", machinePath+"/firewall/options", method{run: setMachineFirewall, allowed: onVM("VM.Config.Network"),
		params: merge(onMachine, firewallOptions, schema{"delete": text().with(isOptionList), "digest": text().atMost(64)})})
}

// clusterFirewall reports whether the firewall of the cluster is enabled.
func clusterFirewall(c *call) (any, error) {
	enable := 0
	if c.server.options.Firewall {
		enable = 1
	}
	return map[string]any{"enable": enable, "digest": digest(map[string]string{"enable": strconv.Itoa(enable)}, nil)}, nil
}

func machineFirewall(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	view := map[string]any{"digest": digest(m.Firewall, nil)}
	for option, value := range m.Firewall {
		view[option] = value
		if firewallOptions[option].kind == kindBoolean {
			view[option] = 0
			if value == "1" {
				view[option] = 1
			}
		}
	}
	return view, nil
}

func setMachineFirewall(c *call) (any, error) {
	m, err := c.machineOf()
	if err != nil {
		return nil, err
	}
	c.take("vmid")
	c.take("node")
	if given := c.take("digest"); given != "" && given != digest(m.Firewall, nil) {
		return nil, die("detected modified configuration - file changed by other user? Try again.")
	}
	remove := splitList(c.take("delete"))
	for _, option := range remove {
		if _, known := firewallOptions[option]; !known {
			return nil, badParameter("delete", "no such option '%s'", option)
		}
	}
	if m.Firewall == nil {
		m.Firewall = map[string]string{}
	}
	for _, option := range remove {
		delete(m.Firewall, option)
	}
	maps.Copy(m.Firewall, c.params)
	return nil, nil
}

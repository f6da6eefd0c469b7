package changes

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/vitistack/stack/tests/stand/engine"
)

// keaText returns the configuration file of Kea.
func (w *world) keaText() string {
	for _, path := range [][]string{{"kea", "kea-dhcp4.conf"}, {"kea.json"}} {
		var config any
		if w.read(&config, path...); config != nil {
			text, _ := json.Marshal(config)
			return string(text)
		}
	}
	return "no configuration of Kea"
}

// allocatorOf returns the allocator that a network reports.
func allocatorOf(on, want string) func(*world) string {
	return func(w *world) string {
		return is(w.field(subjects[on], "status.ipAllocationSummary.provider"), want)
	}
}

// inPool checks the first address that a new reservation in the spare network gets.
func inPool(tail string) func(*world) string {
	return func(w *world) string {
		w.once("newcomer", func() {
			w.e.Apply("spare", "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: newcomer}\nspec: {networkNamespaceName: network}\n")
		})
		address := fmt.Sprint(w.field(subject{engine.IPAllocations, "spare", "newcomer", ""}, "status.address"))
		if !strings.HasSuffix(address, tail) {
			return "the new address is " + address
		}
		return ""
	}
}

func networkRows() []row {
	rows := []row{
		{field: "datacenterIdentifier", on: "manual", to: "no-east-az1"},
		{field: "supervisorIdentifier", on: "spare", to: "team-blue", check: func(w *world) string {
			return is(w.field(subjects["spare"], "status.supervisorIdentifier"), "team-blue")
		}},
		{field: "supervisorIdentifier", on: "nam", to: "team-blue"},
		{field: "protected", on: "dhcp", to: "true", check: deletionRefused("dhcp")},
		{field: "ipAllocation.type", on: "manual", to: "dhcp", with: map[string]string{"ipAllocation.static": "null"}},
		{field: "ipAllocation.provider", on: "manual", to: "static-ip-operator", check: allocatorOf("manual", "static-ip-operator")},
		{field: "ipAllocation.provider", on: "dhcp", to: "infoblox"},
		{field: "ipAllocation.dhcp.dns", on: "dhcp", to: "[127.64.20.53]", check: func(w *world) string { return has(w.keaText(), "127.64.20.53") }},
		{field: "ipAllocation.dhcp.requireClientClasses", on: "dhcp", to: "[blue]"},
		{field: "ipAllocation.static.dns", on: "manual", to: "[192.0.2.53]", check: func(w *world) string { return has(w.talosConfig("single-cp-0"), "192.0.2.53") }},
		{field: "ipAllocation.static.excludedAddresses", on: "spare", to: "[10.78.0.200]", check: inPool(".201")},
		{field: "ipAllocation.static.ipv4CIDR", on: "manual", to: "10.99.0.0/24"},
		{field: "ipAllocation.static.ipv4Gateway", on: "nam", to: "127.65.0.77"},
		{field: "ipAllocation.static.ipv4RangeStart", on: "spare", to: "10.78.0.200", check: inPool(".201")},
		{field: "ipAllocation.static.ipv4RangeEnd", on: "spare", to: "10.78.0.201", check: inPool(".201")},
		{field: "ipAllocation.static.ipv6CIDR", on: "spare", to: "2001:db8:99::/64"},
		{field: "ipAllocation.static.ipv6Gateway", on: "nam", to: "2001:db8::77"},
		{field: "ipAllocation.static.ipv6RangeStart", on: "nam", to: "2001:db8:6500::ff00", proof: "apis/network/ipam TestPoolProperties"},
		{field: "ipAllocation.static.ipv6RangeEnd", on: "nam", to: "2001:db8:6500::ff00", proof: "apis/network/ipam TestPoolProperties"},
		{field: "ipAllocation.static.reuseDelaySeconds", on: "manual", to: "600", proof: "functions/allocate-ip TestReleaseDelaysReuse"},
		{field: "ipAllocation.static.ttlSeconds", on: "manual", to: "600", proof: "functions/allocate-ip TestTTL"},
		{field: "ipAllocation.static.vlanId", on: "manual", to: "77"},
		{field: "ipAllocation.static.vlanId", on: "nam", to: "77", proof: "functions/provision-network TestVLANOfPool"},
		{field: "networkProvisioning.provider", on: "nam", to: "netbox", with: map[string]string{"networkProvisioning.nam": "null"}},
		{field: "networkProvisioning.manual.ipv4CIDR", on: "manual", to: "10.99.0.0/24", with: map[string]string{"networkProvisioning.manual.ipv4Gateway": "null", "ipAllocation.static": "{}"}},
		{field: "networkProvisioning.manual.ipv4Gateway", on: "manual", to: "__BASE__.2"},
		{field: "networkProvisioning.manual.ipv6CIDR", on: "manual", to: "2001:db8:99::/64"},
		{field: "networkProvisioning.manual.ipv6Gateway", on: "manual", to: "fe80::1"},
		{field: "networkProvisioning.manual.vlanId", on: "manual", to: "99"},
		{field: "networkProvisioning.parameters", on: "external IPAM", to: "{prefixLength: '26'}"},
	}
	for _, r := range []row{
		{field: "ipFamilies", to: "[IPv6]"}, {field: "ipv4PrefixLength", to: "25"}, {field: "ipv6PrefixLength", to: "65"},
		{field: "customFields", to: "{team: red}"}, {field: "role", to: "guests"}, {field: "site", to: "oslo"}, {field: "vlanGroup", to: "guests"},
	} {
		for _, provider := range []string{"nam", "netbox"} {
			if provider == "nam" && !strings.HasPrefix(r.field, "ip") {
				continue
			}
			rows = append(rows, row{field: "networkProvisioning." + provider + "." + r.field, on: provider, to: r.to})
		}
	}
	return rows
}

// deletionRefused checks that the API server refuses to delete a protected object.
func deletionRefused(on string) func(*world) string {
	return func(w *world) string {
		return has(fmt.Sprint(w.dryDelete(subjects[on])), "is protected")
	}
}

// stored checks that an object has a text for people, which nothing else reads.
func stored(on, path, want string) func(*world) string {
	return func(w *world) string { return is(w.field(subjects[on], "spec."+path), want) }
}

func configurationRows() []row {
	rows := []row{
		{field: "clusterIdentifier", on: "static", to: "blue", check: func(w *world) string {
			return has(fmt.Sprint(w.field(subjects["manual"], "status.associatedKubernetesClusterIds")), "blue")
		}},
		{field: "bridge", on: "static", to: "br9"},
		{field: "mtu", on: "static", to: "1400"},
		{field: "provider", on: "Kea", to: "static-ip-operator", proof: "functions/kea-reserve TestChanges"},
		{field: "vlan", on: "static", to: "77", proof: "functions/allocate-ip TestOtherVLAN"},
		{field: "networkNamespaceName", on: "static", to: "other"},
		{field: "networkInterfaces[].ipv4Addresses", on: "Kea", to: "[127.64.20.99]", check: func(w *world) string { return has(w.keaText(), "127.64.20.99") }},
		{field: "networkInterfaces[].ipv4Addresses", on: "static", to: "[__BASE__.99]", check: func(w *world) string {
			return has(fmt.Sprint(w.field(subjects["static"], "status.networkInterfaces")), ".99]")
		}},
		{field: "networkInterfaces[].ipv6Addresses", on: "static", to: "[2001:db8::99]", proof: "functions/allocate-ip TestRequestChanges"},
		{field: "networkInterfaces[].macAddress", on: "Kea", to: "02:00:00:00:20:77", check: func(w *world) string { return has(strings.ToLower(w.keaText()), "02:00:00:00:20:77") }},
		{field: "networkInterfaces[].name", on: "dual stack", to: "eth9", check: func(w *world) string {
			if w.e.Get(engine.IPAllocations, "tour-nam", "host-eth9") == nil {
				return "no IPAllocation host-eth9"
			}
			return ""
		}},
	}
	for field, value := range map[string]string{"datacenterIdentifier": "no-east-az1", "supervisorIdentifier": "team-blue", "description": "blue", "name": "blue"} {
		rows = append(rows, row{field: field, on: "static", to: value, check: stored("static", field, value)})
	}
	return rows
}

func allocationRows() (rows []row) {
	for field, value := range map[string]string{
		"interfaceName": "eth9", "ipFamily": "IPv6", "networkConfigurationName": "other", "networkNamespaceName": "other", "requestedAddress": "192.0.2.9",
	} {
		rows = append(rows, row{field: field, on: "reservation", to: value})
	}
	return rows
}

// admitted checks that the network that a pool excluded has its segment.
func admitted(gate string) func(*world) string {
	return func(w *world) string {
		return is(w.field(subject{engine.NetworkNamespaces, "gate-" + gate, "network", ""}, "status.provisioningPhase"), "Ready")
	}
}

func poolRows() []row {
	rows := []row{
		{field: "bridges", on: "pool by bridges", to: "[br9]", check: func(w *world) string {
			vm := w.e.Get(engine.VirtualMachines, "gate-bridges", "bridged")
			if vm == nil {
				return "no VirtualMachine bridged"
			}
			text, _ := json.Marshal(vm.Object)
			return has(string(text), "br9")
		}},
	}
	for field, to := range map[string][2]string{
		"providers": {"providers", "[manual]"}, "vlans": {"vlans", `["3000-3999"]`}, "prefixes": {"prefixes", "[10.77.0.0/16]"}, "shareVLANs": {"share", "true"},
		"allowedNamespaces.list":                                 {"list", "[gate-list]"},
		"allowedNamespaces.selector.matchLabels":                 {"labels", "{vitistack.io/gate: labels}"},
		"allowedNamespaces.selector.matchExpressions[].key":      {"key", "vitistack.io/gate"},
		"allowedNamespaces.selector.matchExpressions[].operator": {"operator", "Exists"},
		"allowedNamespaces.selector.matchExpressions[].values":   {"values", "[values]"},
	} {
		rows = append(rows, row{field: field, on: "pool by " + to[0], to: to[1], check: admitted(to[0])})
	}
	return rows
}

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
	const (
		wait     = "of a network that is Ready cannot be changed"
		addition = "ipAllocation.static.ipv4CIDR lies outside"
	)
	rows := []row{
		{field: "datacenterIdentifier", on: "manual", to: "no-east-az1", outcome: refused, effect: "the data centre " + wait},
		{field: "supervisorIdentifier", on: "spare", to: "team-blue", outcome: applied, effect: "the status names the new supervisor", check: func(w *world) string {
			return is(w.field(subjects["spare"], "status.supervisorIdentifier"), "team-blue")
		}},
		{field: "supervisorIdentifier", on: "nam", to: "team-blue", outcome: refused, effect: "the supervisor " + wait},
		{field: "protected", on: "dhcp", to: "true", outcome: applied, effect: "a deletion is refused", check: deletionRefused("dhcp")},
		{field: "ipAllocation.type", on: "manual", to: "dhcp", with: map[string]string{"ipAllocation.static": "null"}, outcome: refused, effect: "ipAllocation.type " + wait},
		{field: "ipAllocation.provider", on: "manual", to: "static-ip-operator", outcome: applied, effect: "names the allocator that type selects anyway; no other is accepted", check: allocatorOf("manual", "static-ip-operator")},
		{field: "ipAllocation.provider", on: "dhcp", to: "infoblox", outcome: refused, effect: "write static-ip-operator for type static or kea for type dhcp"},
		{field: "ipAllocation.dhcp.dns", on: "dhcp", to: "[127.64.20.53]", outcome: applied, effect: "Kea announces the servers to the clients of the subnet", check: func(w *world) string { return has(w.keaText(), "127.64.20.53") }},
		{field: "ipAllocation.dhcp.requireClientClasses", on: "dhcp", to: "[blue]", outcome: initial, effect: "ipAllocation.dhcp.requireClientClasses " + wait},
		{field: "ipAllocation.static.dns", on: "manual", to: "[192.0.2.53]", outcome: applied, effect: "new machines and the nodes of clusters use the servers", check: func(w *world) string { return has(w.talosConfig("single-cp-0"), "192.0.2.53") }},
		{field: "ipAllocation.static.excludedAddresses", on: "spare", to: "[10.78.0.200]", outcome: applied, effect: "the addresses are not allocated any more; an interface that has one keeps it", check: inPool(".201")},
		{field: "ipAllocation.static.ipv4CIDR", on: "manual", to: "10.99.0.0/24", outcome: refused, effect: addition},
		{field: "ipAllocation.static.ipv4Gateway", on: "nam", to: "127.65.0.77", outcome: refused, effect: "the gateway " + wait},
		{field: "ipAllocation.static.ipv4RangeStart", on: "spare", to: "10.78.0.200", outcome: applied, effect: "new addresses come from the range; interfaces keep theirs", check: inPool(".201")},
		{field: "ipAllocation.static.ipv4RangeEnd", on: "spare", to: "10.78.0.201", outcome: applied, effect: "new addresses come from the range; interfaces keep theirs", check: inPool(".201")},
		{field: "ipAllocation.static.ipv6CIDR", on: "spare", to: "2001:db8:99::/64", outcome: refused, effect: "ipAllocation.static has a prefix of a family"},
		{field: "ipAllocation.static.ipv6Gateway", on: "nam", to: "2001:db8::77", outcome: refused, effect: "the gateway " + wait},
		{field: "ipAllocation.static.ipv6RangeStart", on: "nam", to: "2001:db8:6500::ff00", outcome: applied, effect: "new addresses come from the range; interfaces keep theirs", proof: "functions/internal/ipam TestPoolProperties"},
		{field: "ipAllocation.static.ipv6RangeEnd", on: "nam", to: "2001:db8:6500::ff00", outcome: applied, effect: "new addresses come from the range; interfaces keep theirs", proof: "functions/internal/ipam TestPoolProperties"},
		{field: "ipAllocation.static.reuseDelaySeconds", on: "manual", to: "600", outcome: applied, effect: "addresses that are released afterwards stay free for the time", proof: "functions/allocate-ip TestReleaseDelaysReuse"},
		{field: "ipAllocation.static.ttlSeconds", on: "manual", to: "600", outcome: applied, effect: "addresses expire after the time, counted from their next renewal", proof: "functions/allocate-ip TestTTL"},
		{field: "ipAllocation.static.vlanId", on: "manual", to: "77", outcome: refused, effect: "a segment has one VLAN"},
		{field: "networkProvisioning.provider", on: "nam", to: "netbox", with: map[string]string{"networkProvisioning.nam": "null"}, outcome: refused, effect: "the provider " + wait},
		{field: "networkProvisioning.manual.ipv4CIDR", on: "manual", to: "10.99.0.0/24", with: map[string]string{"networkProvisioning.manual.ipv4Gateway": "null", "ipAllocation.static": "{}"}, outcome: refused, effect: "the prefixes " + wait},
		{field: "networkProvisioning.manual.ipv4Gateway", on: "manual", to: "__BASE__.2", outcome: refused, effect: "the gateway " + wait},
		{field: "networkProvisioning.manual.ipv6CIDR", on: "manual", to: "2001:db8:99::/64", outcome: refused, effect: "the prefixes " + wait},
		{field: "networkProvisioning.manual.ipv6Gateway", on: "manual", to: "fe80::1", outcome: refused, effect: "the gateway " + wait},
		{field: "networkProvisioning.manual.vlanId", on: "manual", to: "99", outcome: refused, effect: "the VLAN " + wait},
		{field: "networkProvisioning.parameters", on: "external IPAM", to: "{prefixLength: '26'}", outcome: initial, effect: "the request for the segment " + wait},
	}
	for _, r := range []row{
		{field: "ipFamilies", to: "[IPv6]"}, {field: "ipv4PrefixLength", to: "25"}, {field: "ipv6PrefixLength", to: "65"},
		{field: "customFields", to: "{team: red}"}, {field: "role", to: "guests"}, {field: "site", to: "oslo"}, {field: "vlanGroup", to: "guests"},
	} {
		for _, provider := range []string{"nam", "netbox"} {
			if provider == "nam" && !strings.HasPrefix(r.field, "ip") {
				continue
			}
			rows = append(rows, row{field: "networkProvisioning." + provider + "." + r.field, on: provider, to: r.to, outcome: initial, effect: "the request for the segment " + wait})
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
	const people = "for people: shown with the object, and read by nothing else"
	rows := []row{
		{field: "clusterIdentifier", on: "static", to: "blue", outcome: applied, effect: "the NetworkNamespace lists the cluster in status.associatedKubernetesClusterIds", check: func(w *world) string {
			return has(fmt.Sprint(w.field(subjects["manual"], "status.associatedKubernetesClusterIds")), "blue")
		}},
		{field: "bridge", on: "static", to: "br9", outcome: refused, effect: "bridge and mtu cannot be changed once the interfaces have addresses"},
		{field: "mtu", on: "static", to: "1400", outcome: refused, effect: "bridge and mtu cannot be changed once the interfaces have addresses"},
		{field: "provider", on: "Kea", to: "static-ip-operator", outcome: applied, effect: "Kea loses the reservation, and the condition Ready says that the network allocates by another", proof: "functions/kea-reserve TestChanges"},
		{field: "vlan", on: "static", to: "77", outcome: applied, effect: "compared with the VLAN of the network: the condition Ready reports another one as VLANMismatch, and the interfaces keep their VLAN and addresses", proof: "functions/allocate-ip TestOtherVLAN"},
		{field: "networkNamespaceName", on: "static", to: "other", outcome: refused, effect: "networkNamespaceName cannot be changed"},
		{field: "networkInterfaces[].ipv4Addresses", on: "Kea", to: "[127.64.20.99]", outcome: applied, effect: "the interface gets the requested address, and its former one is released", check: func(w *world) string { return has(w.keaText(), "127.64.20.99") }},
		{field: "networkInterfaces[].ipv4Addresses", on: "static", to: "[__BASE__.99]", outcome: applied, effect: "the interface gets the requested address, and its former one is released, unless a machine uses it", check: func(w *world) string {
			return has(fmt.Sprint(w.field(subjects["static"], "status.networkInterfaces")), ".99]")
		}},
		{field: "networkInterfaces[].ipv6Addresses", on: "static", to: "[2001:db8::99]", outcome: applied, effect: "the interface gets the requested address; in a network without IPv6 the condition Ready says so", proof: "functions/allocate-ip TestRequestChanges"},
		{field: "networkInterfaces[].macAddress", on: "Kea", to: "02:00:00:00:20:77", outcome: applied, effect: "the reservation is for the new MAC address", check: func(w *world) string { return has(strings.ToLower(w.keaText()), "02:00:00:00:20:77") }},
		{field: "networkInterfaces[].name", on: "dual stack", to: "eth9", outcome: applied, effect: "the interface of the former name releases its address, and the new one gets one", check: func(w *world) string {
			if w.e.Get(engine.IPAllocations, "tour-nam", "host-eth9") == nil {
				return "no IPAllocation host-eth9"
			}
			return ""
		}},
	}
	for field, value := range map[string]string{"datacenterIdentifier": "no-east-az1", "supervisorIdentifier": "team-blue", "description": "blue", "name": "blue"} {
		rows = append(rows, row{field: field, on: "static", to: value, outcome: applied, effect: people, check: stored("static", field, value)})
	}
	return rows
}

func allocationRows() (rows []row) {
	for field, value := range map[string]string{
		"interfaceName": "eth9", "ipFamily": "IPv6", "networkConfigurationName": "other", "networkNamespaceName": "other", "requestedAddress": "192.0.2.9",
	} {
		rows = append(rows, row{field: field, on: "reservation", to: value, outcome: refused, effect: "an IPAllocation cannot be changed: delete it and create a new one"})
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
	const effect = "networks that waited for it become Ready; networks that are Ready keep their segment"
	rows := []row{
		{field: "bridges", on: "pool by bridges", to: "[br9]", outcome: applied, effect: "machines that waited for it start; machines that exist keep their interfaces", check: func(w *world) string {
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
		rows = append(rows, row{field: field, on: "pool by " + to[0], to: to[1], outcome: applied, effect: effect, check: admitted(to[0])})
	}
	return rows
}

package preview

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// onlyHost allows images of one host.
type onlyHost string

func (h onlyHost) CheckURL(address string) error {
	if u, err := url.Parse(address); err == nil && u.Hostname() == string(h) {
		return nil
	}
	return errors.New("not allowed")
}

// manual returns a manifest of a manual network.
func manual(name, fields string) string {
	return strings.Replace(networkHead, "lab", name, 1) + "spec: {networkProvisioning: {provider: manual, manual: {" + fields + "}}, ipAllocation: {type: static}}\n"
}

// poolOf returns a NetworkPool.
func poolOf(t *testing.T, spec string) v1alpha1.NetworkPool {
	t.Helper()
	p := v1alpha1.NetworkPool{}
	if err := yaml.UnmarshalStrict([]byte("metadata: {name: lab}\nspec: "+spec), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// otherNetwork returns a network of namespace b that is Ready, with VLAN 20 and 10.20.0.0/24.
func otherNetwork(t *testing.T, datacenter string) v1alpha2.NetworkNamespace {
	t.Helper()
	nn := v1alpha2.NetworkNamespace{}
	if err := yaml.UnmarshalStrict([]byte(`metadata: {name: prod, namespace: b}
spec: {networkProvisioning: {provider: nam}, datacenterIdentifier: `+datacenter+`}
status: {provisioningPhase: Ready, ipv4Prefix: 10.20.0.0/24, vlanId: 20, datacenterIdentifier: `+datacenter+`}`), &nn); err != nil {
		t.Fatal(err)
	}
	nn.UID, nn.CreationTimestamp = types.UID("prod"), metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	return nn
}

// previewCase is the preview of a manifest in the world of worldOf, which world may change. errors are how its errors
// begin, and note is how the note about its last document begins. Both are empty if there is none.
type previewCase struct {
	reason, manifest, errors, note string
	world                          func(*World)
}

func (tc previewCase) run(t *testing.T) {
	t.Parallel()
	w := worldOf(t)
	if tc.world != nil {
		tc.world(&w)
	}
	p := Make(parsed(t, tc.manifest), w)
	if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (tc.errors == "") != (got == "") {
		t.Errorf("%s: errors:\ngot  %s\nwant %s", tc.reason, got, tc.errors)
	}
	if got := p.Documents[len(p.Documents)-1].Note; !strings.HasPrefix(got, tc.note) || (tc.note == "") != (got == "") {
		t.Errorf("%s: note:\ngot  %s\nwant %s", tc.reason, got, tc.note)
	}
}

// TestNetworks previews networks by the checks of provision-network.
func TestNetworks(t *testing.T) {
	t.Parallel()
	const ended = ". The condition Ready says it then"
	with := func(datacenter string, more ...func(*World)) func(*World) {
		return func(w *World) {
			w.Networks = append(w.Networks, otherNetwork(t, datacenter))
			for _, change := range more {
				change(w)
			}
		}
	}
	pools := func(spec string) func(*World) {
		return func(w *World) { w.Settings.OptionalPools, w.Pools = false, []v1alpha1.NetworkPool{poolOf(t, spec)} }
	}
	unknown := func(w *World) { w.Settings = nil }
	held := func(w *World) {
		nc, a := v1alpha1.NetworkConfiguration{}, v1alpha2.IPAllocation{}
		nc.Name, nc.Namespace, nc.Status.NetworkNamespaceName = "vm", "b", "gone"
		nc.Status.NetworkInterfaces = []v1alpha1.InterfaceStatus{{IPv4Addresses: []string{"10.30.0.5"}, VLAN: "30"}}
		a.Name, a.Namespace, a.Spec.NetworkConfigurationName, a.Status.Address, a.Status.VLANID = "vm-eth0", "b", "vm", "10.31.0.5", 31
		w.Configurations, w.Allocations = []v1alpha1.NetworkConfiguration{nc}, []v1alpha2.IPAllocation{a}
	}
	for name, tc := range map[string]previewCase{
		"Free":     {reason: "no other network has the segment", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7")},
		"Overlap":  {reason: "a network of another namespace has the prefix", manifest: manual("lab", "ipv4CIDR: 10.20.0.128/25, vlanId: 20"), world: with("east"), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual SegmentOverlap 10.20.0.128/25 (VLAN 20) overlaps 10.20.0.0/24 of NetworkNamespace b/prod"},
		"VLAN":     {reason: "another VLAN is another segment", manifest: manual("lab", "ipv4CIDR: 10.20.0.0/24, vlanId: 21"), world: with("east")},
		"Own":      {reason: "a VLAN of another namespace is shared only by a pool", manifest: manual("lab", "ipv4CIDR: 10.21.0.0/24, vlanId: 20"), world: with("east", pools("{}")), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual SegmentOverlap VLAN 20 is that of NetworkNamespace b/prod"},
		"Shared":   {reason: "the pool shares its VLANs", manifest: manual("lab", "ipv4CIDR: 10.21.0.0/24, vlanId: 20"), world: with("east", pools("{shareVLANs: true}"))},
		"Separate": {reason: "the data centres share no bridge", manifest: strings.Replace(manual("lab", "ipv4CIDR: 10.20.0.0/24, vlanId: 20"), "spec: {", "spec: {datacenterIdentifier: west, ", 1), world: with("east", func(w *World) { w.Settings.Datacenters = segmentplan.ParseDatacenters("east") })},
		"Static":   {reason: "the pointer is where the segment is", manifest: networkHead + "spec: {ipAllocation: {type: static, static: {ipv4CIDR: 10.20.0.0/24, ipv4Gateway: 10.20.0.1, vlanId: 20}}}\n", world: with("east"), errors: "1 NetworkNamespace/lab /spec/ipAllocation/static SegmentOverlap"},
		"Twice":    {reason: "of two new networks the first one gets the segment", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7") + "---\n" + manual("second", "ipv4CIDR: 10.0.0.0/16, vlanId: 7"), errors: "2 NetworkNamespace/second /spec/networkProvisioning/manual SegmentOverlap 10.0.0.0/16 (VLAN 7) overlaps 10.0.0.0/24 of NetworkNamespace a/lab"},
		"Held":     {reason: "a machine has an address of a network that was removed by force", manifest: manual("lab", "ipv4CIDR: 10.30.0.0/24, vlanId: 30"), world: held, errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual SegmentOverlap 10.30.0.0/24 (VLAN 30) contains 10.30.0.5, which NetworkConfiguration b/vm has"},
		"Counted":  {reason: "the IPAllocation of a NetworkConfiguration counts there", manifest: manual("lab", "ipv4CIDR: 10.31.0.0/24, vlanId: 31"), world: held},

		"NoPool":    {reason: "the namespace may use no pool", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: func(w *World) { w.Settings.OptionalPools = false }, errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual NotInPool no NetworkPool allows namespace a"},
		"InPool":    {reason: "the pool has the VLAN", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: pools("{vlans: ['1-9']}")},
		"NotInPool": {reason: "the pool has other VLANs", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 10"), world: pools("{vlans: ['1-9']}"), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual NotInPool namespace a may not use VLAN 10 and 10.0.0.0/24 from provider manual: use what one NetworkPool allows (lab: VLANs 1-9)"},
		"Labels":    {reason: "the labels of the namespace choose the pool", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: pools("{allowedNamespaces: {selector: {matchLabels: {a: b}}}}"), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual NotInPool no NetworkPool allows namespace a"},
		"Provider":  {reason: "the pool is for another provider", manifest: networkHead + "spec: {networkProvisioning: {provider: netbox}}\n", world: pools("{providers: [nam]}"), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/provider NotInPool namespace a may not use a segment from provider netbox"},
		"NewPool":   {reason: "the manifest creates the pool", manifest: "apiVersion: vitistack.io/v1alpha1\nkind: NetworkPool\nmetadata: {name: p}\nspec: {vlans: ['7']}\n---\n" + manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: func(w *World) { w.Settings.OptionalPools = false }},
		"Server":    {reason: "the provider chooses the segment", manifest: networkHead + "spec: {networkProvisioning: {provider: nam}}\n", note: "not checked before the apply: the segment that provider nam gives: a NetworkPool has to allow it, no other network may have it, and it needs addresses for machines" + ended},

		"Prefix":  {reason: "host bits are a mistake", manifest: manual("lab", "ipv4CIDR: 10.0.0.7/24"), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual InvalidSpec spec.networkProvisioning.manual: prefix 10.0.0.7/24 has host bits set: write 10.0.0.0/24"},
		"Range":   {reason: "the range is outside of the prefix", manifest: strings.Replace(manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), "type: static", "type: static, static: {ipv4RangeStart: 10.9.0.1, ipv4RangeEnd: 10.9.0.9}", 1), errors: "1 NetworkNamespace/lab /spec/ipAllocation InvalidPool spec.ipAllocation.static: range 10.9.0.1-10.9.0.9 is not inside 10.0.0.0/24"},
		"Empty":   {reason: "no address is left", manifest: strings.Replace(manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), "type: static", "type: static, static: {excludedAddresses: [10.0.0.0/24]}", 1), errors: "1 NetworkNamespace/lab /spec/ipAllocation NoUsableAddress spec.ipAllocation.static leaves no IPv4 address of 10.0.0.0/24"},
		"Kea":     {reason: "Kea reserves IPv4 addresses only", manifest: strings.Replace(manual("lab", "ipv6CIDR: '2001:db8::/64'"), "static", "dhcp", 1), errors: "1 NetworkNamespace/lab /spec/ipAllocation NoUsableAddress 2001:db8::/64 has no IPv4 prefix"},
		"Unknown": {reason: "settings are not known, and no pool decides", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: unknown, note: "not checked before the apply: whether a NetworkPool allows the segment, or lets namespaces share its VLAN (no NetworkPool is for namespace a, so NETWORK_POOLS of the functions decides)" + ended},
		"Decided": {reason: "a pool decides, whatever the settings", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: func(w *World) { pools("{vlans: ['7']}")(w); unknown(w) }},
		"Centres": {reason: "settings decide whether the data centres are separate", manifest: strings.Replace(manual("lab", "ipv4CIDR: 10.20.0.0/24, vlanId: 20"), "spec: {", "spec: {datacenterIdentifier: west, ", 1), world: with("east", pools("{}"), unknown), note: "not checked before the apply: whether data centre west shares a bridge with that of another network (SEPARATE_DATACENTERS of provision-network). If it does: 10.20.0.0/24 (VLAN 20) overlaps 10.20.0.0/24 of NetworkNamespace b/prod"},
		"Same":    {reason: "networks of one data centre are never separate", manifest: strings.Replace(manual("lab", "ipv4CIDR: 10.20.0.0/24, vlanId: 20"), "spec: {", "spec: {datacenterIdentifier: east, ", 1), world: with("east", pools("{}"), unknown), errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual SegmentOverlap 10.20.0.0/24 (VLAN 20) overlaps"},
		"Unread": {reason: "what cannot be read is not checked", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: func(w *World) { w.Unread = Unread{OtherNetworks: true, Pools: true} },
			note: "not checked before the apply: whether a NetworkPool allows the segment, or lets namespaces share its VLAN (NetworkPools cannot be read); whether a network of another namespace has the segment" + ended},
		"NoLabels": {reason: "the labels that choose the pool cannot be read", manifest: manual("lab", "ipv4CIDR: 10.0.0.0/24, vlanId: 7"), world: func(w *World) {
			pools("{allowedNamespaces: {selector: {matchLabels: {a: b}}}}")(w)
			w.NamespaceLabels = func(string) (map[string]string, error) { return nil, errors.New("the labels cannot be read") }
		}, note: "not checked before the apply: whether a NetworkPool allows the segment, or lets namespaces share its VLAN (the labels cannot be read)" + ended},
	} {
		t.Run(name, tc.run)
	}
}

// TestNetworkChanges changes networks that exist.
func TestNetworkChanges(t *testing.T) {
	t.Parallel()
	head := "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: lab, uid: lab, creationTimestamp: 2026-02-01T00:00:00Z}\n"
	spec := func(rest string) string {
		return "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.20.0.0/24, vlanId: 20}}" + rest + "}"
	}
	const ready = "\nstatus: {provisioningPhase: Ready, ipv4Prefix: 10.20.0.0/24, vlanId: 20}"
	const nam = "{networkProvisioning: {provider: nam}, ipAllocation: {type: static}}"
	for name, tc := range map[string]struct {
		reason, status, before, after, errors string
		world                                 func(*World)
	}{
		"Corrected": {reason: "the new prefix is free", after: strings.Replace(spec(""), "10.20.0", "10.21.0", 1), status: "\nstatus: {provisioningPhase: Error}", world: func(w *World) { w.Networks = append(w.Networks, otherNetwork(t, "east")) }},
		"Still":     {reason: "another network has it still", after: spec(", supervisorIdentifier: s"), status: "\nstatus: {provisioningPhase: Error}", world: func(w *World) { w.Networks = append(w.Networks, otherNetwork(t, "east")) }, errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual SegmentOverlap"},
		"Itself":    {reason: "a network does not overlap itself", after: spec(", supervisorIdentifier: s"), status: ready},
		"Server":    {reason: "no address of the segment that nam has given is left", after: strings.Replace(nam, "type: static", "type: static, static: {excludedAddresses: [10.20.0.0/24]}", 1), before: nam, status: ready, errors: "1 NetworkNamespace/lab /spec/ipAllocation NoUsableAddress spec.ipAllocation.static leaves no IPv4 address of 10.20.0.0/24"},
		"Excluded":  {reason: "the pool no longer allows it", after: spec(", supervisorIdentifier: s"), status: ready, world: func(w *World) { w.Settings.OptionalPools = false }, errors: "1 NetworkNamespace/lab /spec/networkProvisioning/manual NotInPool no NetworkPool allows namespace a, so it cannot have a segment: ask the platform team to add the namespace to spec.allowedNamespaces of a NetworkPool; the network keeps its segment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := worldOf(t)
			before, after := spec(", ipAllocation: {type: static}"), strings.TrimSuffix(tc.after, "}")+", ipAllocation: {type: static}}"
			if tc.before != "" {
				before, after = tc.before, tc.after
			}
			d := changed(t, head, "spec: "+before+tc.status, after)
			d[0].After.Object["status"] = d[0].Before.Object["status"]
			existing := v1alpha2.NetworkNamespace{}
			if err := decode(d[0].Before, &existing); err != nil {
				t.Fatal(err)
			}
			w.Networks = append(w.Networks, existing)
			if tc.world != nil {
				tc.world(&w)
			}
			d[0].Checked = true
			p := Make(d, w)
			if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (tc.errors == "") != (got == "") || p.Documents[0].Action != ActionChange {
				t.Errorf("%s: %s, errors:\ngot  %s\nwant %s", tc.reason, p.Documents[0].Action, got, tc.errors)
			}
		})
	}
}

// TestNetworkOfTheFile previews clusters and machines in a network of the same manifest.
func TestNetworkOfTheFile(t *testing.T) {
	t.Parallel()
	lab := strings.Replace(manual("lab", "ipv4CIDR: 10.0.0.0/29, ipv4Gateway: 10.0.0.1, vlanId: 7"), "{networkProv", "{datacenterIdentifier: east, networkProv", 1)
	cluster := clusterHead + "spec: {networkNamespaceName: lab, topology: {version: \"1.33\", controlplane: {replicas: 1, template: small}, workers: [{name: w, replicas: 1, template: small}]}}\n"
	for name, tc := range map[string]struct{ reason, manifest, errors, warnings string }{
		"Fine":    {"the network has 5 addresses beside its gateway", lab + "---\n" + cluster, "", "2 KubernetesCluster/shop /spec/networkNamespaceName NetworkNamespace lab is not Ready: it is new"},
		"Before":  {"the order of the documents does not matter", cluster + "---\n" + lab, "", "1 KubernetesCluster/shop /spec/networkNamespaceName NetworkNamespace lab is not Ready: it is new"},
		"Full":    {"the cluster needs more addresses", lab + "---\n" + strings.Replace(cluster, "name: w, replicas: 1", "name: w, replicas: 9", 1), "", "NetworkNamespace lab has 5 free addresses, and 10 are needed"},
		"Pods":    {"pods and nodes would have the same addresses", lab + "---\n" + strings.Replace(cluster, "{networkN", "{networking: {podCIDR: 10.0.0.0/16}, networkN", 1), "2 KubernetesCluster/shop /spec/networking NetworkOverlap podCIDR 10.0.0.0/16 overlaps 10.0.0.0/29", ""},
		"Refused": {"each document has its errors", strings.Replace(lab, "10.0.0.0/29", "10.0.0.3/29", 1) + "---\n" + strings.Replace(cluster, "small", "huge", 1), "1 NetworkNamespace/lab /spec/networkProvisioning/manual InvalidSpec spec.networkProvisioning.manual: prefix 10.0.0.3/29 has host bits set: write 10.0.0.0/29\n2 KubernetesCluster/shop /spec/topology/controlplane/template TemplateNotFound", ""},
	} {
		p := Make(parsed(t, tc.manifest), worldOf(t))
		if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (tc.errors == "") != (got == "") {
			t.Errorf("%s: %s: errors:\ngot  %s\nwant %s", name, tc.reason, got, tc.errors)
		}
		if got := lines(p.Warnings); !strings.Contains(got, tc.warnings) {
			t.Errorf("%s: %s: warnings:\ngot  %s\nwant %s", name, tc.reason, got, tc.warnings)
		}
	}
}

// TestImages previews machines with images.
func TestImages(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, os, errors, note string
		unknown                  bool
	}{
		"Allowed":   {reason: "the host is allowed", os: "{imageID: 'https://images.example.com/a.qcow2'}"},
		"Template":  {reason: "a template of the hypervisor is not fetched", os: "{imageID: '9000'}", unknown: true},
		"Forbidden": {reason: "the host is not allowed", os: "{imageID: 'https://elsewhere.example.com/a.qcow2'}", errors: "1 Machine/web /spec/os/imageID ImageNotAllowed spec.os.imageID: images are not fetched from elsewhere.example.com: name an image at an allowed host"},
		"Installer": {reason: "an installer is fetched as well", os: "{isoUri: 'https://elsewhere.example.com/a.iso'}", errors: "1 Machine/web /spec/os/isoUri ImageNotAllowed"},
		"Unknown":   {reason: "the setting is not known", os: "{imageID: 'https://elsewhere.example.com/a.qcow2'}", unknown: true, note: "not checked before the apply: whether create-vm allows images from elsewhere.example.com (images.allowedHosts of the chart). The condition Ready says it then"},
	} {
		w := worldOf(t)
		if tc.unknown {
			w.Settings = nil
		}
		p := Make(parsed(t, machineHead+"spec: {template: small, os: "+tc.os+"}\n"), w)
		if got := lines(p.Errors); !strings.HasPrefix(got, tc.errors) || (tc.errors == "") != (got == "") {
			t.Errorf("%s: %s: errors:\ngot  %s\nwant %s", name, tc.reason, got, tc.errors)
		}
		if got := p.Documents[0].Note; got != tc.note {
			t.Errorf("%s: %s: note:\ngot  %s\nwant %s", name, tc.reason, got, tc.note)
		}
	}
}

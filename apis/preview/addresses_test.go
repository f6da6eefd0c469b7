package preview

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestAddresses previews NetworkConfigurations and IPAllocations by the checks of allocate-ip and create-vm.
func TestAddresses(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: prod}\nspec: {networkInterfaces: [{name: eth0"
	const allocation = "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: reserved}\nspec: {networkNamespaceName: lab"
	lab := manual("lab", "ipv4CIDR: 10.7.0.0/24, vlanId: 7") + "---\n"
	dhcp := strings.Replace(lab, "type: static", "type: dhcp", 1)
	nam := networkHead + "spec: {networkProvisioning: {provider: nam}, ipAllocation: {type: static}}\n---\n"
	pools := func(spec string) func(*World) {
		return func(w *World) { w.Settings.OptionalPools, w.Pools = false, []v1alpha1.NetworkPool{poolOf(t, spec)} }
	}
	for name, tc := range map[string]previewCase{
		"Fine":       {reason: "the VLAN is that of the network", manifest: lab + head + "}], networkNamespaceName: lab, vlan: 7}"},
		"VLAN":       {reason: "the VLAN is another one", manifest: lab + head + "}], networkNamespaceName: lab, vlan: 8}", errors: "2 NetworkConfiguration/prod /spec/vlan VLANMismatch spec.vlan is 8, but NetworkNamespace lab is in VLAN 7"},
		"Bridge":     {reason: "no pool lists the bridge", manifest: lab + head + "}], networkNamespaceName: lab, bridge: br1}", world: pools("{vlans: ['7']}"), errors: "2 NetworkConfiguration/prod /spec/bridge BridgeNotAllowed no NetworkPool of namespace a lists bridge br1 together with VLAN 7"},
		"Listed":     {reason: "the pool lists the bridge", manifest: lab + head + "}], networkNamespaceName: lab, bridge: br1}", world: pools("{vlans: ['7'], bridges: [br1]}")},
		"NotListed":  {reason: "pools cannot be read", manifest: head + "}], networkNamespaceName: site, bridge: br1}", world: func(w *World) { w.Unread.Pools = true }, note: "not checked before the apply: whether a NetworkPool lists bridge br1 with VLAN 0 (NetworkPools cannot be read). The condition Ready says it then"},
		"NoVLAN":     {reason: "the provider has not given the VLAN", manifest: nam + head + "}], networkNamespaceName: lab, vlan: 8}", note: "not checked before the apply: whether spec.vlan and spec.bridge fit the VLAN of NetworkNamespace lab"},
		"Provider":   {reason: "another function allocates", manifest: lab + head + "}], networkNamespaceName: lab, provider: kea}", errors: "2 NetworkConfiguration/prod /spec/provider ProviderMismatch NetworkNamespace lab allocates addresses by static-ip-operator, but spec.provider is kea"},
		"Requested":  {reason: "the address is in the pool", manifest: lab + head + ", ipv4Addresses: [10.7.0.9]}], networkNamespaceName: lab}"},
		"Outside":    {reason: "the address is not in the pool", manifest: lab + head + ", ipv4Addresses: [10.8.0.9]}], networkNamespaceName: lab}", errors: "2 NetworkConfiguration/prod /spec/networkInterfaces/0/ipv4Addresses AddressOutsidePool address 10.8.0.9 is outside of the pool"},
		"Reserved":   {reason: "the address is in the pool", manifest: lab + allocation + ", requestedAddress: 10.7.0.9}"},
		"Unreserved": {reason: "the address is the network address", manifest: lab + allocation + ", requestedAddress: 10.7.0.0}", errors: "2 IPAllocation/reserved /spec/requestedAddress AddressOutsidePool address 10.7.0.0 is outside of the pool"},
		"Dynamic":    {reason: "Kea allocates", manifest: dhcp + allocation + "}", errors: "2 IPAllocation/reserved /spec/networkNamespaceName NetworkNotStatic NetworkNamespace lab allocates addresses by dhcp"},
		"NoPrefix":   {reason: "the network has no prefix yet", manifest: nam + allocation + ", requestedAddress: 10.7.0.9}", note: "not checked before the apply: whether NetworkNamespace lab has the address 10.7.0.9"},
		"NoLabels": {reason: "labels that cannot be read choose the pool", manifest: head + "}], networkNamespaceName: site, bridge: br1}", world: func(w *World) {
			pools("{allowedNamespaces: {selector: {matchLabels: {a: b}}}}")(w)
			w.NamespaceLabels = func(string) (map[string]string, error) { return nil, errors.New("the labels cannot be read") }
		}, note: "not checked before the apply: whether a NetworkPool lists bridge br1 with VLAN 0 (the labels cannot be read)"},
	} {
		t.Run(name, tc.run)
	}
}

// TestDeletedNetwork warns of a network that is being deleted.
func TestDeletedNetwork(t *testing.T) {
	t.Parallel()
	w := worldOf(t)
	w.Networks[0].DeletionTimestamp = &metav1.Time{}
	p := Make(parsed(t, machineHead+"spec: {template: small}\n"), w)
	const want = "1 Machine/web /spec/networkNamespaceName NetworkDeleting NetworkNamespace site is being deleted, and allocates no addresses"
	if got := lines(p.Warnings); !strings.HasPrefix(got, want) {
		t.Errorf("warnings:\ngot  %s\nwant %s", got, want)
	}
}

// Package conformance checks that the parts of the stack fit together, and that they match their
// documentation.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/admission"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// resources are the plural names of all kinds.
var resources = []string{"networknamespaces", "networkconfigurations", "ipallocations", "machines", "machineproviders", "machineclasses", "networkpools", "clustertemplates", "kubernetesclusters", "etcdbackups"}

// read decodes a manifest, sets its namespace, and returns its resource.
func read(t *testing.T, client dynamic.Interface, namespace, doc string) (dynamic.ResourceInterface, *unstructured.Unstructured) {
	t.Helper()
	obj := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(doc), &obj.Object); err != nil {
		t.Fatalf("read %s: %v", doc, err)
	}
	resource, _ := meta.UnsafeGuessKindToResource(obj.GroupVersionKind())
	if slices.Contains([]string{"MachineProvider", "MachineClass", "ClusterTemplate", "NetworkPool", "Namespace"}, obj.GetKind()) {
		return client.Resource(resource), obj
	}
	obj.SetNamespace(namespace)
	return client.Resource(resource).Namespace(namespace), obj
}

// apply creates the objects of a YAML stream in one namespace, as a dry run with strict validation.
func apply(t *testing.T, client dynamic.Interface, namespace, stream string) error {
	t.Helper()
	for _, doc := range strings.Split(stream, "\n---\n") {
		target, obj := read(t, client, namespace, doc)
		options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		if _, err := target.Create(t.Context(), obj, options); err != nil {
			return err
		}
	}
	return nil
}

func setUp(t *testing.T) (dynamic.Interface, string) {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, resources...)
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	return client, server.Namespace(t)
}

func TestExamplesAreAccepted(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	files, err := fs.Glob(apis.Examples, "examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			doc, err := apis.Examples.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := apply(t, client, namespace, string(doc)); err != nil {
				t.Errorf("the API server rejects an example: %v", err)
			}
		})
	}
}

// TestPagesAreAccepted applies the complete manifests in the pages of docs.
func TestPagesAreAccepted(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: vitistack\\.io.*?)```")
	found := 0
	eachFile(t, ".md", func(path, page string) {
		for _, match := range block.FindAllStringSubmatch(page, -1) {
			found++
			if err := apply(t, client, namespace, match[1]); err != nil {
				t.Errorf("%s: the API server rejects\n%s\n%v", path, match[1], err)
			}
		}
	})
	if found < 3 {
		t.Errorf("only %d manifests were found", found)
	}
}

func TestOlderVersionIsServed(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	doc, err := apis.Examples.ReadFile("examples/lab-network.yaml")
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(doc), "vitistack.io/v1alpha2", "vitistack.io/v1alpha1", 1)
	if err := apply(t, client, namespace, old); err != nil {
		t.Errorf("v1alpha1 must have the same fields: %v", err)
	}
}

// TestMistakesAreRefused expects the remedy for each mistake in the API server's message.
func TestMistakesAreRefused(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const (
		nn      = "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: x}\nspec: "
		nc      = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: x}\nspec: "
		ipa     = "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: x}\nspec: "
		machine = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: x}\nspec: "
		mp      = "apiVersion: vitistack.io/v1alpha1\nkind: MachineProvider\nmetadata: {name: x}\nspec: "
		class   = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: x}\nspec: "
		size    = "{resources: {cpu: {cores: 8}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}"
		pool    = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkPool\nmetadata: {name: x}\nspec: "
		kc      = "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: x}\nspec: "
		eb      = "apiVersion: vitistack.io/v1alpha1\nkind: EtcdBackup\nmetadata: {name: x}\nspec: "
		ct      = "apiVersion: vitistack.io/v1alpha1\nkind: ClusterTemplate\nmetadata: {name: x}\nspec: "
		one     = "{data: {}, topology: {version: '1.33', controlplane: {replicas: 1}"
	)
	cases := map[string]struct{ doc, field, remedy string }{
		"ManualWithoutBlock":       {nn + "{networkProvisioning: {provider: manual}}", "spec", "give manual.ipv4CIDR or manual.ipv6CIDR"},
		"BlockWithoutManual":       {nn + "{networkProvisioning: {provider: nam, manual: {ipv4CIDR: 10.0.0.0/24}}}", "spec", "set provider to manual, or remove the block"},
		"NetBoxOfNothing":          {nn + "{networkProvisioning: {netbox: {role: tenants}}}", "spec.networkProvisioning", "set provider to netbox, or remove the block"},
		"NetBoxOfIPAM":             {nn + "{networkProvisioning: {provider: ipam, netbox: {role: tenants}}}", "spec.networkProvisioning", "set provider to netbox, or remove the block"},
		"NAMOfNetBox":              {nn + "{networkProvisioning: {provider: netbox, nam: {ipv4PrefixLength: 26}}}", "spec.networkProvisioning", "set provider to nam, or remove the block"},
		"NAMOfManual":              {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}, nam: {ipv4PrefixLength: 26}}}", "spec.networkProvisioning", "set provider to nam, or remove the block"},
		"ParametersOfNAM":          {nn + "{networkProvisioning: {parameters: {tier: gold}}}", "spec.networkProvisioning", "set provider to the name of the IPAM, or remove the block"},
		"IPv6LengthAlone":          {nn + "{networkProvisioning: {nam: {ipv6PrefixLength: 64}}}", "spec.networkProvisioning.nam", "write ipFamilies [IPv6] or [IPv4, IPv6], or remove ipv6PrefixLength"},
		"IPv6LengthOfIPv4":         {nn + "{networkProvisioning: {provider: netbox, netbox: {ipFamilies: [IPv4], ipv6PrefixLength: 64}}}", "spec.networkProvisioning.netbox", "write ipFamilies [IPv6] or [IPv4, IPv6], or remove ipv6PrefixLength"},
		"IPv4LengthOfIPv6":         {nn + "{networkProvisioning: {nam: {ipFamilies: [IPv6], ipv4PrefixLength: 26}}}", "spec.networkProvisioning.nam", "add IPv4 to ipFamilies, or remove ipv4PrefixLength"},
		"KeaDNSOfIPv6":             {nn + "{ipAllocation: {type: dhcp, dhcp: {dns: [10.0.0.2, '2001:db8::53']}}}", "spec.ipAllocation.dhcp.dns", "leave IPv6 addresses out"},
		"EmptyManual":              {nn + "{networkProvisioning: {provider: manual, manual: {}}}", "spec.networkProvisioning.manual", "give ipv4CIDR, ipv6CIDR or both"},
		"NoPrefix":                 {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0/24}}}", "spec.networkProvisioning.manual.ipv4CIDR", "write an IPv4 prefix, for example 192.168.10.0/24"},
		"HostBits":                 {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.7/24}}}", "spec.networkProvisioning.manual.ipv4CIDR", "write its network address"},
		"WrongFamily":              {nn + "{networkProvisioning: {provider: manual, manual: {ipv6CIDR: 10.0.0.0/24}}}", "spec.networkProvisioning.manual.ipv6CIDR", "write an IPv6 prefix"},
		"GatewayOutside":           {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.1.1}}}", "spec.networkProvisioning.manual", "give an address of that prefix"},
		"VLAN":                     {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, vlanId: 4095}}}", "spec.networkProvisioning.manual.vlanId", "a number from 0 (untagged) to 4094"},
		"PoolOutside":              {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static, static: {ipv4CIDR: 10.0.1.0/24}}}", "spec", "make it the same prefix or a part of it"},
		"TwoGateways":              {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.1}}, ipAllocation: {type: static, static: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.2}}}", "spec", "a segment has one gateway"},
		"TwoIPv6Gateways":          {nn + "{networkProvisioning: {provider: manual, manual: {ipv6CIDR: 2001:db8::/64, ipv6Gateway: 2001:db8::1}}, ipAllocation: {type: static, static: {ipv6Gateway: fe80::1}}}", "spec.ipAllocation", "a segment has one gateway"},
		"TwoVLANs":                 {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, vlanId: 7}}, ipAllocation: {type: static, static: {vlanId: 8}}}", "spec", "a segment has one VLAN"},
		"PoolVLANAlone":            {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static, static: {vlanId: 8}}}", "spec", "a segment has one VLAN"},
		"RangeOfNothing":           {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static, static: {ipv4RangeStart: 10.0.1.10, ipv4RangeEnd: 10.0.1.20}}}", "spec", "must lie inside networkProvisioning.manual.ipv4CIDR"},
		"RangeOfNothing6":          {nn + "{networkProvisioning: {provider: manual, manual: {ipv6CIDR: '2001:db8::/64'}}, ipAllocation: {type: static, static: {ipv6RangeStart: '2001:db8:1::10'}}}", "spec", "must lie inside networkProvisioning.manual.ipv6CIDR"},
		"PoolGatewayOutside":       {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static, static: {ipv4Gateway: 10.0.1.1}}}", "spec", "give an address of that prefix"},
		"OneAddress":               {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.1/32}}}", "spec.networkProvisioning.manual.ipv4CIDR", "write a larger one"},
		"OneAddress6":              {nn + "{networkProvisioning: {provider: manual, manual: {ipv6CIDR: '2001:db8::1/128'}}}", "spec.networkProvisioning.manual.ipv6CIDR", "write a larger one"},
		"NetworkAsGateway":         {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.0}}}", "spec.networkProvisioning.manual", "give the address of the router"},
		"PoolAsGateway":            {nn + "{ipAllocation: {type: static, static: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.0}}}", "spec.ipAllocation.static", "give the address of the router"},
		"IPv6OfDHCP":               {nn + "{networkProvisioning: {provider: manual, manual: {ipv6CIDR: '2001:db8::/64'}}}", "spec", "set ipAllocation.type to static"},
		"Infoblox":                 {nn + "{ipAllocation: {type: static, provider: infoblox}}", "spec.ipAllocation", "write static-ip-operator for type static"},
		"InfobloxOfDHCP":           {nn + "{ipAllocation: {type: dhcp, provider: infoblox}}", "spec.ipAllocation", "kea for type dhcp"},
		"KeaOfStatic":              {nn + "{ipAllocation: {type: static, provider: Kea}}", "spec.ipAllocation", "set ipAllocation.type to dhcp"},
		"StaticOfDHCP":             {nn + "{ipAllocation: {type: dhcp, provider: static-ip-operator}}", "spec.ipAllocation", "set ipAllocation.type to static"},
		"RangeReversed":            {nn + "{ipAllocation: {type: static, static: {ipv4CIDR: 10.0.0.0/24, ipv4RangeStart: 10.0.0.100, ipv4RangeEnd: 10.0.0.99}}}", "spec.ipAllocation.static", "exchange the two"},
		"RangeOutside":             {nn + "{ipAllocation: {type: static, static: {ipv4CIDR: 10.0.0.0/24, ipv4RangeStart: 10.0.1.1}}}", "spec.ipAllocation.static", "must lie inside ipv4CIDR"},
		"Exclusion":                {nn + "{ipAllocation: {type: static, static: {excludedAddresses: ['ten']}}}", "spec.ipAllocation.static.excludedAddresses", "an address, a prefix or a range"},
		"StaticUnderDHCP":          {nn + "{ipAllocation: {type: dhcp, static: {}}}", "spec.ipAllocation", "set type to static, or remove the block"},
		"AllocationType":           {nn + "{ipAllocation: {type: slaac}}", "spec.ipAllocation.type", "write dhcp or static"},
		"Identifier":               {nn + "{datacenterIdentifier: 'Trøndelag 1'}", "spec.datacenterIdentifier", "use letters, digits, - and _ only"},
		"UnknownField":             {nn + "{ipAlocation: {type: static}}", "spec.ipAlocation", "unknown field"},
		"MAC":                      {nc + "{networkInterfaces: [{name: eth0, macAddress: '52:54:00:12:34'}]}", "spec.networkInterfaces[0].macAddress", "six pairs of hex digits"},
		"ZeroMAC":                  {nc + "{networkInterfaces: [{name: eth0, macAddress: '00:00:00:00:00:00'}]}", "spec.networkInterfaces[0].macAddress", "a MAC address of zeros"},
		"ZeroMACOfMachine":         {machine + "{template: small, networks: [{name: eth0, networkName: net, macAddress: '00:00:00:00:00:00'}]}", "spec.networks[0].macAddress", "a MAC address of zeros"},
		"MulticastMAC":             {nc + "{networkInterfaces: [{name: eth0, macAddress: '53:54:00:12:34:56'}]}", "spec.networkInterfaces[0].macAddress", "unicast MAC address"},
		"InterfaceName":            {nc + "{networkInterfaces: [{name: 'ETH 0'}]}", "spec.networkInterfaces[0].name", "use lower case letters, digits and - only"},
		"SameInterface":            {nc + "{networkInterfaces: [{name: eth0}, {name: eth0}]}", "spec.networkInterfaces[1]", "Duplicate value"},
		"Requested":                {ipa + "{networkNamespaceName: net, requestedAddress: ten}", "spec.requestedAddress", "write one IP address"},
		"RequestedFamily":          {ipa + "{networkNamespaceName: net, ipFamily: IPv6, requestedAddress: 10.0.0.5}", "spec", "change ipFamily, or leave it out"},
		"NothingToStartFrom":       {machine + "{}", "spec", "give template (small, medium, large or a MachineClass)"},
		"DiskWithoutSize":          {machine + "{template: small, disks: [{name: data}]}", "spec", "every disk needs a size"},
		"DiskSize":                 {machine + "{template: small, disks: [{name: data, size: '0'}]}", "spec.disks[0].size", "at least 1Mi"},
		"DiskWithoutUnit":          {machine + "{template: small, disks: [{name: data, size: '20'}]}", "spec.disks[0].size", "a size with its unit"},
		"DiskTooLarge":             {machine + "{template: small, disks: [{name: data, size: '9623372032854775807'}]}", "spec.disks[0].size", "below 1Ei"},
		"DiskExponent":             {machine + "{template: small, disks: [{name: data, size: '1e-999999999'}]}", "spec.disks[0].size", "below 1Ei"},
		"DiskName":                 {machine + "{template: small, disks: [{name: cloudinitdisk, size: 1Gi}]}", "spec.disks[0].name", "keeps that name for itself"},
		"AccessMode":               {machine + "{template: small, disks: [{name: data, size: 1Gi, accessMode: RWO}]}", "spec.disks[0].accessMode", "write ReadWriteOnce, ReadWriteMany or ReadOnlyMany"},
		"Memory":                   {machine + "{template: small, resources: {memory: {size: '-1Gi'}}}", "spec.resources.memory.size", "at least 1Mi"},
		"MemoryWithoutUnit":        {machine + "{template: small, resources: {memory: {size: '512'}}}", "spec.resources.memory.size", "a size with its unit"},
		"Cores":                    {machine + "{template: small, resources: {cpu: {cores: 0}}}", "spec.resources.cpu.cores", "greater than or equal to 1"},
		"NICModel":                 {machine + "{template: small, networks: [{name: eth0, networkName: net, model: ne2000}]}", "spec.networks[0].model", "write virtio, e1000 or rtl8139"},
		"TwoNetworks":              {machine + "{template: small, networkNamespaceName: a, networks: [{name: eth0, networkName: net}]}", "spec", "leave it out"},
		"SecureBoot":               {machine + "{template: small, domain: {firmware: {bootloader: {secureBoot: true}}}}", "spec.domain.firmware.bootloader", "set efi to true as well"},
		"BoardType":                {machine + "{template: small, domain: {machine: {type: virt}}}", "spec.domain.machine.type", "write pc-q35 or pc-i440fx"},
		"EmptyCloudInit":           {machine + "{template: small, cloudInit: {}}", "spec.cloudInit", "give userData, networkData or secretRef"},
		"BridgeOptions":            {nc + "{bridge: 'vmbr0,tag=7', networkInterfaces: [{name: eth0, macAddress: '00:00:5e:00:53:01'}]}", "spec.bridge", "write the name of a bridge"},
		"ImageAndInstaller":        {machine + "{template: small, os: {imageID: a, isoUri: b}}", "spec.os", "not both"},
		"PowerState":               {machine + "{template: small, powerState: Paused}", "spec.powerState", "write Running or Stopped"},
		"ProviderType":             {mp + "{type: vmware}", "spec.type", "write kubevirt or proxmox"},
		"ProxmoxEndpoint":          {mp + "{type: proxmox}", "spec", "needs endpoint.url"},
		"PlainHTTP":                {mp + "{type: proxmox, endpoint: {url: 'http://pve1:8006'}, credentialsRef: {name: a, namespace: b}}", "spec.endpoint.url", "write an https URL"},
		"VMIDs":                    {mp + "{type: proxmox, endpoint: {url: 'https://pve1:8006'}, credentialsRef: {name: a, namespace: b}, proxmox: {vmidStart: 200, vmidEnd: 100}}", "spec.proxmox", "exchange the two"},
		"NoVLANRange":              {pool + "{vlans: [all]}", "spec.vlans[0]", "for example 100-199"},
		"VLANRangeBackwards":       {pool + "{vlans: ['200-100']}", "spec.vlans[0]", "the lower one first"},
		"VLANOfPool":               {pool + "{vlans: ['4095']}", "spec.vlans[0]", "from 0 (untagged) to 4094"},
		"VLANRangeOfPool":          {pool + "{vlans: ['100-9999']}", "spec.vlans[0]", "from 0 (untagged) to 4094"},
		"HostBitsOfPool":           {pool + "{prefixes: [10.0.0.1/8]}", "spec.prefixes", "write prefixes without host bits"},
		"NoPrefixOfPool":           {pool + "{prefixes: ['10.0.0.0']}", "spec.prefixes", "write prefixes without host bits"},
		"ProviderOfPool":           {pool + "{providers: [NAM]}", "spec.providers", "or the name of an external IPAM"},
		"BridgeOfPool":             {pool + "{bridges: ['br 0']}", "spec.bridges", "write names of bridges such as vmbr0"},
		"WrongBlock":               {mp + "{type: kubevirt, proxmox: {}}", "spec", "only read for type proxmox"},
		"ClassBuiltIn":             {strings.Replace(class, "name: x", "name: small", 1) + size, "", "small, medium and large are built in: choose another name"},
		"ClassName":                {strings.Replace(class, "name: x", "name: gpu.xl", 1) + size, "", "use at most 63 lower case letters, digits and -"},
		"ClassLongName":            {strings.Replace(class, "name: x", "name: c"+strings.Repeat("x", 63), 1) + size, "", "use at most 63 lower case letters, digits and -"},
		"ClassCPU":                 {class + "{resources: {memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}", "spec", "write a number of cores, for example 8"},
		"ClassCores":               {class + "{resources: {cpu: {sockets: 2}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}", "spec", "write a number of cores, for example 8"},
		"ClassMemory":              {class + "{resources: {cpu: {cores: 8}}, disks: [{name: root, size: 100Gi}]}", "spec", "write an amount of memory, for example 32Gi"},
		"ClassDisks":               {class + "{resources: {cpu: {cores: 8}, memory: {size: 32Gi}}}", "spec.disks", "write disks: Disks, with a size each, for example [{name: root, size: 100Gi}]"},
		"ClassRoot":                {class + "{resources: {cpu: {cores: 8}, memory: {size: 32Gi}}, disks: [{name: data, size: 100Gi}]}", "spec", "write {name: root, size: 100Gi} into disks"},
		"ClassDiskSize":            {class + "{resources: {cpu: {cores: 8}, memory: {size: 32Gi}}, disks: [{name: root}]}", "spec", "every disk needs a size"},
		"ClassOfNothing":           {class + "{}", "spec.resources", "write resources: CPU and memory, for example {cpu: {cores: 8}, memory: {size: 32Gi}}"},
		"TemplateName":             {machine + "{template: GPU XL}", "spec.template", "write small, medium, large or the name of a MachineClass"},
		"TemplateOfPool":           {kc + one + ", workers: [{name: a, replicas: 1, template: gpu_xl}]}}", "spec.topology.workers[0].template", "write small, medium, large or the name of a MachineClass"},
		"EvenControlPlanes":        {kc + "{data: {}, topology: {version: '1.33', controlplane: {replicas: 2}}}", "spec.topology.controlplane.replicas", "write 1, 3, 5 or 7"},
		"Version":                  {kc + "{data: {}, topology: {version: latest, controlplane: {replicas: 1}}}", "spec.topology.version", "such as 1.33 or 1.33.4"},
		"PatchRelease":             {kc + "{data: {}, topology: {version: 1.33.999, controlplane: {replicas: 1}}}", "spec.topology.version", "such as 1.33 or 1.33.4"},
		"RolloutType":              {kc + one + ", workers: [{name: a, replicas: 1, rollout: {type: Recreate}}]}}", "spec.topology.workers[0].rollout.type", "write Replace or InPlace"},
		"LabelTooLong":             {kc + one + ", workers: [{name: a, replicas: 1, labels: {a: " + strings.Repeat("x", 64) + "}}]}}", "spec.topology.workers[0].labels", "at most 63 characters"},
		"TaintKey":                 {kc + one + ", workers: [{name: a, replicas: 1, taints: [{key: a b, effect: NoSchedule}]}]}}", "spec.topology.workers[0].taints[0].key", "write the key of a taint"},
		"TaintValue":               {kc + one + ", workers: [{name: a, replicas: 1, taints: [{key: a, value: b c, effect: NoSchedule}]}]}}", "spec.topology.workers[0].taints[0].value", "write the value of a taint"},
		"Selector":                 {pool + "{allowedNamespaces: {selector: {matchExpressions: [{key: a, operator: Near}]}}}", "spec.allowedNamespaces.selector", "the operator In or NotIn with values"},
		"PoolOfOtherFamily":        {nn + "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}, ipAllocation: {type: static, static: {ipv6CIDR: '2001:db8::/64'}}}", "spec", "write the prefix of the segment there as well"},
		"OtherProvider":            {kc + "{data: {provider: eks}, topology: {version: '1.33', controlplane: {replicas: 1}}}", "spec.data.provider", "write talos, or leave provider out"},
		"SamePool":                 {kc + one + ", workers: [{name: a, replicas: 1}, {name: a, replicas: 2}]}}", "spec.topology", "a name of its own"},
		"PoolCalledCP":             {kc + one + ", workers: [{name: cp, replicas: 1}]}}", "spec.topology", "cannot be named cp"},
		"PoolName":                 {kc + one + ", workers: [{name: 'Pool 1', replicas: 1}]}}", "spec.topology.workers[0].name", "use lower case letters"},
		"Replicas":                 {kc + one + ", workers: [{name: a, replicas: -1}]}}", "spec.topology.workers[0].replicas", "a number from 0 to 500"},
		"Autoscaling":              {kc + one + ", workers: [{name: a, replicas: 1, autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 2}}]}}", "spec.topology.workers[0]", "exchange the two"},
		"CustomWithoutHost":        {kc + one + "}, controlPlaneEndpoint: {mode: custom}}", "spec.controlPlaneEndpoint", "mode custom needs host"},
		"EndpointPort":             {kc + one + "}, controlPlaneEndpoint: {mode: node, port: 50000}}", "spec.controlPlaneEndpoint", "write another, for example 6443 or 443"},
		"EndpointAddress":          {kc + one + "}, controlPlaneEndpoint: {mode: node, address: 10.0.0.5}}", "spec.controlPlaneEndpoint", "only mode vip has address"},
		"SamePrefix":               {kc + one + "}, networking: {podCIDR: 10.1.0.0/16, serviceCIDR: 10.1.0.0/16}}", "spec.networking", "two prefixes that do not"},
		"ServicesSmall":            {kc + one + "}, networking: {serviceCIDR: 10.2.0.0/29}}", "spec.networking.serviceCIDR", "write a prefix of at most /28"},
		"ServicesSmallIPv6":        {kc + one + "}, networking: {serviceCIDR: 'fd02::/125'}}", "spec.networking.serviceCIDR", "write a prefix of at most /28 (IPv6: /124)"},
		"ServicesLargeIPv6":        {kc + one + "}, networking: {serviceCIDR: 'fd02::/63'}}", "spec.networking.serviceCIDR", "write a prefix of /108 to /124"},
		"CNI":                      {kc + one + "}, networking: {cni: cilium}}", "spec.networking.cni", "write flannel or none"},
		"AddonBoth":                {kc + one + "}, addons: [{name: a, configMap: a, url: 'https://example.com/a.yaml'}]}", "spec.addons[0]", "write one of configMap and url"},
		"AddonNowhere":             {kc + one + "}, addons: [{name: a}]}", "spec.addons[0]", "write one of configMap and url"},
		"AddonURL":                 {kc + one + "}, addons: [{name: a, url: 'http://example.com/a.yaml'}]}", "spec.addons[0].url", "begins with https://"},
		"AddonNoTag":               {kc + one + "}, addons: [{name: a, url: 'oci://ghcr.io/org/tools'}]}", "spec.addons[0].url", "a tag or a digest, for example oci://ghcr.io/org/tools:1.2.3"},
		"AddonShortDigest":         {kc + one + "}, addons: [{name: a, url: 'oci://ghcr.io/org/tools@sha256:12'}]}", "spec.addons[0].url", "a tag or a digest, for example oci://ghcr.io/org/tools:1.2.3"},
		"AddonNoRepository":        {kc + one + "}, addons: [{name: a, url: 'oci://ghcr.io:1.2.3'}]}", "spec.addons[0].url", "a tag or a digest, for example oci://ghcr.io/org/tools:1.2.3"},
		"AddonUpperCase":           {kc + one + "}, addons: [{name: a, url: 'oci://ghcr.io/Org/tools:1'}]}", "spec.addons[0].url", "a tag or a digest, for example oci://ghcr.io/org/tools:1.2.3"},
		"AddonName":                {kc + one + "}, addons: [{name: A_b, configMap: a}]}", "spec.addons[0].name", "for example metrics-server"},
		"AddonTwice":               {kc + one + "}, addons: [{name: a, configMap: a}, {name: a, configMap: b}]}", "spec.addons[1]", "Duplicate value"},
		"OverlapsDefault":          {kc + one + "}, networking: {podCIDR: 10.100.0.0/16}}", "spec.networking", "serviceCIDR (absent: 10.96.0.0/12) overlap"},
		"EndpointURL":              {kc + one + "}, controlPlaneEndpoint: {mode: custom, host: 'https://api:6443'}}", "spec.controlPlaneEndpoint.host", "without scheme and port"},
		"TalosVersion":             {kc + one + "}, talos: {version: '1.13'}}", "spec.talos.version", "a full Talos version such as 1.13.9"},
		"Schematic":                {kc + one + "}, talos: {schematic: abc}}", "spec.talos.schematic", "64 hex digits"},
		"ApprovalPolicy":           {kc + one + "}, approval: {policy: always}}", "spec.approval.policy", "write creation or growth"},
		"NoTopology":               {kc + "{data: {}}", "spec.topology", "or name a ClusterTemplate in templateRef"},
		"NoVersion":                {kc + "{data: {}, topology: {controlplane: {replicas: 1}}}", "spec.topology", "topology.version and topology.controlplane.replicas are required"},
		"NoReplicas":               {kc + "{data: {}, topology: {version: '1.33', controlplane: {template: large}}}", "spec.topology", "topology.version and topology.controlplane.replicas are required"},
		"NoTemplateName":           {kc + "{data: {}, templateRef: {name: ''}}", "spec.templateRef.name", "at least 1"},
		"ClusterTemplateName":      {strings.Replace(ct, "name: x", "name: x.y", 1) + "{cluster: {}}", "", "use at most 63 lower case letters, digits and -"},
		"ClusterTemplateOfNothing": {ct + "{}", "spec.cluster", "write cluster: Fields of the spec of each cluster, for example"},
		"TemplateVersion":          {ct + "{cluster: {topology: {version: '1'}}}", "spec.cluster.topology.version", "write a Kubernetes version such as 1.33 or 1.33.4"},
		"TemplatePlanes":           {ct + "{cluster: {topology: {controlplane: {replicas: 2}}}}", "spec.cluster.topology.controlplane.replicas", "write 1, 3, 5 or 7"},
		"TemplateVersions":         {ct + "{cluster: {topology: {version: '1.33', controlplane: {version: '1.33'}}}}", "spec.cluster.topology.version", "write one of them"},
		"TemplatePools":            {ct + "{cluster: {topology: {workers: [{name: a, replicas: 1}, {name: a, replicas: 2}]}}}", "spec.cluster.topology", "each worker pool needs a name of its own"},
		"TemplatePoolCP":           {ct + "{cluster: {topology: {workers: [{name: cp, replicas: 1}]}}}", "spec.cluster.topology", "a worker pool cannot be named cp"},
		"TemplateEndpoint":         {ct + "{cluster: {controlPlaneEndpoint: {mode: custom}}}", "spec.cluster.controlPlaneEndpoint.mode", "write vip or node"},
		"TemplateTalos":            {ct + "{cluster: {talos: {version: '1.13'}}}", "spec.cluster.talos.version", "write a full Talos version such as 1.13.9"},
		"TemplateSchematic":        {ct + "{cluster: {talos: {schematic: abc}}}", "spec.cluster.talos.schematic", "write the 64 hex digits"},
		"TemplateAddon":            {ct + "{cluster: {addons: [{name: a}]}}", "spec.cluster.addons[0]", "write one of configMap and url"},
		"TemplateIdentity":         {ct + "{cluster: {data: {clusterId: a}}}", "spec.cluster.data", "unknown field"},
		"TemplateWaves":            {ct + "{cluster: {}, rollout: {waves: [{name: a, selector: {matchLabels: {x: a}}}, {name: a, selector: {matchLabels: {x: b}}}]}}", "spec.rollout", "each wave needs a name of its own"},
		"TemplateWaveName":         {ct + "{cluster: {}, rollout: {waves: [{name: A, selector: {matchLabels: {x: a}}}]}}", "spec.rollout.waves[0].name", "for example test"},
		"TemplateSelector":         {ct + "{cluster: {}, rollout: {waves: [{name: a, selector: {matchLabels: {}}}]}}", "spec.rollout.waves[0].selector.matchLabels", "at least 1"},
		"TemplatePause":            {ct + "{cluster: {}, rollout: {waves: [{name: a, selector: {matchLabels: {x: a}}, pauseAfter: soon}]}}", "spec.rollout.waves[0].pauseAfter", "write a time such as 30m or 24h"},
		"BackupOfNothing":          {eb + "{storageLocation: {type: local}}", "spec.clusterName", "write clusterName: Name of a KubernetesCluster in the same namespace"},
		"BackupTraversal":          {eb + "{clusterName: c, storageLocation: {type: local, path: ../../etc}}", "spec.storageLocation.path", "write a relative path"},
		"BackupClusterName":        {eb + "{clusterName: ../../c, storageLocation: {type: local}}", "spec.clusterName", "write the name of a KubernetesCluster"},
		"BackupSchedule":           {eb + "{clusterName: c, schedule: nightly, storageLocation: {type: local}}", "spec.schedule", "write five fields such as 0 2 * * *"},
		"BackupRetention":          {eb + "{clusterName: c, retention: 0, storageLocation: {type: local}}", "spec.retention", "greater than or equal to 1"},
		"BackupStorage":            {eb + "{clusterName: c, storageLocation: {type: azure}}", "spec.storageLocation.type", "write s3 for an object store"},
		"BackupBucket":             {eb + "{clusterName: c, storageLocation: {type: s3, secretRef: {name: a}}}", "spec.storageLocation", "type s3 needs bucket"},
		"BackupCredentials":        {eb + "{clusterName: c, storageLocation: {type: s3, bucket: snapshots}}", "spec.storageLocation", "type s3 needs secretRef"},
		"BackupEndpoint":           {eb + "{clusterName: c, storageLocation: {type: s3, bucket: snapshots, secretRef: {name: a}, endpoint: s3.example.com}}", "spec.storageLocation.endpoint", "write a URL"},
		"BackupEscape":             {eb + "{clusterName: c, storageLocation: {type: local, path: a/../b}}", "spec.storageLocation.path", "without .."},
		"AllocationTypeDHCP":       {nn + "{ipAllocation: {type: DHCP, dhcp: {}}}", "spec.ipAllocation.type", "write dhcp or static"},
		"AllocationTypeStatic":     {nn + "{ipAllocation: {type: Static, provider: static-ip-operator, static: {ipv4CIDR: 10.0.0.0/24}}}", "spec.ipAllocation.type", "write dhcp or static"},
		"AllocationTypeKea":        {nn + "{ipAllocation: {type: DHCP, provider: kea}}", "spec.ipAllocation.type", "write dhcp or static"},
		"NoAllocationType":         {nn + "{ipAllocation: {static: {ipv4CIDR: 10.0.0.0/24}}}", "spec.ipAllocation.type", "write type: How addresses are allocated: static or dhcp"},
		"Family":                   {nn + "{networkProvisioning: {provider: nam, nam: {ipFamilies: [IPv4, v6]}}}", "spec.networkProvisioning.nam.ipFamilies[1]", "write IPv4 or IPv6"},
		"AllocationFamily":         {ipa + "{networkNamespaceName: net, ipFamily: v4, requestedAddress: 10.0.0.5}", "spec.ipFamily", "write IPv4 or IPv6"},
		"AllocationOfNothing":      {ipa + "{}", "spec.networkNamespaceName", "write networkNamespaceName: Name of a NetworkNamespace in the same namespace"},
		"BootDevice":               {machine + "{template: small, bootOrder: [disk, usb]}", "spec.bootOrder[1]", "write disk, network or cdrom"},
		"VolumeMode":               {machine + "{template: small, disks: [{name: data, size: 1Gi, volumeMode: Raw}]}", "spec.disks[0].volumeMode", "write Filesystem or Block"},
		"PowerStateOff":            {machine + "{template: small, powerState: Off}", "spec.powerState", "must be of type string"},
		"NoDiskName":               {machine + "{template: small, disks: [{size: 1Gi}]}", "spec.disks[0].name", "Required value"},
		"NoOperator":               {pool + "{allowedNamespaces: {selector: {matchExpressions: [{key: a}]}}}", "spec.allowedNamespaces.selector.matchExpressions[0].operator", "Required value"},
		"NoNetworkName":            {machine + "{template: small, networks: [{name: eth0}]}", "spec.networks[0].networkName", "write networkName: NetworkConfiguration of the interface"},
		"NoMemorySize":             {machine + "{template: small, resources: {memory: {}}}", "spec.resources.memory.size", "write size: Amount of memory, for example 4Gi"},
		"NoProviderName":           {machine + "{template: small, providerRef: {}}", "spec.providerRef.name", "write name: Name of a MachineProvider, for example kubevirt"},
		"NoUserDataSecret":         {machine + "{template: small, cloudInit: {secretRef: {}}}", "spec.cloudInit.secretRef.name", "write name: Name of the Secret"},
		"NoBootloader":             {machine + "{template: small, domain: {firmware: {}}}", "spec.domain.firmware.bootloader", "for example {efi: true}"},
		"NoBoardType":              {machine + "{template: small, domain: {machine: {}}}", "spec.domain.machine.type", "write type: Machine type of QEMU, for example pc-q35"},
		"ProviderTypeCase":         {mp + "{type: Proxmox, endpoint: {url: 'https://pve1:8006'}, credentialsRef: {name: a, namespace: b}, proxmox: {vmidStart: 100}}", "spec.type", "write kubevirt or proxmox"},
		"ProviderTypeKubeVirt":     {mp + "{type: KubeVirt, kubevirt: {}}", "spec.type", "write kubevirt or proxmox"},
		"NoProviderType":           {mp + "{proxmox: {vmidStart: 100}}", "spec.type", "write type: Type of the hypervisor: kubevirt or proxmox"},
		"NoCredentials":            {mp + "{type: proxmox, endpoint: {url: 'https://pve1:8006'}, credentialsRef: {name: a}}", "spec.credentialsRef.namespace", "write namespace: Namespace of the Secret"},
		"NoCredentialsName":        {mp + "{type: proxmox, endpoint: {url: 'https://pve1:8006'}, credentialsRef: {namespace: a}}", "spec.credentialsRef.name", "write name: Name of the Secret"},
		"NoSpec":                   {strings.TrimSuffix(machine, "spec: "), "spec", "write spec: kubectl explain machine.spec shows its fields"},
		"NoSpecOfCluster":          {strings.TrimSuffix(kc, "spec: "), "spec", "write spec: kubectl explain kubernetescluster.spec shows its fields"},
		"NoData":                   {kc + "{topology: {version: '1.33', controlplane: {replicas: 1}}}", "spec.data", "write data: Identity of the cluster in inventories and reports, for example {environment: prod}"},
		"EndpointMode":             {kc + one + "}, controlPlaneEndpoint: {mode: VIP, address: 10.0.0.5}}", "spec.controlPlaneEndpoint.mode", "write vip, custom or node"},
		"EndpointModeCase":         {kc + one + "}, controlPlaneEndpoint: {mode: Custom, host: api.example.com, port: 50000}}", "spec.controlPlaneEndpoint.mode", "write vip, custom or node"},
		"NoEndpointMode":           {kc + one + "}, controlPlaneEndpoint: {host: api.example.com}}", "spec.controlPlaneEndpoint.mode", "write mode: vip, custom or node"},
		"ConfigChanges":            {kc + one + "}, talos: {configChanges: Auto}}", "spec.talos.configChanges", "write NoReboot, Staged or Reboot"},
		"ServiceAccountKey":        {kc + one + "}, talos: {serviceAccountKey: Ed25519}}", "spec.talos.serviceAccountKey", "write ECDSA or RSA"},
		"TaintEffect":              {kc + one + ", workers: [{name: a, replicas: 1, taints: [{key: a, effect: NoRun}]}]}}", "spec.topology.workers[0].taints[0].effect", "write NoSchedule, PreferNoSchedule or NoExecute"},
		"NoTaintEffect":            {kc + one + ", workers: [{name: a, replicas: 1, taints: [{key: a}]}]}}", "spec.topology.workers[0].taints[0].effect", "write effect: What happens to pods without a matching toleration"},
		"NoTaintKey":               {kc + one + ", workers: [{name: a, replicas: 1, taints: [{effect: NoSchedule}]}]}}", "spec.topology.workers[0].taints[0].key", "write key: Key of the taint, for example dedicated"},
		"NoPoolName":               {kc + one + ", workers: [{name: a, replicas: 1}, {replicas: 1}]}}", "spec.topology.workers[1].name", "write name: Name of the pool"},
		"NoPoolReplicas":           {kc + one + ", workers: [{name: a}]}}", "spec.topology.workers[0].replicas", "write replicas: Number of workers"},
		"NoMaxReplicas":            {kc + one + ", workers: [{name: a, replicas: 1, autoscaling: {enabled: true, minReplicas: 1}}], scaledWorkers: 1}}", "spec.topology.workers[0].autoscaling.maxReplicas", "write maxReplicas: Maximum number of machines"},
		"NoApprovalPolicy":         {kc + one + "}, approval: {}}", "spec.approval.policy", "write policy: What needs approval: creation"},
		"NoTemplateRefName":        {kc + one + "}, templateRef: {}}", "spec.templateRef.name", "write name: Name of the ClusterTemplate"},
		"TemplateNoPoolName":       {ct + "{cluster: {topology: {workers: [{name: a, replicas: 1}, {replicas: 1}]}}}", "spec.cluster.topology.workers[1].name", "write name: Name of the pool"},
		"TemplateMode":             {ct + "{cluster: {controlPlaneEndpoint: {mode: VIP}}}", "spec.cluster.controlPlaneEndpoint.mode", "write vip or node"},
		"TemplateNoWaveName":       {ct + "{cluster: {}, rollout: {waves: [{name: a, selector: {matchLabels: {x: a}}}, {selector: {matchLabels: {x: b}}}]}}", "spec.rollout.waves[1].name", "write name: Name of the wave in the status, for example test"},
		"TemplateNoSelector":       {ct + "{cluster: {}, rollout: {waves: [{name: a}]}}", "spec.rollout.waves[0].selector", "for example {matchLabels: {environment: test}}"},
		"TemplateNoLabels":         {ct + "{cluster: {}, rollout: {waves: [{name: a, selector: {}}]}}", "spec.rollout.waves[0].selector.matchLabels", "for example {environment: test}"},
		"BackupNoStorage":          {eb + "{clusterName: c}", "spec.storageLocation", "write storageLocation: Where the snapshots go, for example {type: local}"},
		"BackupNoStorageType":      {eb + "{clusterName: c, storageLocation: {bucket: snapshots, secretRef: {name: a}, region: x}}", "spec.storageLocation.type", "write type: s3 or local"},
		"BackupStorageCase":        {eb + "{clusterName: c, storageLocation: {type: S3, bucket: snapshots, secretRef: {name: a}, region: x}}", "spec.storageLocation.type", "write s3 for an object store"},
		"BackupNoSecretName":       {eb + "{clusterName: c, storageLocation: {type: s3, bucket: snapshots, secretRef: {}}}", "spec.storageLocation.secretRef.name", "write name: Name of the Secret"},
		"LongClusterName":          {strings.Replace(kc, "name: x", "name: a-cluster-with-a-name-that-is-too-long", 1) + one + "}}", "", "at most 32 lower case letters"},
		"LongMachineName":          {strings.Replace(machine, "name: x", "name: m"+strings.Repeat("x", 63), 1) + "{template: small}", "", "at most 63 characters"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := apply(t, client, namespace, tc.doc)
			if err == nil {
				t.Fatalf("the API server accepts\n%s", tc.doc)
			}
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Fatalf("want it rejected, got %v", err)
			}
			if !strings.Contains(err.Error(), tc.field) || !strings.Contains(err.Error(), tc.remedy) {
				t.Errorf("the message must name %q and say %q, got:\n%v", tc.field, tc.remedy, err)
			}
			if n := countMessages(err); n > 1 && severalMessages[name] == "" {
				t.Errorf("want one message, got %d:\n%v", n, err)
			} else if n <= 1 && severalMessages[name] != "" {
				t.Errorf("it has one message: remove it from the table")
			}
			_, obj := read(t, client, namespace, tc.doc)
			sameRefusals(t, err, obj, nil)
		})
	}
}

// severalMessages are mistakes that the API server answers with several messages, with the reason.
var severalMessages = map[string]string{
	"ClassOfNothing": "both fields are missing",
	"OneAddress6":    "type dhcp, which is the default, needs an IPv4 prefix as well",
	"WrongFamily":    "type dhcp, which is the default, needs an IPv4 prefix as well",
	"NoDiskName":     "the API server wants the keys of lists required in the schema",
	"NoOperator":     "the fields of a label selector are those of Kubernetes, whose lists have no maximum for the costs of a rule",
	"PowerStateOff":  "YAML reads Off as a boolean, and the API server evaluates no rule after a wrong type",
}

// countMessages returns the number of messages of the API server in an error.
func countMessages(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return 1
	}
	return max(1, len(status.Status().Details.Causes))
}

// sameRefusals expects package admission to say of an object what the API server has said, by err. before is what is stored.
func sameRefusals(t *testing.T, err error, obj, before *unstructured.Unstructured) {
	t.Helper()
	refusals, invalid := admission.Validate(t.Context(), obj, before)
	if invalid != nil {
		t.Fatal(invalid)
	}
	if err == nil && len(refusals) > 0 {
		t.Errorf("the API server accepts what is refused by %q", refusals)
	}
	if err != nil && len(refusals) == 0 {
		t.Errorf("only the API server refuses: %v", err)
	}
	for _, r := range refusals {
		if err != nil && !strings.Contains(err.Error(), r.Message) {
			t.Errorf("the API server does not say %q, but\n%v", r.Message, err)
		}
	}
}

// TestMachineClassesAreAccepted creates MachineClasses, and objects that name one.
func TestMachineClassesAreAccepted(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const class = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: x}\nspec: "
	for name, doc := range map[string]string{
		"Smallest":   class + "{resources: {cpu: {cores: 1}, memory: {size: 512Mi}}, disks: [{name: root, size: 1Gi}]}",
		"Everything": class + "{resources: {cpu: {cores: 8, threads: 2, sockets: 2}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi, storageClass: fast, accessMode: ReadWriteMany, volumeMode: Block}, {name: data, size: 1Ti}]}",
		"Machine":    "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: x}\nspec: {template: gpu-xl, disks: [{name: data, storageClass: fast}]}",
		"Pool":       "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: x}\nspec: {data: {}, topology: {version: '1.33', controlplane: {replicas: 1, template: gpu-xl}, workers: [{name: a, replicas: 1, template: m6}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := apply(t, client, namespace, doc); err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		})
	}
}

// TestChangesAreRefused changes immutable fields.
func TestChangesAreRefused(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const (
		cluster = "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: %s}\nspec: "
		ipa     = "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: %s}\nspec: "
		nc      = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: %s}\nspec: "
		class   = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: %s}\nspec: "
		size    = "{resources: {cpu: {cores: 8}, memory: {size: 32Gi}}, disks: [{name: root, size: 100Gi}]}"
	)
	topology := "topology: {version: '1.33', controlplane: {replicas: 1}}"
	cases := map[string]struct{ kind, from, to, remedy string }{
		"endpoint": {cluster, "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: node}}", "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: vip}}", "controlPlaneEndpoint cannot be changed"},
		"pods":     {cluster, "{data: {}, " + topology + ", networking: {podCIDR: 10.1.0.0/16}}", "{data: {}, " + topology + ", networking: {podCIDR: 10.2.0.0/16}}", "networking cannot be changed"},
		"endless":  {cluster, "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: node}}", "{data: {}, " + topology + "}", "controlPlaneEndpoint cannot be changed"},
		"default":  {cluster, "{data: {}, " + topology + ", networking: {podCIDR: 10.1.0.0/16}}", "{data: {}, " + topology + "}", "networking cannot be changed"},
		"late":     {cluster, "{data: {}, " + topology + "}", "{data: {}, " + topology + ", networking: {podCIDR: 10.1.0.0/16}}", "networking cannot be changed"},
		"move":     {cluster, "{data: {}, " + topology + ", networkNamespaceName: a}", "{data: {}, " + topology + ", networkNamespaceName: b}", "a cluster does not move between networks"},
		"nowhere":  {cluster, "{data: {}, " + topology + ", networkNamespaceName: a}", "{data: {}, " + topology + "}", "a cluster does not move between networks"},
		"first":    {cluster, "{data: {}, " + topology + "}", "{data: {}, " + topology + ", networkNamespaceName: b}", "write net, in which its machines are"},
		"host":     {cluster, "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: custom, host: 10.0.0.5}}", "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: custom, host: api.example.com}}", "controlPlaneEndpoint cannot be changed"},
		"vip":      {cluster, "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: vip, address: 10.0.0.5}}", "{data: {}, " + topology + ", controlPlaneEndpoint: {mode: vip, address: 10.0.0.6}}", "controlPlaneEndpoint cannot be changed"},
		"moved":    {nc, "{networkNamespaceName: a}", "{networkNamespaceName: b}", "delete the NetworkConfiguration and create a new one"},
		"anywhere": {nc, "{networkNamespaceName: a}", "{}", "delete the NetworkConfiguration and create a new one"},
		"cores":    {class, size, strings.Replace(size, "cores: 8", "cores: 16", 1), "create another MachineClass and name it in template"},
		"disks":    {class, size, strings.Replace(size, "100Gi}]", "100Gi}, {name: data, size: 1Ti}]", 1), "create another MachineClass and name it in template"},
		"address":  {ipa, "{networkNamespaceName: a}", "{networkNamespaceName: a, requestedAddress: 10.0.0.5}", "delete it and create a new one"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, obj := read(t, client, namespace, strings.Replace(tc.kind, "%s", name, 1)+tc.from)
			made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := target.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
			if tc.kind == cluster {
				made.Object["status"] = map[string]any{"endpoint": "https://10.0.0.5:6443", "networkNamespaceName": "net"}
				if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			_, changed := read(t, client, namespace, strings.Replace(tc.kind, "%s", name, 1)+tc.to)
			changed.SetResourceVersion(made.GetResourceVersion())
			_, err = target.Update(t.Context(), changed, metav1.UpdateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.remedy) {
				t.Errorf("want it rejected with %q, got %v", tc.remedy, err)
			}
			sameRefusals(t, err, changed, made)
		})
	}
}

// TestClustersCanBeCorrected changes fields of a cluster with an endpoint that name something else than what its
// machines have, and first writes what they have.
func TestClustersCanBeCorrected(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	topology := "{data: {}, topology: {version: '1.33', controlplane: {replicas: 1}}"
	waiting := []any{map[string]any{"type": "Ready", "status": "False", "reason": "VirtualAddressFailed", "message": "", "lastTransitionTime": "2026-11-26T12:00:00Z"}}
	for name, tc := range map[string]struct {
		reason     string
		from, to   string
		conditions []any
	}{
		"network": {"the network is that of the machines", "}", ", networkNamespaceName: net}", nil},
		"wrong":   {"the name of the machines' network replaces another", ", networkNamespaceName: other}", ", networkNamespaceName: net}", nil},
		"host":    {"the nodes do not know the host", ", controlPlaneEndpoint: {mode: custom, host: wrong.example.com}}", ", controlPlaneEndpoint: {mode: custom, host: api.example.com}}", nil},
		"none":    {"the nodes do not know the host", ", controlPlaneEndpoint: {mode: custom, host: wrong.example.com}}", "}", nil},
		"port":    {"the endpoint has another port", ", controlPlaneEndpoint: {mode: node, port: 8443}}", ", controlPlaneEndpoint: {mode: node}}", nil},
		"six":     {"the endpoint has another family", ", controlPlaneEndpoint: {mode: vip, address: '2001:db8::5'}}", ", controlPlaneEndpoint: {mode: vip, address: '2001:db8::6'}}", nil},
		"vip":     {"there is no virtual address", ", controlPlaneEndpoint: {mode: vip}}", ", controlPlaneEndpoint: {mode: node}}", waiting},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: right-" + name + "}\nspec: " + topology
			target, obj := read(t, client, namespace, head+tc.from)
			made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := target.Delete(context.WithoutCancel(t.Context()), obj.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Error(err)
				}
			})
			made.Object["status"] = map[string]any{"endpoint": "https://10.0.0.5:6443", "networkNamespaceName": "net", "conditions": tc.conditions}
			if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			_, changed := read(t, client, namespace, head+tc.to)
			changed.SetResourceVersion(made.GetResourceVersion())
			if _, err = target.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}

// TestChangesWithoutEffectAreRefused makes changes without an effect, and similar changes with one. It
// writes a status after each, as functions do.
func TestChangesWithoutEffectAreRefused(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const (
		pinned  = "{version: '1.33', controlplane: {replicas: 1, version: '1.33'}, workers: [{name: a, replicas: 1, version: '1.33'}]}"
		unbound = "{version: '1.33', controlplane: {replicas: 1}, workers: [{name: a, replicas: 1}, {name: b, replicas: 2}]}"
		bound   = "{version: '1.33', controlplane: {replicas: 1}, workers: [{name: a, replicas: 1, autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 3}}, {name: b, replicas: 2, autoscaling: {enabled: true, maxReplicas: 2}}, {name: c, replicas: 9}], scaledWorkers: 3}"
		outside = "{version: '1.33', controlplane: {replicas: 1}, workers: [{name: a, replicas: 1}], scaledWorkers: 7}"
	)
	swap := func(in string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(in) }
	cases := map[string]struct{ reason, from, to, refusal string }{
		"version":      {"the control plane has a version of its own", pinned, swap(pinned, "{version: '1.33', c", "{version: '1.34', c"), "change controlplane.version and the version of each pool that has one"},
		"versionmore":  {"another change in the same edit does not give it an effect", pinned, swap(pinned, "{version: '1.33', c", "{version: '1.34', c", "name: a, replicas: 1", "name: a, replicas: 2"), "topology.version has no effect"},
		"poolfollows":  {"a pool without a version has the version of the control plane", swap(pinned, "replicas: 1, version: '1.33'}]", "replicas: 1}]"), swap(pinned, "replicas: 1, version: '1.33'}]", "replicas: 1}]", "{version: '1.33', c", "{version: '1.34', c"), "topology.version has no effect"},
		"allversions":  {"all versions change together", pinned, swap(pinned, "1.33", "1.34"), ""},
		"poolversion":  {"a pool changes too", pinned, swap(pinned, "{version: '1.33', c", "{version: '1.34', c", "replicas: 1, version: '1.33'}]", "replicas: 1, version: '1.34'}]"), ""},
		"versiongone":  {"the control plane now follows topology.version", pinned, swap(pinned, "{version: '1.33', c", "{version: '1.34', c", "{replicas: 1, version: '1.33'}", "{replicas: 1}"), ""},
		"cpversion":    {"the version of the control plane is changed", pinned, swap(pinned, "{replicas: 1, version: '1.33'}", "{replicas: 1, version: '1.34'}"), ""},
		"onlyversion":  {"no other version is set", unbound, swap(unbound, "1.33", "1.34"), ""},
		"replicas":     {"scaledWorkers counts", bound, swap(bound, "name: a, replicas: 1", "name: a, replicas: 2"), "run kubectl scale kubernetescluster/NAME --replicas N"},
		"otherpool":    {"a pool without autoscaling has a number of its own", bound, swap(bound, "replicas: 9", "replicas: 8"), ""},
		"both":         {"scaledWorkers changes too", bound, swap(bound, "name: a, replicas: 1", "name: a, replicas: 2", "scaledWorkers: 3", "scaledWorkers: 4"), ""},
		"unscaled":     {"without scaledWorkers each pool has a number of its own", bound, swap(bound, "name: a, replicas: 1", "name: a, replicas: 2", ", scaledWorkers: 3", ""), ""},
		"takenoff":     {"autoscaling is switched off, and replicas has an effect again", bound, swap(bound, "name: a, replicas: 1, autoscaling: {enabled: true,", "name: a, replicas: 2, autoscaling: {enabled: false,"), ""},
		"newbounds":    {"the bounds have an effect", bound, swap(bound, "maxReplicas: 3", "maxReplicas: 30"), ""},
		"fillscale":    {"bootstrap-talos sets the sum", swap(bound, ", scaledWorkers: 3", ""), bound, ""},
		"scale":        {"the number is within the bounds", bound, swap(bound, "scaledWorkers: 3", "scaledWorkers: 5"), ""},
		"scalemin":     {"the number is within the bounds", bound, swap(bound, "scaledWorkers: 3", "scaledWorkers: 1"), ""},
		"above":        {"the maximum is 3 plus 2", bound, swap(bound, "scaledWorkers: 3", "scaledWorkers: 6"), "at most the sum of their maxReplicas"},
		"below":        {"the minimum is one", bound, swap(bound, "scaledWorkers: 3", "scaledWorkers: 0"), "at least the sum of their minReplicas"},
		"morebounds":   {"the same edit raises the bounds", bound, swap(bound, "scaledWorkers: 3", "scaledWorkers: 6", "maxReplicas: 3", "maxReplicas: 4"), ""},
		"noautoscaler": {"no pool has autoscaling", unbound, swap(unbound, "replicas: 2}]}", "replicas: 2}], scaledWorkers: 3}"), "no pool has autoscaling.enabled"},
		"switchedon":   {"the same edit enables autoscaling", unbound, swap(unbound, "replicas: 2}]}", "replicas: 2, autoscaling: {enabled: true, maxReplicas: 3}}], scaledWorkers: 3}"), ""},
		"keytype":      {"the cluster has an ECDSA key", unbound, unbound + ", talos: {serviceAccountKey: RSA}", "talos.serviceAccountKey (absent: ECDSA) cannot be changed"},
		"keygone":      {"the cluster has an RSA key", unbound + ", talos: {serviceAccountKey: RSA}", unbound, "talos.serviceAccountKey (absent: ECDSA) cannot be changed"},
		"keydefault":   {"ECDSA is the default", unbound, unbound + ", talos: {serviceAccountKey: ECDSA}", ""},
		"stored":       {"an invalid value that an earlier version has stored may stay", outside, swap(outside, "replicas: 1}]", "replicas: 2}]"), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const cluster = "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: %s}\nspec: {data: {}, topology: %s}"
			target, obj := read(t, client, namespace, fmt.Sprintf(cluster, name, tc.from))
			made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, changed := read(t, client, namespace, fmt.Sprintf(cluster, name, tc.to))
			changed.SetResourceVersion(made.GetResourceVersion())
			before := made
			made, err = target.Update(t.Context(), changed, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
			sameRefusals(t, err, changed, before)
			if tc.refusal != "" {
				if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refusal) {
					t.Errorf("%s: want it rejected with %q, got %v", tc.reason, tc.refusal, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			made.Object["status"] = map[string]any{"phase": "Running", "accepted": map[string]any{"topology": changed.Object["spec"].(map[string]any)["topology"]}}
			if _, err := target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Errorf("the status cannot be written: %v", err)
			}
		})
	}
}

// TestScaleIsRefused scales clusters as kubectl scale and autoscalers do.
func TestScaleIsRefused(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	for name, tc := range map[string]struct {
		reason, pool string
		replicas     int
		refusal      string
	}{
		"within": {"the pool may have three workers", "{name: a, replicas: 1, autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 3}}", 3, ""},
		"above":  {"the pool may not have four workers", "{name: a, replicas: 1, autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 3}}", 4, "at most the sum of their maxReplicas"},
		"none":   {"no pool has autoscaling", "{name: a, replicas: 1}", 3, "change the replicas of a pool, or set its autoscaling"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, obj := read(t, client, namespace, "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: "+name+"}\nspec: {data: {}, topology: {version: '1.33', controlplane: {replicas: 1}, workers: ["+tc.pool+"]}}")
			if _, err := target.Create(t.Context(), obj, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, tc.replicas)
			_, err := target.Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "scale")
			if tc.refusal == "" && err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if tc.refusal != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.refusal)) {
				t.Errorf("%s: want it rejected with %q, got %v", tc.reason, tc.refusal, err)
			}
		})
	}
}

// TestNetworkChanges changes networks before they are Ready, when every field may be changed, and
// afterwards, when machines may use the segment.
func TestNetworkChanges(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const (
		manual = "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.1, vlanId: 7}}, ipAllocation: {type: static}}"
		held   = "{provisioningPhase: %s, ipv4Prefix: 10.0.0.0/24, ipv4Gateway: 10.0.0.1, vlanId: 7}"
		pool   = "{ipAllocation: {type: static, static: {ipv4CIDR: 10.0.0.0/24, ipv4Gateway: 10.0.0.1, vlanId: 7}}}"
		nam    = "{networkProvisioning: {provider: nam}, ipAllocation: {type: static, static: {ipv4RangeStart: 10.0.0.10}}}"
	)
	cases := map[string]struct{ reason, from, to, refusal string }{
		"Type":            {"existing addresses would be kept, and allocated a second time by the other function", "{ipAllocation: {type: static}}", "{ipAllocation: {type: dhcp}}", "ipAllocation.type"},
		"TypeAbsent":      {"dhcp is the default", "{ipAllocation: {type: dhcp}}", "{}", ""},
		"TypeLeftOut":     {"dhcp is the default", "{ipAllocation: {type: static}}", "{}", "ipAllocation.type"},
		"Provider":        {"the present provider has the segment", manual, "{networkProvisioning: {provider: nam}, ipAllocation: {type: static}}", "the provider of a network"},
		"ProviderAbsent":  {"the present provider has the segment", nam, "{ipAllocation: {type: static}}", "the provider of a network"},
		"Prefix":          {"machines have addresses in the prefix", manual, strings.ReplaceAll(strings.ReplaceAll(manual, "10.0.0.0", "10.0.1.0"), "10.0.0.1,", "10.0.1.1,"), "the prefixes of a network"},
		"Grown":           {"machines are configured with its length", manual, strings.ReplaceAll(manual, "10.0.0.0/24", "10.0.0.0/23"), "the prefixes of a network"},
		"SecondFamily":    {"another network may have the prefix", manual, strings.ReplaceAll(manual, "vlanId", "ipv6CIDR: '2001:db8::/64', vlanId"), "the prefixes of a network"},
		"VLAN":            {"virtual machines stay in their VLAN", manual, strings.ReplaceAll(manual, "vlanId: 7", "vlanId: 8"), "the VLAN of a network"},
		"Untagged":        {"virtual machines stay in their VLAN", manual, strings.ReplaceAll(manual, ", vlanId: 7", ""), "the VLAN of a network"},
		"Gateway":         {"a machine may have the new address", manual, strings.ReplaceAll(manual, "10.0.0.1,", "10.0.0.9,"), "the gateway of a network"},
		"NoGateway":       {"the router keeps the old address", manual, strings.ReplaceAll(manual, " ipv4Gateway: 10.0.0.1,", ""), "the gateway of a network"},
		"DataCentre":      {"machines stay in their data centre", "{datacenterIdentifier: west, " + manual[1:], "{datacenterIdentifier: east, " + manual[1:], "the data centre of a network"},
		"Inferred":        {"the inferred provider is manual", pool, strings.ReplaceAll(pool, "vlanId: 7", "vlanId: 8"), "the segment of a network"},
		"InferredPrefix":  {"the inferred provider is manual", pool, strings.ReplaceAll(pool, "10.0.0", "10.0.1"), "of a network that is Ready"},
		"InferredNoMore":  {"the inferred provider would be nam", pool, "{ipAllocation: {type: static}}", "of a network that is Ready"},
		"InferredNow":     {"the inferred provider would be manual", "{ipAllocation: {type: static}}", pool, "makes the provider manual"},
		"PoolGateway":     {"a machine may have the new address", nam, strings.ReplaceAll(nam, "ipv4RangeStart", "ipv4Gateway: 10.0.0.9, ipv4RangeStart"), "the gateway of a network"},
		"SameGateway":     {"the segment has this gateway", nam, strings.ReplaceAll(nam, "ipv4RangeStart", "ipv4Gateway: 10.0.0.1, ipv4RangeStart"), ""},
		"Range":           {"existing addresses outside of the range are kept", nam, strings.ReplaceAll(nam, "10.0.0.10", "10.0.0.20"), ""},
		"Request":         {"the segment was given out for the request", "{networkProvisioning: {provider: netbox, netbox: {role: a}}, ipAllocation: {type: static}}", "{networkProvisioning: {provider: netbox, netbox: {role: b}}, ipAllocation: {type: static}}", "the request for the segment of a network"},
		"Parameters":      {"the IPAM has answered them", "{networkProvisioning: {provider: ipam}, ipAllocation: {type: static}}", "{networkProvisioning: {provider: ipam, parameters: {a: b}}, ipAllocation: {type: static}}", "the request for the segment of a network"},
		"Classes":         {"the subnet in Kea has its classes", "{}", "{ipAllocation: {type: dhcp, dhcp: {requireClientClasses: [a]}}}", "requireClientClasses of a network"},
		"SupervisorOfNAM": {"the manager has recorded it", nam, "{supervisorIdentifier: team-b, " + nam[1:], "the supervisor of a network"},
		"DNS":             {"DNS servers are independent of addresses", nam, strings.ReplaceAll(nam, "ipv4RangeStart", "dns: [10.0.0.2], ipv4RangeStart"), ""},
		"Supervisor":      {"it is only a name", manual, "{supervisorIdentifier: team-b, " + manual[1:], ""},
		"Untouched":       {"no VLAN is the same as VLAN 0", "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24}}}", "{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.0.0/24, vlanId: 0}}}", ""},
	}
	for name, tc := range cases {
		for i, version := range []string{"v1alpha1", "v1alpha2"} {
			for _, phase := range []string{"", "Ready", "Deleting"} {
				t.Run(name+version+phase, func(t *testing.T) {
					t.Parallel()
					id := strings.ToLower(fmt.Sprintf("%s%d%s", name, i, phase))
					network := "apiVersion: vitistack.io/" + version + "\nkind: NetworkNamespace\nmetadata: {name: " + id + "}\nspec: "
					target, obj := read(t, client, namespace, network+tc.from)
					made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
					if err != nil {
						t.Fatal(err)
					}
					if phase != "" {
						_, status := read(t, client, namespace, network+tc.from+"\nstatus: "+fmt.Sprintf(held, phase))
						made.Object["status"] = status.Object["status"]
						if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					_, changed := read(t, client, namespace, network+tc.to)
					changed.SetResourceVersion(made.GetResourceVersion())
					_, err = target.Update(t.Context(), changed, metav1.UpdateOptions{})
					refused := apierrors.IsInvalid(err) && strings.Contains(err.Error(), tc.refusal) && strings.Contains(err.Error(), "or delete the network and create it again")
					if phase == "" || tc.refusal == "" {
						if err != nil {
							t.Errorf("%s: want it to be accepted, got %v", tc.reason, err)
						}
					} else if !refused {
						t.Errorf("%s: want it rejected with %q, got %v", tc.reason, tc.refusal, err)
					}
				})
			}
		}
	}
}

// TestSegmentIsWrittenBack has a network whose status has a segment other than the one in its spec.
// The spec may be corrected to the segment in the status, and to no other.
func TestSegmentIsWrittenBack(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const network = "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: drifted}\nspec: "
	spec := func(third, vlan int) string {
		return fmt.Sprintf("{networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.0.%[1]d.0/24, ipv4Gateway: 10.0.%[1]d.1, vlanId: %[2]d}}}", third, vlan)
	}
	target, obj := read(t, client, namespace, network+spec(5, 5))
	made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = map[string]any{"provisioningPhase": "Ready", "ipv4Prefix": "10.0.1.0/24", "ipv4Gateway": "10.0.1.1", "vlanId": int64(7)}
	if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	update := func(spec string) error {
		_, changed := read(t, client, namespace, network+spec)
		changed.SetResourceVersion(made.GetResourceVersion())
		_, err := target.Update(t.Context(), changed, metav1.UpdateOptions{})
		return err
	}
	if err := update(spec(6, 5)); !apierrors.IsInvalid(err) {
		t.Errorf("a third segment is not what machines have: %v", err)
	}
	if err := update(spec(1, 7)); err != nil {
		t.Errorf("the spec must be correctable to the allocated segment, got %v", err)
	}
}

// TestConfigurationNamesItsNetwork has a NetworkConfiguration without networkNamespaceName and with
// addresses in the only network of its namespace. Later it may name that network only.
func TestConfigurationNamesItsNetwork(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const configuration = "apiVersion: vitistack.io/v1alpha1\nkind: NetworkConfiguration\nmetadata: {name: x}\nspec: "
	target, obj := read(t, client, namespace, configuration+"{}")
	made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = map[string]any{"networkNamespaceName": "a", "networkInterfaces": []any{map[string]any{"name": "eth0"}}}
	if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, remedy := range map[string]string{"b": "write that, or delete the NetworkConfiguration", "a": ""} {
		_, changed := read(t, client, namespace, configuration+"{networkNamespaceName: "+name+"}")
		changed.SetResourceVersion(made.GetResourceVersion())
		_, err := target.Update(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if (err == nil) != (remedy == "") || (err != nil && !strings.Contains(err.Error(), remedy)) {
			t.Errorf("network %s: got %v, want it rejected with %q", name, err, remedy)
		}
	}
}

// TestMachineChanges changes fields of a Machine that may be corrected until it has a virtual machine,
// and are immutable afterwards.
func TestMachineChanges(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const machine = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: "
	cases := map[string]struct{ from, to, remedy string }{
		"shrink":    {"{template: small, disks: [{name: data, size: 10Gi}]}", "{template: small, disks: [{name: data, size: 9Gi}]}", "a disk cannot shrink"},
		"remove":    {"{template: small, disks: [{name: data, size: 10Gi}]}", "{template: small}", "a disk cannot be removed"},
		"class":     {"{template: small, disks: [{name: data, size: 10Gi}]}", "{template: small, disks: [{name: data, size: 10Gi, storageClass: fast}]}", "add another disk"},
		"provider":  {"{template: small, providerRef: {name: a}}", "{template: small, providerRef: {name: b}}", "does not move between hypervisors"},
		"network":   {"{template: small, networkNamespaceName: a}", "{template: small, networkNamespaceName: b}", "networkNamespaceName cannot be changed"},
		"nic":       {"{template: small, networks: [{name: eth0, networkName: a}]}", "{template: small, networks: [{name: eth0, networkName: b}]}", "networks cannot be changed"},
		"image":     {"{template: small, os: {imageID: a}}", "{template: small, os: {imageID: b}}", "os cannot be changed"},
		"cloudinit": {"{template: small, cloudInit: {userData: a}}", "{template: small, cloudInit: {userData: b}}", "at its first start only"},
		"board":     {"{template: small}", "{template: small, domain: {machine: {type: pc-q35}}}", "domain cannot be changed"},
		"boot":      {"{template: small, bootOrder: [disk, network]}", "{template: small, bootOrder: [network, disk]}", "bootOrder cannot be changed"},
		"host":      {"{template: small}", "{template: small, nodeName: a}", "nodeName cannot be changed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, obj := read(t, client, namespace, strings.Replace(machine, "%s", name, 1)+tc.from)
			made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			_, changed := read(t, client, namespace, strings.Replace(machine, "%s", name, 1)+tc.to)
			changed.SetResourceVersion(made.GetResourceVersion())
			if changed, err = target.Update(t.Context(), changed, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("the field must be mutable before the machine has a virtual machine: %v", err)
			}
			made.SetResourceVersion(changed.GetResourceVersion())
			if made, err = target.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			// The same applies while the machine's network is missing.
			made.Object["status"] = map[string]any{"provider": "kubevirt", "vmName": name, "conditions": []any{map[string]any{
				"type": "Ready", "status": "False", "reason": "NetworkConfigurationNotFound", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
			}}}
			if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			changed.SetResourceVersion(made.GetResourceVersion())
			changed.Object["status"] = made.Object["status"]
			_, err = target.Update(t.Context(), changed, metav1.UpdateOptions{})
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.remedy) {
				t.Errorf("want it rejected with %q, got %v", tc.remedy, err)
			}
		})
	}
}

// TestMachineDiskChanges changes disks of a Machine with a virtual machine: a disk is as it was created from the moment on that it exists.
func TestMachineDiskChanges(t *testing.T) {
	t.Parallel()
	client, namespace := setUp(t)
	const machine = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: %s}\nspec: {template: small, disks: [{name: old, size: 10Gi, storageClass: slow}%s]}"
	const data = ", {name: data, size: 10Gi, storageClass: slow}"
	root, both := []any{"root", "old"}, []any{"root", "old", "data"}
	for name, tc := range map[string]struct {
		why    string
		disks  []any
		reason string
		to     string
		remedy string
	}{
		"remove-new":       {"a quota refuses the disk", root, "KubeVirtApiError", "", ""},
		"class-new":        {"a quota refuses the disk", root, "KubeVirtApiError", ", {name: data, size: 10Gi, storageClass: fast}", ""},
		"shrink-new":       {"a quota refuses the disk", root, "KubeVirtApiError", ", {name: data, size: 1Gi, storageClass: slow}", ""},
		"remove":           {"the disk exists", both, "MachineRunning", "", "keep every disk of status.disks"},
		"class":            {"the disk exists", both, "MachineRunning", ", {name: data, size: 10Gi, storageClass: fast}", "add another disk"},
		"shrink":           {"the disk exists", both, "MachineRunning", ", {name: data, size: 1Gi, storageClass: slow}", "a disk cannot shrink"},
		"remove-hindered":  {"another disk is refused", both, "StorageClassNotFound", "", "keep every disk of status.disks"},
		"class-hindered":   {"another disk is refused", both, "TooManyDisks", ", {name: data, size: 10Gi, storageClass: fast}", "add another disk"},
		"shrink-hindered":  {"no host has room", both, "InsufficientResources", ", {name: data, size: 1Gi, storageClass: slow}", "a disk cannot shrink"},
		"shrink-back":      {"the disk did not grow", both, "DiskCannotGrow", ", {name: data, size: 1Gi, storageClass: slow}", ""},
		"unknown":          {"an older release has written the status", nil, "KubeVirtApiError", "", "keep every disk of status.disks"},
		"unknown-hindered": {"an older release has written the status", nil, "StorageClassNotFound", "", ""},
		"unknown-shrink":   {"an older release has written the status", nil, "InsufficientResources", ", {name: data, size: 1Gi, storageClass: slow}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, obj := read(t, client, namespace, fmt.Sprintf(machine, name, data))
			made, err := target.Create(t.Context(), obj, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			status := map[string]any{"provider": "kubevirt", "vmName": name, "conditions": []any{map[string]any{
				"type": "Ready", "status": "False", "reason": tc.reason, "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
			}}}
			if tc.disks != nil {
				status["disks"] = tc.disks
			}
			made.Object["status"] = status
			if made, err = target.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			_, changed := read(t, client, namespace, fmt.Sprintf(machine, name, tc.to))
			changed.SetResourceVersion(made.GetResourceVersion())
			_, err = target.Update(t.Context(), changed, metav1.UpdateOptions{})
			switch {
			case tc.remedy == "" && err != nil:
				t.Errorf("%s: want it accepted, got %v", tc.why, err)
			case tc.remedy != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.remedy)):
				t.Errorf("%s: want it rejected with %q, got %v", tc.why, tc.remedy, err)
			}
		})
	}
}

// TestOldestKubernetes checks that the chart and the documentation require a Kubernetes that has what the CRDs use.
func TestOldestKubernetes(t *testing.T) {
	t.Parallel()
	files, err := fs.Glob(os.DirFS("../../apis/crds"), "*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the CRDs: %d, %v", len(files), err)
	}
	uses := slices.ContainsFunc(files, func(name string) bool {
		crd, err := os.ReadFile("../../apis/crds/" + name)
		return err == nil && strings.Contains(string(crd), "selectableFields:")
	})
	if !uses {
		t.Fatal("no CRD has selectableFields: find out which Kubernetes the stack needs now, and correct this test")
	}
	// The feature gate CustomResourceFieldSelectors is on since 1.31 (k8s.io/apiextensions-apiserver/pkg/features). Before, the API server
	// drops selectableFields and refuses lists by these fields.
	for file, want := range map[string]string{
		"README.md": "a Kubernetes 1.31+ cluster", "charts/vitistack/Chart.yaml": `kubeVersion: ">=1.31.0-0"`, "charts/vitistack/README.md": "Kubernetes 1.31 or newer",
		"docs/install.md": "Kubernetes 1.31 or newer", "docs/compatibility.md": "| Kubernetes, which the stack runs on | 1.31 or newer |",
	} {
		text, err := os.ReadFile("../../" + file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not have %q: %v", file, want, err)
		}
	}
}

package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	"github.com/siderolabs/talos/pkg/machinery/config"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/encoder"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	vitistack "github.com/vitistack/stack/apis/v1alpha1"
)

// clusterConfig is what all nodes of a cluster have in common.
type clusterConfig struct {
	name     string
	endpoint string
	// sans are the other names and addresses of the control plane.
	sans       []string
	talos      string
	contract   *config.VersionContract
	disk       string
	installer  string
	networking vitistack.ClusterNetworking
	keys       *keys
	// vip is the virtual address that control planes share, or the zero value.
	vip netip.Addr
	// port is where API servers listen, zero for Talos's default.
	port int32
}

// nodeConfig is what one node has of its own.
type nodeConfig struct {
	name    string
	role    string
	version string
	links   []link
	// labels and taints are those of its pool, patches what somebody changes.
	labels  map[string]string
	taints  []vitistack.NodeTaint
	patches []patch
}

// link is a network interface of a node whose addresses are static.
type link struct {
	mac       string
	mtu       int32
	addresses []netip.Prefix
	gateways  []netip.Addr
	dns       []netip.Addr
}

// render writes the machine configuration of a node in the dialect of its
// cluster's Talos version, and validates it as a node would, strictly.
func render(c clusterConfig, n nodeConfig) (config.Provider, error) {
	input, err := generate.NewInput(c.name, c.endpoint, n.version, options(c)...)
	if err != nil {
		return nil, fmt.Errorf("generate configuration of %s: %w", n.name, err)
	}
	if c.networking.PodCIDR != "" {
		input.PodNet = []string{c.networking.PodCIDR}
	}
	if c.networking.ServiceCIDR != "" {
		input.ServiceNet = []string{c.networking.ServiceCIDR}
	}
	kind := machine.TypeWorker
	if n.role == vitistack.RoleControlPlane {
		kind = machine.TypeControlPlane
	}
	provider, err := input.Config(kind)
	if err != nil {
		return nil, fmt.Errorf("generate configuration of %s: %w", n.name, err)
	}
	if c.keys.next != nil {
		if provider, err = provider.PatchV1Alpha1(c.keys.setAuthorities); err != nil {
			return nil, fmt.Errorf("write authorities of %s: %w", n.name, err)
		}
	}
	if provider, err = personalise(provider, c, n); err != nil {
		return nil, fmt.Errorf("write configuration of %s: %w", n.name, err)
	}
	for _, p := range n.patches {
		if provider, err = p.apply(provider, n.name); err != nil {
			return nil, err
		}
	}
	if _, err := provider.Validate(metal{}, validation.WithLocal(), validation.WithStrict()); err != nil {
		return nil, fmt.Errorf("validate configuration of %s: %w", n.name, err)
	}
	return provider, nil
}

func options(c clusterConfig) []generate.Option {
	o := []generate.Option{
		generate.WithSecretsBundle(c.keys.issuer()), generate.WithVersionContract(c.contract),
		generate.WithInstallDisk(c.disk), generate.WithInstallImage(c.installer),
		generate.WithAdditionalSubjectAltNames(c.sans),
	}
	if c.port != 0 && c.port != defaultPort {
		o = append(o, generate.WithLocalAPIServerPort(int(c.port)))
	}
	if c.networking.DNSDomain != "" {
		o = append(o, generate.WithDNSDomain(c.networking.DNSDomain))
	}
	return o
}

// personalise adds a node's name, addresses and share of the virtual address:
// in documents of their own where the dialect has them, and otherwise in the one
// document of older versions.
func personalise(p config.Provider, c clusterConfig, n nodeConfig) (config.Provider, error) {
	if len(n.labels) > 0 || len(n.taints) > 0 {
		var err error
		if p, err = p.PatchV1Alpha1(func(v *v1alpha1.Config) error {
			mark(v.MachineConfig, n)
			return nil
		}); err != nil {
			return nil, err
		}
	}
	if !c.contract.MultidocNetworkConfigSupported() {
		return p.PatchV1Alpha1(func(v *v1alpha1.Config) error {
			v.MachineConfig.MachineNetwork = legacyNetwork(c, n) //nolint:staticcheck // versions before 1.12 have nothing else
			return nil
		})
	}
	var kept []documents.Document
	for _, d := range p.Documents() {
		if _, generated := d.(*network.HostnameConfigV1Alpha1); !generated {
			kept = append(kept, d)
		}
	}
	extra, err := networkDocuments(c, n)
	if err != nil {
		return nil, err
	}
	return container.New(append(kept, extra...)...)
}

// mark has a node begin with its labels and taints, so that no pod comes before
// them. What a kubelet may not set itself it gets later.
func mark(m *v1alpha1.MachineConfig, n nodeConfig) {
	labels := n.labels
	if n.role == vitistack.RoleWorker {
		labels = selfLabels(labels)
	}
	for key, value := range labels {
		if m.MachineNodeLabels == nil {
			m.MachineNodeLabels = map[string]string{}
		}
		m.MachineNodeLabels[key] = value
	}
	for _, t := range n.taints {
		if m.MachineNodeTaints == nil {
			m.MachineNodeTaints = map[string]string{}
		}
		m.MachineNodeTaints[t.Key] = strings.TrimPrefix(t.Value+":"+t.Effect, ":")
	}
}

// linkAlias is the name that configurations give to the i-th interface of a node,
// whatever the kernel calls it.
func linkAlias(i int) string { return fmt.Sprintf("net%d", i) }

func networkDocuments(c clusterConfig, n nodeConfig) ([]documents.Document, error) {
	off := nethelpers.AutoHostnameKindOff
	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname, hostname.ConfigAuto = n.name, &off
	all := []documents.Document{hostname}
	var resolvers []network.NameserverConfig
	for i, l := range n.links {
		match, err := cel.ParseBooleanExpression(fmt.Sprintf("mac(link.permanent_addr) == %q", l.mac), celenv.LinkLocator())
		if err != nil {
			return nil, fmt.Errorf("select link %s: %w", l.mac, err)
		}
		alias := network.NewLinkAliasConfigV1Alpha1(linkAlias(i))
		alias.Selector.Match = match
		up := network.NewLinkConfigV1Alpha1(linkAlias(i))
		up.LinkMTU = uint32(l.mtu)
		for _, a := range l.addresses {
			up.LinkAddresses = append(up.LinkAddresses, network.AddressConfig{AddressAddress: a})
		}
		for _, g := range l.gateways {
			up.LinkRoutes = append(up.LinkRoutes, network.RouteConfig{RouteGateway: network.Addr{Addr: g}})
		}
		for _, d := range l.dns {
			resolvers = append(resolvers, network.NameserverConfig{Address: network.Addr{Addr: d}})
		}
		all = append(all, alias, up)
	}
	if len(resolvers) > 0 {
		resolver := network.NewResolverConfigV1Alpha1()
		resolver.ResolverNameservers = resolvers
		all = append(all, resolver)
	}
	if c.vip.IsValid() && n.role == vitistack.RoleControlPlane && len(n.links) > 0 {
		vip := network.NewLayer2VIPConfigV1Alpha1(c.vip.String())
		vip.LinkName = linkAlias(0)
		all = append(all, vip)
	}
	return all, nil
}

// legacyNetwork is networkDocuments for versions before 1.12.
//
//nolint:staticcheck // what newer versions deprecate is all that older ones have
func legacyNetwork(c clusterConfig, n nodeConfig) *v1alpha1.NetworkConfig {
	out := &v1alpha1.NetworkConfig{NetworkHostname: n.name}
	for i, l := range n.links {
		device := &v1alpha1.Device{
			DeviceSelector: &v1alpha1.NetworkDeviceSelector{NetworkDeviceHardwareAddress: l.mac},
			DeviceMTU:      int(l.mtu),
		}
		for _, a := range l.addresses {
			device.DeviceAddresses = append(device.DeviceAddresses, a.String())
		}
		for _, g := range l.gateways {
			device.DeviceRoutes = append(device.DeviceRoutes, &v1alpha1.Route{RouteNetwork: anywhere(g), RouteGateway: g.String()})
		}
		for _, d := range l.dns {
			out.NameServers = append(out.NameServers, d.String())
		}
		if i == 0 && c.vip.IsValid() && n.role == vitistack.RoleControlPlane {
			device.DeviceVIPConfig = &v1alpha1.DeviceVIPConfig{SharedIP: c.vip.String()}
		}
		out.NetworkInterfaces = append(out.NetworkInterfaces, device)
	}
	return out
}

func anywhere(gateway netip.Addr) string {
	if gateway.Is6() {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// encode writes a configuration as it is sent to a node.
func encode(p config.Provider) ([]byte, error) {
	return p.EncodeBytes(encoder.WithComments(encoder.CommentsDisabled))
}

// encodeRedacted writes a configuration for people, without any secret.
func encodeRedacted(p config.Provider) ([]byte, error) {
	return encode(p.RedactSecrets("REDACTED"))
}

// metal is the mode that configurations are validated for: machines that install
// Talos to their disk.
type metal struct{}

func (metal) String() string        { return "metal" }
func (metal) RequiresInstall() bool { return true }
func (metal) InContainer() bool     { return false }

// links are the static interfaces of a machine, as layer 2 wrote them down.
func linksOf(nc *vitistack.NetworkConfiguration) []link {
	var links []link
	for _, i := range nc.Status.NetworkInterfaces {
		if i.AllocationMethod != "static" {
			continue
		}
		l := link{mac: strings.ToLower(string(i.MACAddress)), mtu: nc.Spec.MTU}
		l.add(i.IPv4Addresses, i.IPv4Subnet, i.IPv4Gateway)
		l.add(i.IPv6Addresses, i.IPv6Subnet, i.IPv6Gateway)
		for _, text := range i.DNS {
			if d, err := netip.ParseAddr(text); err == nil {
				l.dns = append(l.dns, d)
			}
		}
		links = append(links, l)
	}
	return links
}

func (l *link) add(addresses []string, subnet, gateway string) {
	prefix, err := netip.ParsePrefix(subnet)
	if err != nil {
		return
	}
	for _, text := range addresses {
		if a, err := netip.ParseAddr(text); err == nil {
			l.addresses = append(l.addresses, netip.PrefixFrom(a, prefix.Bits()))
		}
	}
	if g, err := netip.ParseAddr(gateway); err == nil && len(addresses) > 0 {
		l.gateways = append(l.gateways, g)
	}
}

// macsOf are the addresses of a machine's interfaces, as layer 3 made them.
func macsOf(nc *vitistack.NetworkConfiguration) []string {
	var macs []string
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.MACAddress != "" {
			macs = append(macs, strings.ToLower(string(i.MACAddress)))
		}
	}
	return macs
}

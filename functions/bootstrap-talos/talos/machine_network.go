package talos

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	documents "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	machineconfig "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Link is a network interface of a node with static addresses.
type Link struct {
	mac       string
	mtu       int32
	addresses []netip.Prefix
	gateways  []netip.Addr
	dns       []netip.Addr
}

// LinkAlias returns the name that configurations give to the i-th interface of a node, because
// the name of the kernel is not known.
func LinkAlias(i int) string { return fmt.Sprintf("net%d", i) }

func networkDocuments(c ClusterConfig, n NodeConfig) ([]documents.Document, error) {
	off := nethelpers.AutoHostnameKindOff
	hostname := network.NewHostnameConfigV1Alpha1()
	hostname.ConfigHostname, hostname.ConfigAuto = n.Name, &off
	all := []documents.Document{hostname}
	var resolvers []network.NameserverConfig
	for i, l := range n.Links {
		match, err := cel.ParseBooleanExpression(fmt.Sprintf("mac(link.permanent_addr) == %q", l.mac), celenv.LinkLocator())
		if err != nil {
			return nil, fmt.Errorf("select link %s: %w", l.mac, err)
		}
		alias := network.NewLinkAliasConfigV1Alpha1(LinkAlias(i))
		alias.Selector.Match = match
		up := network.NewLinkConfigV1Alpha1(LinkAlias(i))
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
	if c.VIP.IsValid() && n.Role == v1alpha1.RoleControlPlane && len(n.Links) > 0 {
		vip := network.NewLayer2VIPConfigV1Alpha1(c.VIP.String())
		vip.LinkName = LinkAlias(0)
		all = append(all, vip)
	}
	return all, nil
}

// legacyNetwork is networkDocuments for versions before 1.12.
//
//nolint:staticcheck // what newer versions deprecate is all that older ones have
func legacyNetwork(c ClusterConfig, n NodeConfig) *machineconfig.NetworkConfig {
	out := &machineconfig.NetworkConfig{NetworkHostname: n.Name}
	for i, l := range n.Links {
		device := &machineconfig.Device{
			DeviceSelector: &machineconfig.NetworkDeviceSelector{NetworkDeviceHardwareAddress: l.mac},
			DeviceMTU:      int(l.mtu),
		}
		for _, a := range l.addresses {
			device.DeviceAddresses = append(device.DeviceAddresses, a.String())
		}
		for _, g := range l.gateways {
			device.DeviceRoutes = append(device.DeviceRoutes, &machineconfig.Route{RouteNetwork: defaultRoute(g), RouteGateway: g.String()})
		}
		for _, d := range l.dns {
			out.NameServers = append(out.NameServers, d.String())
		}
		if i == 0 && c.VIP.IsValid() && n.Role == v1alpha1.RoleControlPlane {
			device.DeviceVIPConfig = &machineconfig.DeviceVIPConfig{SharedIP: c.VIP.String()}
		}
		out.NetworkInterfaces = append(out.NetworkInterfaces, device)
	}
	return out
}

func defaultRoute(gateway netip.Addr) string {
	if gateway.Is6() {
		return "::/0"
	}
	return "0.0.0.0/0"
}

// LinksOf returns the interfaces with static addresses from the status of a
// NetworkConfiguration.
func LinksOf(nc *v1alpha1.NetworkConfiguration) []Link {
	var links []Link
	for _, i := range nc.Status.NetworkInterfaces {
		if i.AllocationMethod != "static" {
			continue
		}
		l := Link{mac: strings.ToLower(string(i.MACAddress)), mtu: nc.Spec.MTU}
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

func (l *Link) add(addresses []string, subnet, gateway string) {
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

// MACsOf returns the MAC addresses in the spec of a NetworkConfiguration, in lower case.
func MACsOf(nc *v1alpha1.NetworkConfiguration) []string {
	var macs []string
	for _, i := range nc.Spec.NetworkInterfaces {
		if i.MACAddress != "" {
			macs = append(macs, strings.ToLower(string(i.MACAddress)))
		}
	}
	return macs
}

// Package cloudinit parses the network data of a guest as cloud-init and Talos do: network
// configuration versions 1 and 2. What any of them misreads or rejects fails here too:
//
//   - cloud-init 22.4, of Debian 12, reads ::/0 in the routes of version 2 as ::/64
//   - netplan rejects a configuration with two default routes of one family and
//     metric: "Conflicting default route declarations"
//
// tests/conformance compares it with both, in the versions of Debian.
package cloudinit

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Interface is the configuration of one network interface.
type Interface struct {
	// MAC is in lower case. It is empty if Name selects the interface.
	MAC  string
	Name string
	// Addresses are static, in the given order.
	Addresses []netip.Prefix
	// Gateway is the first default route, IPv4 before IPv6. It may be invalid.
	Gateway netip.Addr
	// DHCP is whether the interface also requests a lease.
	DHCP bool
}

// Parse parses network data of either version. Empty data configures no interface and is no error: the
// guest then uses its default, which is DHCP.
func Parse(data string) ([]Interface, error) {
	if strings.TrimSpace(data) == "" {
		return nil, nil
	}
	var head struct {
		Network *document `json:"network"`
		document
	}
	if err := yaml.Unmarshal([]byte(data), &head); err != nil {
		return nil, fmt.Errorf("decode network data: %w", err)
	}
	doc := head.document
	if head.Network != nil {
		doc = *head.Network
	}
	switch doc.Version {
	case 1:
		return doc.version1()
	case 2:
		return doc.version2()
	default:
		return nil, fmt.Errorf("network data has version %d; write version 1 or 2", doc.Version)
	}
}

// For returns the settings of the interface with a MAC address or else a name, and whether the data
// has one.
func For(interfaces []Interface, mac, name string) (Interface, bool) {
	for _, i := range interfaces {
		if i.MAC != "" && strings.EqualFold(i.MAC, mac) {
			return i, true
		}
	}
	for _, i := range interfaces {
		if i.MAC == "" && i.Name == name {
			return i, true
		}
	}
	return Interface{}, false
}

type document struct {
	Version   int                 `json:"version"`
	Config    []entry             `json:"config"`
	Ethernets map[string]ethernet `json:"ethernets"`
}

// entry is an interface in version 1.
type entry struct {
	Type    string   `json:"type"`
	Name    string   `json:"name"`
	MAC     string   `json:"mac_address"`
	Subnets []subnet `json:"subnets"`
}

type subnet struct {
	Type    string  `json:"type"`
	Address string  `json:"address"`
	Netmask any     `json:"netmask"`
	Gateway string  `json:"gateway"`
	Routes  []route `json:"routes"`
}

type route struct {
	To          string `json:"to"`
	Via         string `json:"via"`
	Destination string `json:"destination"`
	Network     string `json:"network"`
	Netmask     any    `json:"netmask"`
	Gateway     string `json:"gateway"`
	Metric      any    `json:"metric"`
}

// ethernet is an interface in version 2.
type ethernet struct {
	Match struct {
		MAC  string `json:"macaddress"`
		Name string `json:"name"`
	} `json:"match"`
	SetName   string   `json:"set-name"`
	Addresses []string `json:"addresses"`
	DHCP4     bool     `json:"dhcp4"`
	DHCP6     bool     `json:"dhcp6"`
	Gateway4  string   `json:"gateway4"`
	Gateway6  string   `json:"gateway6"`
	Routes    []route  `json:"routes"`
}

func (d document) version1() ([]Interface, error) {
	var found []Interface
	for _, e := range d.Config {
		if e.Type != "physical" {
			continue
		}
		i := Interface{MAC: strings.ToLower(e.MAC), Name: e.Name}
		for _, s := range e.Subnets {
			if err := s.apply(&i); err != nil {
				return nil, fmt.Errorf("interface %s: %w", e.Name, err)
			}
		}
		found = append(found, i)
	}
	return found, nil
}

func (s subnet) apply(i *Interface) error {
	switch s.Type {
	case "dhcp", "dhcp4", "dhcp6", "ipv6_dhcpv6-stateful":
		i.DHCP = true
		return nil
	case "static", "static6":
	default:
		return nil
	}
	p, err := prefix(s.Address, s.Netmask)
	if err != nil {
		return err
	}
	i.Addresses = append(i.Addresses, p)
	if err := i.route(s.Gateway); err != nil {
		return err
	}
	for _, r := range s.Routes {
		if r.isDefault() {
			if err := i.route(r.Gateway); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d document) version2() ([]Interface, error) {
	var found []Interface
	defaults := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(d.Ethernets)) {
		e := d.Ethernets[name]
		if err := e.claimDefaults(name, defaults); err != nil {
			return nil, err
		}
		i := Interface{MAC: strings.ToLower(e.Match.MAC), Name: name, DHCP: e.DHCP4 || e.DHCP6}
		if e.Match.Name != "" {
			i.Name = e.Match.Name
		}
		for _, a := range e.Addresses {
			p, err := prefix(a, nil)
			if err != nil {
				return nil, fmt.Errorf("ethernet %s: %w", name, err)
			}
			i.Addresses = append(i.Addresses, p)
		}
		gateways := []string{e.Gateway4, e.Gateway6}
		for _, r := range e.Routes {
			if r.isDefault() && r.To != lostRoute {
				gateways = append(gateways, r.Via)
			}
		}
		for _, g := range gateways {
			if err := i.route(g); err != nil {
				return nil, fmt.Errorf("ethernet %s: %w", name, err)
			}
		}
		found = append(found, i)
	}
	return found, nil
}

// lostRoute is the destination of a default route that cloud-init 22.4 loses.
const lostRoute = "::/0"

// claimDefaults records which interface has the default route of each family and metric. Its errors
// are those of netplan.
func (e ethernet) claimDefaults(name string, defaults map[string]string) error {
	var keys []string
	if e.Gateway4 != "" {
		keys = append(keys, "IPv4")
	}
	if e.Gateway6 != "" {
		keys = append(keys, "IPv6")
	}
	for _, r := range e.Routes {
		if via, err := netip.ParseAddr(r.Via); r.isDefault() && err == nil {
			key := "IPv4"
			if via.Is6() {
				key = "IPv6"
			}
			if r.Metric != nil {
				key += fmt.Sprintf(" metric %v", r.Metric)
			}
			keys = append(keys, key)
		}
	}
	for _, key := range keys {
		if first, taken := defaults[key]; taken {
			return fmt.Errorf("conflicting default route declarations for %s, first declared in %s but also in %s", key, first, name)
		}
		defaults[key] = name
	}
	return nil
}

// isDefault reports whether a route of either version is a default route.
func (r route) isDefault() bool {
	switch {
	case r.To == "default" || r.To == "0.0.0.0/0" || r.To == "::/0":
		return true
	case r.Destination == "0.0.0.0/0" || r.Destination == "::/0":
		return true
	}
	return (r.Network == "0.0.0.0" && (r.Netmask == nil || r.Netmask == "0.0.0.0")) || (r.Network == "::" && r.Netmask == nil)
}

// route stores the first default gateway, IPv4 before IPv6.
func (i *Interface) route(gateway string) error {
	if gateway == "" {
		return nil
	}
	g, err := netip.ParseAddr(gateway)
	if err != nil {
		return fmt.Errorf("gateway %q is not an IP address", gateway)
	}
	if !i.Gateway.IsValid() || (i.Gateway.Is6() && g.Is4()) {
		i.Gateway = g
	}
	return nil
}

// prefix parses an address with its prefix length, or with a separate mask.
func prefix(address string, mask any) (netip.Prefix, error) {
	if p, err := netip.ParsePrefix(address); err == nil {
		return p, nil
	}
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("address %q is neither an IP address nor one with a prefix length", address)
	}
	bits, err := maskBits(mask, a.BitLen())
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(a, bits), nil
}

// maskBits returns the length of a mask: a number, a number in a string, or dotted decimal. Without a
// mask it is a single address.
func maskBits(mask any, most int) (int, error) {
	length := -1
	switch m := mask.(type) {
	case nil:
		length = most
	case float64:
		length = int(m)
	case string:
		if n, err := strconv.Atoi(m); err == nil {
			length = n
		} else if a, err := netip.ParseAddr(m); err == nil {
			ones, size := net.IPMask(a.AsSlice()).Size()
			if size != 0 {
				length = ones
			}
		}
	}
	if length < 0 || length > most {
		return 0, fmt.Errorf("netmask %v is neither a mask nor a length of at most %d", mask, most)
	}
	return length, nil
}

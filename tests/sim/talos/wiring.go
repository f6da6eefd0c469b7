package talos

import (
	"crypto/sha256"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config"
	configs "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// wiring is the name and the address that follow from a machine's hardware and configuration.
type wiring struct {
	hostname, domain string
	// address is invalid if the configuration leaves the link without one.
	address netip.Prefix
	gateway netip.Addr
	// vips are virtual addresses of the control plane nodes.
	vips []netip.Addr
	// skew is how far the machine's clock is ahead.
	skew time.Duration
}

// now returns the time on the machine's clock.
func (n wiring) now() time.Time { return time.Now().Add(n.skew) }

func (n wiring) fqdn() string {
	if n.domain == "" {
		return n.hostname
	}
	return n.hostname + "." + n.domain
}

// wiringOf returns the wiring of a machine. Without a configuration, and for links that it does not
// mention, the address is the one from DHCP.
func wiringOf(m Machine, cfg config.Provider) wiring {
	n := wiring{address: m.Address, gateway: m.Gateway, skew: m.Skew}
	name := m.Hostname
	if cfg != nil {
		var mentioned bool
		var static []netip.Prefix
		mentioned, static, n.vips = linkConfig(m, cfg)
		switch {
		case len(static) > 0:
			n.address = static[0]
		case mentioned && !m.Static:
			n.address = netip.Prefix{}
		}
		name = configuredHostname(m, cfg, n.address)
	}
	if name == "" {
		name = stableHostname(m.ID)
	}
	n.hostname, n.domain, _ = strings.Cut(strings.ToLower(name), ".")
	return n
}

func configuredHostname(m Machine, cfg config.Provider, address netip.Prefix) string {
	c := cfg.NetworkHostnameConfig()
	switch {
	case c == nil:
		return m.Hostname
	case c.Hostname() != "":
		return c.Hostname()
	case m.Hostname != "":
		return m.Hostname
	case c.AutoHostname() == nethelpers.AutoHostnameKindAddr && address.IsValid():
		return "talos-" + strings.NewReplacer(".", "-", ":", "").Replace(address.Addr().String())
	}
	return ""
}

// stableHostname returns the name that a machine gives itself. It is always the same.
func stableHostname(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := strings.ToLower(new(big.Int).SetBytes(sum[:8]).Text(36))
	name += strings.Repeat("0", max(0, 7-len(name)))
	return "talos-" + name[1:4] + "-" + name[4:7]
}

// linkConfig returns the configuration of the first link: whether it disables DHCP, its static
// addresses, and its virtual addresses.
func linkConfig(m Machine, cfg config.Provider) (mentioned bool, static []netip.Prefix, vips []netip.Addr) {
	link, names := m.Links[0], aliases(m, 0, cfg)
	for _, device := range cfg.Machine().Network().Devices() {
		if vip := device.VIPConfig(); vip != nil {
			vips = appendAddr(vips, vip.IP())
		}
		if !selectsDevice(device.Interface(), device.Selector(), link) || device.Ignore() {
			continue
		}
		mentioned = mentioned || !device.DHCP()
		for _, address := range device.Addresses() {
			static = appendPrefix(static, address)
		}
	}
	dhcp := slices.ContainsFunc(cfg.NetworkDHCPConfigs(), func(c configs.NetworkDHCPConfig) bool { return slices.Contains(names, c.Name()) })
	for _, c := range cfg.NetworkCommonLinkConfigs() {
		if !slices.Contains(names, c.Name()) {
			continue
		}
		mentioned = mentioned || !dhcp
		for _, address := range c.Addresses() {
			static = append(static, address.Address())
		}
	}
	for _, c := range cfg.NetworkVirtualIPConfigs() {
		if slices.Contains(names, c.Link()) {
			vips = append(vips, c.VIP())
		}
	}
	if !cfg.Machine().Type().IsControlPlane() {
		vips = nil
	}
	return mentioned, static, vips
}

func appendPrefix(to []netip.Prefix, s string) []netip.Prefix {
	if p, err := netip.ParsePrefix(s); err == nil {
		return append(to, p)
	}
	if a, err := netip.ParseAddr(s); err == nil {
		return append(to, netip.PrefixFrom(a, a.BitLen()))
	}
	return to
}

func appendAddr(to []netip.Addr, s string) []netip.Addr {
	if a, err := netip.ParseAddr(s); err == nil {
		return append(to, a)
	}
	return to
}

package main

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// proxies are the addresses whose word about callers is believed.
type proxies []netip.Prefix

func parseProxies(list []string) (proxies, error) {
	var all proxies
	for _, text := range list {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("read configuration: key server.trustedProxies: %q is neither an address nor a prefix", text)
			}
			prefix = netip.PrefixFrom(address, address.BitLen())
		}
		all = append(all, prefix)
	}
	return all, nil
}

func (p proxies) trust(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// callerAddress is the address that a request comes from: that of the connection,
// or where that is a trusted proxy the one nearest to it in X-Forwarded-For that is
// not. What stands further to the left anybody could have written.
func (g *gateway) callerAddress(c *fiber.Ctx) string {
	remote, ok := netip.AddrFromSlice(c.Context().RemoteIP())
	if !ok {
		return c.Context().RemoteIP().String()
	}
	remote = remote.Unmap()
	if len(g.proxies) == 0 || !g.proxies.trust(remote) {
		return remote.String()
	}
	hops := strings.Split(c.Get(fiber.HeaderXForwardedFor), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		remote = hop.Unmap()
		if !g.proxies.trust(remote) {
			break
		}
	}
	return remote.String()
}

// newRequestID makes an identifier that tells requests apart and tells nobody how
// many there were.
func newRequestID() string {
	return "req-" + strings.ToLower(rand.Text()[:16])
}

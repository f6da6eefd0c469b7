package httpserver

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// proxies are the addresses of the trusted proxies.
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

func (p proxies) contain(a netip.Addr) bool {
	for _, prefix := range p {
		if prefix.Contains(a) {
			return true
		}
	}
	return false
}

// ClientAddress returns the address that a request comes from: the address of the connection or, if that is a trusted proxy, the
// last address in X-Forwarded-For that is not a trusted proxy. Addresses further left may be forged.
func (s *Server) ClientAddress(c *fiber.Ctx) string {
	remote, ok := netip.AddrFromSlice(c.Context().RemoteIP())
	if !ok {
		return c.Context().RemoteIP().String()
	}
	remote = remote.Unmap()
	if len(s.proxies) == 0 || !s.proxies.contain(remote) {
		return remote.String()
	}
	hops := strings.Split(c.Get(fiber.HeaderXForwardedFor), ",")
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := netip.ParseAddr(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		remote = hop.Unmap()
		if !s.proxies.contain(remote) {
			break
		}
	}
	return remote.String()
}

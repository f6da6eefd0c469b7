package httpserver

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/connlimit"
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

// ClientAddress returns what a caller is counted by: the address of the request or, for IPv6, the prefix of it that counts as one
// address.
func (s *Server) ClientAddress(c *fiber.Ctx) string {
	remote, ok := netip.AddrFromSlice(c.Context().RemoteIP())
	if !ok {
		return c.Context().RemoteIP().String()
	}
	return connlimit.SourceOf(s.origin(remote.Unmap(), c).WithZone("")).String()
}

// origin returns the address that a request comes from: the address of the connection or, if that is a trusted proxy, the last
// address in X-Forwarded-For that is not a trusted proxy. Addresses further left may be forged.
func (s *Server) origin(remote netip.Addr, c *fiber.Ctx) netip.Addr {
	if len(s.proxies) == 0 || !s.proxies.contain(remote) {
		return remote
	}
	hops := forwardedFor(c)
	for i := len(hops) - 1; i >= 0; i-- {
		hop, err := parseHop(strings.TrimSpace(hops[i]))
		if err != nil {
			break
		}
		remote = hop.Unmap()
		if !s.proxies.contain(remote) {
			break
		}
	}
	return remote
}

// parseHop parses an address of X-Forwarded-For. Some proxies, such as the Application Gateway of Azure, write the port of the client behind it.
func parseHop(text string) (netip.Addr, error) {
	if hop, err := netip.ParseAddrPort(text); err == nil {
		return hop.Addr(), nil
	}
	return netip.ParseAddr(strings.Trim(text, "[]"))
}

// forwardedFor returns the addresses in all lines of X-Forwarded-For. Some proxies, such as HAProxy, add a line of their own below the
// lines of the client.
func forwardedFor(c *fiber.Ctx) []string {
	var hops []string
	for _, line := range c.Request().Header.PeekAll(fiber.HeaderXForwardedFor) {
		hops = append(hops, strings.Split(string(line), ",")...)
	}
	return hops
}

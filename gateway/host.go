package main

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// checkHost refuses requests for hosts that are not the gateway's, as long as it asks for no
// key. A web site could otherwise have a browser read the gateway by giving its own name the
// gateway's address (DNS rebinding), for example that of a port-forward.
func (g *gateway) checkHost(c *fiber.Ctx) error {
	if g.config.Auth.Enabled {
		return nil
	}
	host := hostOf(string(c.Request().Host()))
	if isOwnHost(host, g.config.Server.AllowedHosts) {
		return nil
	}
	return problem.New(http.StatusMisdirectedRequest, "host %q is not known to be this gateway's: set auth.enabled, or add the host to server.allowedHosts (SERVER_ALLOWEDHOSTS)", host)
}

// hostOf is a Host header without its port, in small letters.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isOwnHost tells whether a host can only be the gateway's: an address, a name that no web
// site can have, or one of a list of names and of *.names.
func isOwnHost(host string, allowed []string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" || !strings.Contains(host, ".") {
		return true
	}
	for _, suffix := range []string{".localhost", ".svc", ".svc.cluster.local"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return slices.ContainsFunc(allowed, func(name string) bool {
		name = strings.ToLower(name)
		below, wildcard := strings.CutPrefix(name, "*")
		return host == name || (wildcard && strings.HasSuffix(host, below))
	})
}

package httpserver

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/problem"
)

// checkHost refuses requests for foreign host names while the gateway requires no key. Otherwise a web site could resolve its own
// name to the gateway's address, for example that of a port-forward, and read the gateway through a browser (DNS rebinding).
func (s *Server) checkHost(c *fiber.Ctx) error {
	if s.Auth.Settings.Enabled {
		return nil
	}
	host := hostOf(string(c.Request().Host()))
	if isOwnHost(host, s.Settings.AllowedHosts) {
		return nil
	}
	return problem.New(http.StatusMisdirectedRequest, "host %q is not known to be this gateway's: set auth.enabled, or add the host to server.allowedHosts (SERVER_ALLOWEDHOSTS)", host)
}

// hostOf returns a Host header in lower case, without its port.
func hostOf(header string) string {
	host, _, err := net.SplitHostPort(header)
	if err != nil {
		host = header
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// isOwnHost reports whether a host can only be the gateway: an address, a name that no web site can have, or one of the allowed
// names, which may begin with *. The port of an allowed name is ignored, as that of the request is.
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
		name = hostOf(name)
		below, wildcard := strings.CutPrefix(name, "*")
		return host == name || (wildcard && strings.HasSuffix(host, below))
	})
}

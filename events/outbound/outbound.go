// Package outbound restricts the servers that functions and the gateway may connect to, if
// an object, a Secret or a setting names them.
package outbound

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/proxy"
)

// Variable is the environment variable with the list that Parse reads.
const Variable = "ALLOWED_ENDPOINTS"

// neverByName has the addresses that only an address or a CIDR of the list allows: those at which clouds serve
// credentials without authentication, and those of this host or of no single server. No backend of the stack uses them.
var neverByName = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local: AWS, Azure, Google, OpenStack
	"fd00:ec2::/32", "fd20:ce::254/128", // AWS and Google by IPv6
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // Alibaba, Azure, Oracle
	"64:ff9b::169.254.0.0/112", // link-local by NAT64
	"0.0.0.0/8", "::/128",      // this host
	"224.0.0.0/3", "ff00::/8", // no single server
)

func prefixes(all ...string) []netip.Prefix {
	parsed := make([]netip.Prefix, len(all))
	for i, text := range all {
		parsed[i] = netip.MustParsePrefix(text)
	}
	return parsed
}

// Rules say which servers may be connected to. The zero Rules allow all except the addresses of neverByName.
type Rules struct {
	hosts    []string
	prefixes []netip.Prefix
	broken   error
	// proxy is the proxy for all connections except the exceptions, or nil.
	proxy *url.URL
	// direct are the exceptions, in the form of NO_PROXY.
	direct string
}

// Parse reads a comma-separated list of host names (s3.example.com), wildcards
// (*.example.com), addresses and CIDRs. An empty list results in the zero Rules. Any other
// list allows only the servers on it. Only a CIDR or an address allows a link-local address,
// a name does not. An invalid list allows nothing, and each refusal says what to write.
func Parse(list string) Rules {
	var r Rules
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.ToLower(strings.TrimSuffix(strings.TrimSpace(entry), "."))
		if entry == "" {
			continue
		}
		if p, err := netip.ParsePrefix(entry); err == nil {
			r.prefixes = append(r.prefixes, p.Masked())
		} else if a, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
			r.prefixes = append(r.prefixes, netip.PrefixFrom(a, a.BitLen()))
		} else if name := strings.TrimPrefix(entry, "*."); isName(name) {
			r.hosts = append(r.hosts, strings.TrimPrefix(entry, "*"))
		} else {
			return Rules{broken: fmt.Errorf("read %s: %q is no host name, address or CIDR: write for example s3.example.com,*.corp.example.com,10.0.0.0/8", Variable, entry)}
		}
	}
	return r
}

// isName reports whether text is a host name and not a misspelt address.
func isName(text string) bool {
	last := text[strings.LastIndexByte(text, '.')+1:]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x") &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.Contains(text, "..")
}

// FromEnvironment returns the rules of this process. Connections use the SOCKS5 proxy in
// ALL_PROXY, except to the hosts, addresses and CIDRs in NO_PROXY.
var FromEnvironment = sync.OnceValue(func() Rules { return Parse(os.Getenv(Variable)).ThroughProxy() })

// ThroughProxy returns the rules with the proxy of this process, as FromEnvironment has it.
func (r Rules) ThroughProxy() Rules { return r.through(os.Getenv("ALL_PROXY"), os.Getenv("NO_PROXY")) }

// through returns the rules with a proxy, whose URL has the form
// socks5://[user:password@]host:port. An empty URL means none. Rules with an invalid URL
// allow nothing.
func (r Rules) through(proxyURL, direct string) Rules {
	if proxyURL == "" || r.broken != nil {
		return r
	}
	u, err := url.Parse(proxyURL)
	if err != nil || (u.Scheme != "socks5" && u.Scheme != "socks5h") || u.Port() == "" {
		return Rules{broken: errors.New("read ALL_PROXY: write socks5://host:port, or leave it empty to connect directly")}
	}
	r.proxy, r.direct = u, direct
	return r
}

// Denied is a connection that the rules do not allow.
type Denied struct {
	// Host is the server as the request named it.
	Host   string
	broken error
}

func (d *Denied) Error() string {
	if d.broken != nil {
		return d.broken.Error()
	}
	return "connections to " + d.Host + " are not allowed here: name another server, or have it added to " + Variable
}

// Retried returns false: another attempt is denied as well.
func (d *Denied) Retried() bool { return false }

// Unwrap returns the error of an invalid list, or nil.
func (d *Denied) Unwrap() error { return d.broken }

// names reports whether the list has the name of a host.
func (r Rules) names(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(r.hosts, func(h string) bool {
		return h == host || (strings.HasPrefix(h, ".") && strings.HasSuffix(host, h))
	})
}

// allows reports whether an address may be connected to. named is whether the list has the
// name that resolved to the address.
func (r Rules) allows(a netip.Addr, named bool) bool {
	a = a.Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case r.broken != nil:
		return false
	case slices.ContainsFunc(r.prefixes, within):
		return true
	case slices.ContainsFunc(neverByName, within):
		return false
	default:
		return named || len(r.hosts)+len(r.prefixes) == 0
	}
}

// connectTimeout is the timeout of a connection to one address.
const connectTimeout = 10 * time.Second

// DialContext is net.Dialer.DialContext for servers that the rules allow. It checks the
// address to which a name resolves at the time of the connection, which prevents DNS
// rebinding. The error for any other server is *Denied. A proxy resolves names itself, so
// for a connection through a proxy DialContext checks a name as CheckURL does.
func (r Rules) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil || !strings.HasPrefix(network, "tcp") {
		return nil, &Denied{Host: address, broken: r.broken}
	}
	named := r.names(host)
	direct := &net.Dialer{Timeout: connectTimeout, ControlContext: func(_ context.Context, _, found string, _ syscall.RawConn) error {
		if at, err := netip.ParseAddrPort(found); err != nil || !r.allows(at.Addr(), named) {
			return &Denied{Host: host, broken: r.broken}
		}
		return nil
	}}
	if r.proxy == nil {
		return direct.DialContext(ctx, network, address)
	}
	socks, err := proxy.FromURL(r.proxy, &net.Dialer{Timeout: connectTimeout})
	if err != nil {
		return nil, fmt.Errorf("use the proxy in ALL_PROXY: %w", err)
	}
	by := proxy.NewPerHost(proxied{r, socks}, direct)
	by.AddFromString(r.direct)
	return by.DialContext(ctx, network, address)
}

// proxied connects through a proxy to hosts that the rules allow.
type proxied struct {
	rules Rules
	proxy.Dialer
}

// DialContext connects to an address through the proxy, with the timeout of a direct
// connection.
func (p proxied) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if host, _, err := net.SplitHostPort(address); err != nil || !p.rules.allowsHost(host) {
		return nil, &Denied{Host: host, broken: p.rules.broken}
	}
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if d, ok := p.Dialer.(proxy.ContextDialer); ok {
		return d.DialContext(ctx, network, address)
	}
	return p.Dial(network, address)
}

// Stay is the CheckRedirect of clients whose requests have credentials. It follows no
// redirect, so the credentials reach no other server.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// CheckURL checks a URL that another system will fetch, so that the address of its host is
// not known here. The error is *Denied. A URL without a host is allowed.
func (r Rules) CheckURL(address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	if !r.allowsHost(u.Hostname()) {
		return &Denied{Host: u.Hostname(), broken: r.broken}
	}
	return nil
}

// allowsHost reports whether another system, which resolves the name itself, may connect to
// a host. A listed name may resolve to any address. A name that is not listed is allowed
// only without a list, and not if it is an address in another notation, such as 0xa9fea9fe.
func (r Rules) allowsHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return r.allows(a, false)
	}
	return r.broken == nil && isName(strings.ToLower(host)) && (r.names(host) || len(r.hosts)+len(r.prefixes) == 0)
}

// Package outbound says which servers functions and the gateway may connect to,
// where an object, a Secret or a setting names one.
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

// metadata are addresses where clouds hand out credentials to whoever asks, and
// others that belong to the machine itself. Nothing of the stack's is there.
var metadata = prefixes(
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

// Rules say who may be connected to. The zero Rules allow everybody but
// link-local addresses and others that are known to hand out metadata.
type Rules struct {
	hosts    []string
	prefixes []netip.Prefix
	broken   error
	// proxy carries connections to all but its exceptions, unless it is nil.
	proxy *url.URL
	// direct are the exceptions, in the form of NO_PROXY.
	direct string
}

// Parse reads a list separated by commas, of host names (s3.example.com), names
// with all below them (*.example.com), addresses and CIDRs. An empty list gives the
// zero Rules; with any other, only who is listed may be connected to. A link-local
// address is allowed only by a CIDR or an address of the list, never by a name. A
// list that cannot be read allows nobody, and each refusal says what to write.
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

// isName tells whether text is a host name, and no address that is misspelt.
func isName(text string) bool {
	last := text[strings.LastIndexByte(text, '.')+1:]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x") &&
		strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-_.") == "" && !strings.Contains(text, "..")
}

// FromEnvironment are the rules that this process was started with. Connections go
// through the SOCKS5 proxy in ALL_PROXY, except to the hosts, addresses and CIDRs in
// NO_PROXY.
var FromEnvironment = sync.OnceValue(func() Rules {
	return Parse(os.Getenv(Variable)).through(os.Getenv("ALL_PROXY"), os.Getenv("NO_PROXY"))
})

// through returns the rules with a proxy, whose URL has the form
// socks5://[user:password@]host:port. An empty URL means none. Rules with a URL that
// cannot be used allow nobody.
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
	// Host is who was to be connected to, as whoever asked for it wrote it.
	Host   string
	broken error
}

func (d *Denied) Error() string {
	if d.broken != nil {
		return d.broken.Error()
	}
	return "connections to " + d.Host + " are not allowed here: name another server, or have it added to " + Variable
}

// Unwrap returns what is wrong with the list, if nobody is allowed because of that.
func (d *Denied) Unwrap() error { return d.broken }

// names tells whether the list has a host's name.
func (r Rules) names(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return slices.ContainsFunc(r.hosts, func(h string) bool {
		return h == host || (strings.HasPrefix(h, ".") && strings.HasSuffix(host, h))
	})
}

// allows tells whether an address may be connected to; named is whether the list
// has the name that it was found by.
func (r Rules) allows(a netip.Addr, named bool) bool {
	a = a.Unmap().WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case r.broken != nil:
		return false
	case slices.ContainsFunc(r.prefixes, within):
		return true
	case slices.ContainsFunc(metadata, within):
		return false
	default:
		return named || len(r.hosts)+len(r.prefixes) == 0
	}
}

// connectTimeout is for one address to be connected to.
const connectTimeout = 10 * time.Second

// DialContext is net.Dialer's for servers that may be connected to. What counts is
// the address that a name leads to when it is connected to, whatever the name led
// to before. Any other is an error for which errors.As finds *Denied. Through a proxy,
// which looks names up itself, a name is judged as CheckURL judges it.
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

// proxied connects through a proxy to hosts that may be connected to.
type proxied struct {
	rules Rules
	proxy.Dialer
}

// DialContext connects to an address, for which the proxy has as long as for a direct
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

// Stay is the CheckRedirect of clients whose requests hold credentials: they are sent
// to nobody else, and the answer is the redirect.
func Stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// CheckURL is for a URL that somebody else is going to fetch, so that nobody here
// sees the address that its name leads to. Its error is a *Denied; a URL without a
// host is not judged.
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

// allowsHost reports whether somebody else may connect to a host, whose name is looked
// up there. A listed name may lead anywhere; one that is not listed is allowed only
// where there is no list, and not if it is an address in disguise, such as 0xa9fea9fe.
func (r Rules) allowsHost(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return r.allows(a, false)
	}
	return r.broken == nil && isName(strings.ToLower(host)) && (r.names(host) || len(r.hosts)+len(r.prefixes) == 0)
}

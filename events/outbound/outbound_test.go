package outbound

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func TestAllows(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, list, address string
		named, want           bool
	}{
		"Anybody":      {reason: "without a list any backend is allowed", address: "192.0.2.7", want: true},
		"Metadata":     {reason: "the cloud's metadata service has credentials", address: "169.254.169.254"},
		"Mapped":       {reason: "the metadata service as an IPv4-mapped address", address: "::ffff:169.254.169.254"},
		"NAT64":        {reason: "the metadata service through NAT64", address: "64:ff9b::a9fe:a9fe"},
		"LinkLocal":    {reason: "a link-local address with a zone", address: "fe80::1%eth0"},
		"AWSv6":        {reason: "the metadata service over IPv6", address: "fd00:ec2::254"},
		"Unspecified":  {reason: "the unspecified address is this machine", address: "0.0.0.0"},
		"Listed":       {reason: "the address is in a listed prefix", list: "10.0.0.0/8", address: "10.1.2.3", want: true},
		"HostBits":     {reason: "a listed prefix with host bits is its network", list: "10.1.2.3/8", address: "10.9.9.9", want: true},
		"NotListed":    {reason: "a list excludes all other addresses", list: "10.0.0.0/8", address: "192.0.2.7"},
		"Named":        {reason: "the address belongs to a listed name", list: "s3.example.com", address: "192.0.2.7", named: true, want: true},
		"NamedAtMeta":  {reason: "a listed name must not lead to the metadata service", list: "s3.example.com", address: "169.254.169.254", named: true},
		"MetaListed":   {reason: "an explicitly listed address is allowed", list: "169.254.169.254", address: "169.254.169.254", want: true},
		"Broken":       {reason: "an invalid entry must not allow anything", list: "10.0.0.0/33", address: "10.1.2.3"},
		"BrokenByName": {reason: "an invalid entry must not allow anything", list: "http://s3.example.com", address: "192.0.2.7", named: true},
		"BrokenDigits": {reason: "a malformed address is no name", list: "10.0.0", address: "192.0.2.7", named: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := Parse(tc.list).allows(netip.MustParseAddr(tc.address), tc.named); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	r := Parse(" S3.example.com. , *.corp.example.com,,")
	for host, want := range map[string]bool{
		"s3.example.com": true, "S3.Example.com.": true, "x.s3.example.com": false, "nam.corp.example.com": true, "a.b.corp.example.com": true,
		"corp.example.com": false, "evilcorp.example.com": false, "s3.example.com.evil.net": false,
	} {
		if got := r.names(host); got != want {
			t.Errorf("%s: got %t", host, got)
		}
	}
}

// TestSSRF sends requests through the rules. A forbidden request reaches no server, whatever its path.
func TestSSRF(t *testing.T) {
	t.Parallel()
	reached := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	cases := map[string]struct{ reason, list, url, says string }{
		"Listed":    {reason: "a listed backend", list: "127.0.0.0/8", url: server.URL},
		"ByName":    {reason: "a listed backend by its name", list: "localhost", url: "http://localhost:" + port},
		"Other":     {reason: "the server is not listed", list: "10.0.0.0/8", url: server.URL, says: "connections to 127.0.0.1 are not allowed here"},
		"Rebinding": {reason: "a name resolves to an address that is not listed", list: "10.0.0.0/8,s3.example.com", url: "http://localhost:" + port, says: "connections to localhost are not allowed here"},
		"Metadata":  {reason: "no address is listed", url: "http://169.254.169.254/latest/meta-data", says: "connections to 169.254.169.254 are not allowed here"},
		"Hex":       {reason: "the unspecified address", url: "http://[::]:" + port, says: "not allowed"},
		"Mistake":   {reason: "the list is invalid", list: "127.0.0.1/99", url: server.URL, says: `read ALLOWED_ENDPOINTS: "127.0.0.1/99" is no host name`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			client := &http.Client{Transport: &http.Transport{DialContext: Parse(tc.list).DialContext, DisableKeepAlives: true}}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := client.Do(req)
			if err == nil {
				_ = res.Body.Close()
			}
			var denied *Denied
			switch {
			case tc.says == "" && (err != nil || len(reached) != 1):
				t.Errorf("%s: not reached: %v", tc.reason, err)
			case tc.says != "" && (!errors.As(err, &denied) || !strings.Contains(denied.Error(), tc.says) || len(reached) != 0):
				t.Errorf("%s: reached %d times, %v", tc.reason, len(reached), err)
			}
			for len(reached) > 0 {
				<-reached
			}
		})
	}
	if _, err := (Rules{}).DialContext(t.Context(), "unix", "/var/run/docker.sock"); err == nil {
		t.Error("a unix socket is no backend")
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, list, url string
		denied            bool
	}{
		"Anybody":   {reason: "without a list images may be anywhere", url: "https://images.example.com/a.qcow2"},
		"Metadata":  {reason: "the hypervisor would download its own credentials", url: "http://169.254.169.254/a.raw", denied: true},
		"Decimal":   {reason: "many clients read 2852039166 as 169.254.169.254", url: "http://2852039166/a.raw", denied: true},
		"Hex":       {reason: "many clients read the hexadecimal form as 169.254.169.254", url: "http://0xa9fea9fe/a.raw", denied: true},
		"Octal":     {reason: "and this", url: "http://0251.0376.0251.0376/a.raw", denied: true},
		"Listed":    {reason: "the name is listed", list: "*.example.com", url: "https://images.example.com/a.qcow2"},
		"NotListed": {reason: "another", list: "*.example.com", url: "https://example.net/a.qcow2", denied: true},
		"Template":  {reason: "no URL", list: "*.example.com", url: "9000"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := Parse(tc.list).CheckURL(tc.url); (err != nil) != tc.denied {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, list := range []string{"", "10.0.0.0/8, s3.example.com", "*.a,[::1],fe80::/10", "*.", ".", "a..b", "1.2.3", "\x00", "::ffff:1.2.3.4/97"} {
		f.Add(list, "10.0.0.1")
	}
	f.Fuzz(func(t *testing.T, list, address string) {
		r := Parse(list)
		a, err := netip.ParseAddr(address)
		if err != nil {
			return
		}
		if strings.Trim(list, ", \t\n.") != "" && len(r.prefixes) == 0 && r.allows(a, false) {
			t.Errorf("%q lists no address, but allows %s", list, a)
		}
		if link := netip.MustParseAddr("169.254.169.254"); len(r.prefixes) == 0 && r.allows(link, true) {
			t.Errorf("%q allows %s because of a name", list, link)
		}
	})
}

package main

import (
	"net/http"
	"testing"
)

func TestIsOwnHost(t *testing.T) {
	t.Parallel()
	allowed := []string{"vitistack.example.com", "*.corp.example.com"}
	for _, tc := range []struct {
		header, reason string
		want           bool
	}{
		{"127.0.0.1:9991", "a port-forward", true},
		{"[::1]:9991", "a port-forward by IPv6", true},
		{"10.0.3.7:9991", "a probe of the kubelet", true},
		{"localhost:9991", "a port-forward by name", true},
		{"gateway", "the Service, from its namespace", true},
		{"gateway.vitistack-system.svc:9991", "the Service, from anywhere in the cluster", true},
		{"gateway.vitistack-system.svc.cluster.local", "its whole name", true},
		{"", "HTTP/1.0 has no Host", true},
		{"Vitistack.Example.com.", "an ingress that is listed", true},
		{"a.corp.example.com:443", "below a name that is listed", true},
		{"attacker.example:9991", "a web site that has given its name the gateway's address", false},
		{"gateway.vitistack-system.svc.attacker.example", "a web site that looks like a Service", false},
		{"127.0.0.1.attacker.example", "a web site that looks like an address", false},
		{"corp.example.com", "above what is listed", false},
		{"evilcorp.example.com", "a name that ends like what is listed", false},
	} {
		if got := isOwnHost(hostOf(tc.header), allowed); got != tc.want {
			t.Errorf("%q: %t, want %t: %s", tc.header, got, tc.want, tc.reason)
		}
	}
}

// TestRebinding has a web site give its own name the address of a gateway that asks for no key.
func TestRebinding(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "reader", "read")
	free, listed, keyed := start(t), start(t, "--server.allowedHosts=vitistack.example.com"), start(t, "--auth.enabled=true", "--auth.keys="+line)
	for _, tc := range []struct {
		reason string
		s      *stand
		host   string
		want   int
	}{
		{"as before", free, "", http.StatusOK},
		{"of the web site", free, "attacker.example", http.StatusMisdirectedRequest},
		{"nobody has listed it", free, "vitistack.example.com", http.StatusMisdirectedRequest},
		{"listed", listed, "vitistack.example.com", http.StatusOK},
		{"another", listed, "attacker.example", http.StatusMisdirectedRequest},
		{"the web site has no key", keyed, "vitistack.example.com", http.StatusOK},
	} {
		for _, path := range []string{"/api/v1/clusters", "/"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = tc.host
			req.Header.Set("Authorization", "Bearer "+key)
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != tc.want {
				t.Errorf("%s for host %q: %s, want %d: %s", path, tc.host, res.Status, tc.want, tc.reason)
			}
		}
	}
}

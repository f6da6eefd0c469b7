package httpserver

import "testing"

func TestIsOwnHost(t *testing.T) {
	t.Parallel()
	allowed := []string{"vitistack.example.com", "*.corp.example.com", "Status.example.net.:8443"}
	for _, tc := range []struct {
		header, reason string
		want           bool
	}{
		{"127.0.0.1:9991", "a port-forward", true},
		{"[::1]:9991", "a port-forward over IPv6", true},
		{"10.0.3.7:9991", "a probe of the kubelet", true},
		{"localhost:9991", "a port-forward by name", true},
		{"gateway", "the Service, from its own namespace", true},
		{"gateway.vitistack-system.svc:9991", "the Service, from another namespace", true},
		{"gateway.vitistack-system.svc.cluster.local", "the full name of the Service", true},
		{"", "HTTP/1.0 has no Host", true},
		{"Vitistack.Example.com.", "a listed ingress", true},
		{"a.corp.example.com:443", "a subdomain of a listed name", true},
		{"status.example.net:8443", "a name that is listed with its port, as the Host header has it", true},
		{"status.example.net", "a listed name at another port: any port of a name leads to the same pages", true},
		{"attacker.example:9991", "a web site whose name resolves to the gateway's address", false},
		{"gateway.vitistack-system.svc.attacker.example", "a web site whose name begins like a Service", false},
		{"127.0.0.1.attacker.example", "a web site whose name begins like an address", false},
		{"corp.example.com", "the parent of a listed name", false},
		{"evilcorp.example.com", "a name with a listed name as its suffix", false},
	} {
		if got := isOwnHost(hostOf(tc.header), allowed); got != tc.want {
			t.Errorf("%q: %t, want %t: %s", tc.header, got, tc.want, tc.reason)
		}
	}
}

package httpserver

import "testing"

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

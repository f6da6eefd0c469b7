package app

import (
	"net/http"
	"testing"
)

// TestRebinding has a web site give its own name the address of a gateway that asks for no key.
func TestRebinding(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "reader", "read")
	free, listed, keyed := start(t), start(t, "--server.allowedHosts=vitistack.example.com"), start(t, "--auth.enabled=true", "--auth.keys="+line)
	for _, tc := range []struct {
		reason string
		s      *env
		host   string
		want   int
	}{
		{"as before", free, "", http.StatusOK},
		{"of the web site", free, "attacker.example", http.StatusMisdirectedRequest},
		{"the host is not listed", free, "vitistack.example.com", http.StatusMisdirectedRequest},
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

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vitistack/stack/gateway/internal/config"
)

// lookupIn returns a lookup of environment variables.
func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

func TestGet(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
		case "/metrics":
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("as it is"))
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	cases := map[string]struct {
		reason, server, target string
		fails                  string
	}{
		"URL":       {"a URL selects another gateway", plain.URL, plain.URL + "/health", ""},
		"Path":      {"a path selects the local gateway", plain.URL, "/health", ""},
		"TLS":       {"the local gateway may have a certificate for its own name", secure.URL, "/health", ""},
		"Untrusted": {"the certificate of another gateway is verified", secure.URL, secure.URL + "/health", "certificate"},
		"Sick":      {"any status except 200 is an error", plain.URL, "/ready", "503"},
		"Key":       {"the message says how to send a key", plain.URL, "/metrics", "curl --header 'Authorization: Bearer KEY' http://127.0.0.1:"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			scheme, address, _ := strings.Cut(tc.server, "://")
			host, port, _ := strings.Cut(address, ":")
			settings := map[string]string{"SERVER_HOST": host, "SERVER_PORT": port, "TLS_ENABLED": fmt.Sprint(scheme == "https")}
			err := get(t.Context(), []string{tc.target}, lookupIn(settings), &out)
			if (err != nil) != (tc.fails != "") || err != nil && !strings.Contains(err.Error(), tc.fails) || err == nil && out.String() != "as it is" {
				t.Errorf("got %q and error %v: %s", &out, err, tc.reason)
			}
		})
	}
	file := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(file, []byte("server: {port: 9443}\ntls: {enabled: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, settings := range map[string]map[string]string{
		"http://127.0.0.1:9991":  {},
		"http://127.0.0.1:9443":  {"PORT": "9443", "SERVER_HOST": "::"},
		"https://127.0.0.1:9443": {"CONFIG_FILE": file},
		"https://127.0.0.1:8443": {"CONFIG_FILE": file, "SERVER_PORT": "8443", "TLS_ENABLED": "yes"},
		"http://[fd00::1]:9991":  {"SERVER_HOST": "fd00::1"},
	} {
		c, err := config.Load(nil, lookupIn(settings), io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if got := localURL(c); got != want {
			t.Errorf("with %v the local gateway has the address %s, want %s", settings, got, want)
		}
	}
	if err := get(t.Context(), nil, lookupIn(nil), nil); err == nil {
		t.Error("without a path there must be an error that names the argument")
	}
}

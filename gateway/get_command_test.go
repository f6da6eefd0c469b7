package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestGet(t *testing.T) {
	t.Parallel()
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = w.Write([]byte("as it is"))
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	t.Cleanup(plain.Close)
	t.Cleanup(secure.Close)
	cases := map[string]struct {
		reason, server, target string
		fails                  bool
	}{
		"URL":       {"a URL selects another gateway", plain.URL, plain.URL + "/health", false},
		"Path":      {"a path selects the local gateway", plain.URL, "/health", false},
		"TLS":       {"the local gateway may have a certificate for its own name", secure.URL, "/health", false},
		"Untrusted": {"the certificate of another gateway is verified", secure.URL, secure.URL + "/health", true},
		"Sick":      {"any status except 200 is an error", plain.URL, "/ready", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			err := get(t.Context(), []string{tc.target}, tc.server, &out)
			if (err != nil) != tc.fails || !tc.fails && out.String() != "as it is" {
				t.Errorf("got %q and error %v: %s", &out, err, tc.reason)
			}
		})
	}
	for text, want := range map[string]string{"true": "https", "yes": "https", "ON": "https", "1": "https", "off": "http", "": "http"} {
		env := map[string]string{"TLS_ENABLED": text, "PORT": "9443"}
		if got := localURL(func(name string) string { return env[name] }); got != want+"://127.0.0.1:9443" {
			t.Errorf("with TLS_ENABLED=%s the local gateway has the address %s", text, got)
		}
	}
	if err := get(t.Context(), nil, "", nil); err == nil {
		t.Error("without a path there must be an error that names the argument")
	}
}

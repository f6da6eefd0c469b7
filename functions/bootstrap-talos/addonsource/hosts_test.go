package addonsource

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// TestHosts reads manifests from a server with TLS.
func TestHosts(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	mux.HandleFunc("/good.yaml", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("good")) })
	mux.HandleFunc("/release", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/good.yaml", http.StatusFound) })
	mux.HandleFunc("/plain", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, plain.URL, http.StatusFound) })
	mux.HandleFunc("/metadata", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://169.254.169.254/latest", http.StatusFound)
	})
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/broken", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	mux.HandleFunc("/private", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, addons.MaxSize+1)) })
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	for name, tc := range map[string]struct {
		why, list, url string
		reason, words  string
	}{
		"Good":         {"the host is listed", "127.0.0.1", server.URL + "/good.yaml", "", ""},
		"Redirect":     {"releases redirect", "127.0.0.1", server.URL + "/release", "", ""},
		"Not listed":   {"another host is listed", "example.com", server.URL + "/good.yaml", addons.ReasonNotAllowed, "manifests are not read from 127.0.0.1"},
		"No list":      {"no host is allowed by default", "", server.URL + "/good.yaml", addons.ReasonNotAllowed, "have the host added to ALLOWED_ADDON_HOSTS"},
		"Invalid list": {"a list that cannot be read allows nothing", "a b", server.URL + "/good.yaml", addons.ReasonNotAllowed, "is no host name"},
		"Without TLS":  {"a redirect without TLS can be forged", "127.0.0.1", server.URL + "/plain", addons.ReasonUnavailable, "redirects to a URL without https"},
		"Metadata":     {"a redirect leads to no other host", "127.0.0.1", server.URL + "/metadata", addons.ReasonNotAllowed, "leads to 169.254.169.254"},
		"Circle":       {"redirects end", "127.0.0.1", server.URL + "/round", addons.ReasonUnavailable, "too often"},
		"Broken":       {"the host is at fault", "127.0.0.1", server.URL + "/broken", addons.ReasonUnavailable, "502 Bad Gateway. The stack checks again"},
		"Private":      {"no credentials are sent", "127.0.0.1", server.URL + "/private", addons.ReasonNotFound, "answers without credentials"},
		"Missing":      {"the URL is wrong", "127.0.0.1", server.URL + "/missing", addons.ReasonNotFound, "404 Not Found"},
		"Large":        {"memory is bounded", "127.0.0.1", server.URL + "/large", addons.ReasonInvalid, "split it into several add-ons"},
		"No server":    {"nothing listens", "127.0.0.1", "https://127.0.0.1:1/x", addons.ReasonUnavailable, "connection refused"},
	} {
		h := New(tc.list)
		if h.Client != nil {
			h.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
		}
		got, err := h.Read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: tc.url})
		problem, _ := reconcile.AsUserError(err)
		if problem.Reason != tc.reason || !strings.Contains(problem.Message, tc.words) || err == nil && got[path.Base(tc.url)] != "good" {
			t.Errorf("%s: %s: got %q, %v", name, tc.why, got, err)
		}
	}
}

package chaos

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// RequestFaults are the faults of requests from functions to the API server, each as a share of the
// requests.
type RequestFaults struct {
	// Conflict rejects a write as if another client had written the object, Throttle answers 429, and
	// Timeout 504. The request does not arrive.
	Conflict, Throttle, Timeout float64
	// Lost lets a request arrive, and breaks the connection instead of answering.
	Lost float64
	// Kill ends the function with kill -9 before or after a write arrives.
	Kill float64
	// Slow delays a request by up to two seconds.
	Slow float64
}

// API is a proxy between the functions and the API server of an engine with its state in a folder.
// Watches, and requests of other clients, pass without faults.
type API struct {
	URL string

	dir  string
	kill func(function string)

	mu     sync.Mutex
	rand   *rand.Rand
	faults RequestFaults
	proxy  *httputil.ReverseProxy
}

// silent discards errors of connections, which killed processes cause.
var silent = log.New(io.Discard, "", 0)

// NewAPI returns a proxy without faults until SetFaults. kill ends a function.
func NewAPI(t testing.TB, dir string, seed uint64, kill func(function string)) *API {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := &API{URL: "https://" + listener.Addr().String(), dir: dir, kill: kill, rand: rand.New(rand.NewPCG(seed, seed))}
	server := &http.Server{Handler: a, ReadHeaderTimeout: 10 * time.Second, ErrorLog: silent, TLSConfig: &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return a.certificate() },
	}}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return a
}

// SetFaults changes the faults of the requests from now on.
func (a *API) SetFaults(t RequestFaults) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = t
}

// certificate returns the API server's own certificate, which its clients trust.
func (a *API) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "pki", "apiserver.crt"), filepath.Join(a.dir, "pki", "apiserver.key"))
	return &pair, err
}

// requestOutcome is the fault of one request.
type requestOutcome struct {
	pause                   time.Duration
	refusal                 *metav1.Status
	lost, killFirst, killed bool
}

// outcomeOf selects the fault of a request at random.
func (a *API) outcomeOf(r *http.Request) requestOutcome {
	var f requestOutcome
	if !slices.Contains(functions, r.UserAgent()) || r.URL.Query().Has("watch") {
		return f
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	hit := func(share float64) bool { return share > 0 && a.rand.Float64() < share }
	writes := r.Method != http.MethodGet
	changes := r.Method == http.MethodPatch || r.Method == http.MethodPut
	if hit(a.faults.Slow) {
		f.pause = time.Duration(a.rand.Float64() * float64(2*time.Second))
	}
	refuse := func(code int32, reason metav1.StatusReason) {
		f.refusal = &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
			Message: "fails as planned: " + string(reason),
		}
	}
	switch {
	case changes && hit(a.faults.Conflict):
		refuse(http.StatusConflict, metav1.StatusReasonConflict)
	case hit(a.faults.Throttle):
		refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case hit(a.faults.Timeout):
		refuse(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	case hit(a.faults.Lost):
		f.lost = true
	case writes && hit(a.faults.Kill):
		f.killed, f.killFirst = true, a.rand.IntN(2) == 0
	}
	return f
}

// ServeHTTP forwards a request, or applies its fault.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := a.outcomeOf(r)
	time.Sleep(f.pause)
	if f.refusal != nil {
		if f.refusal.Code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(f.refusal.Code))
		_ = json.NewEncoder(w).Encode(f.refusal)
		return
	}
	proxy, err := a.forward()
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	if f.killFirst {
		a.kill(r.UserAgent())
		panic(http.ErrAbortHandler)
	}
	if f.lost || f.killed {
		// The forwarded request does not end with the client's connection.
		proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		if f.killed {
			a.kill(r.UserAgent())
		}
		panic(http.ErrAbortHandler)
	}
	proxy.ServeHTTP(w, r)
}

// forward returns a proxy to the API server, which must have started once.
func (a *API) forward() (*httputil.ReverseProxy, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.proxy != nil {
		return a.proxy, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(a.dir, "kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	transport, err := authority(config)
	if err != nil {
		return nil, err
	}
	a.proxy = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: transport, FlushInterval: -1, ErrorLog: silent,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			a.forget()
			panic(http.ErrAbortHandler) // as without the proxy
		},
	}
	return a.proxy, nil
}

// forget makes the proxy find the API server again, which may have another port after a restart.
func (a *API) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxy = nil
}

// authority returns a configuration that trusts the API server's certificate and has no identity. The
// client sends a token.
func authority(config *rest.Config) (*http.Transport, error) {
	pem, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("trust the API server: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 100,
	}, nil
}

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

// Trouble is what befalls requests of the functions to the API server, each as a
// share of them.
type Trouble struct {
	// Conflict refuses a change as if somebody else had written the object, Throttle
	// answers 429, and Timeout 504, all without the request arriving.
	Conflict, Throttle, Timeout float64
	// Lost has a request arrive, and breaks the connection instead of answering.
	Lost float64
	// Kill ends the function with kill -9 before or after a write arrives.
	Kill float64
	// Slow holds a request back for up to two seconds.
	Slow float64
}

// API stands between the functions and the API server of an engine that keeps its
// state in a folder. Watches, and what is asked by others than functions, pass
// without trouble.
type API struct {
	URL string

	dir  string
	kill func(function string)

	mu      sync.Mutex
	rand    *rand.Rand
	trouble Trouble
	proxy   *httputil.ReverseProxy
}

// silent is where errors of connections go: what is killed breaks them.
var silent = log.New(io.Discard, "", 0)

// NewAPI makes a proxy that troubles nobody until SetTrouble. kill ends a function.
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

// SetTrouble changes what happens to requests from now on.
func (a *API) SetTrouble(t Trouble) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.trouble = t
}

// certificate is the API server's own, which its clients trust.
func (a *API) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(a.dir, "pki", "apiserver.crt"), filepath.Join(a.dir, "pki", "apiserver.key"))
	return &pair, err
}

// fate is what becomes of one request.
type fate struct {
	pause                   time.Duration
	refusal                 *metav1.Status
	lost, killFirst, killed bool
}

// fateOf rolls the dice for a request.
func (a *API) fateOf(r *http.Request) fate {
	var f fate
	if !slices.Contains(functions, r.UserAgent()) || r.URL.Query().Has("watch") {
		return f
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	hit := func(share float64) bool { return share > 0 && a.rand.Float64() < share }
	writes := r.Method != http.MethodGet
	changes := r.Method == http.MethodPatch || r.Method == http.MethodPut
	if hit(a.trouble.Slow) {
		f.pause = time.Duration(a.rand.Float64() * float64(2*time.Second))
	}
	refuse := func(code int32, reason metav1.StatusReason) {
		f.refusal = &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Reason: reason,
			Message: "told to fail: " + string(reason),
		}
	}
	switch {
	case changes && hit(a.trouble.Conflict):
		refuse(http.StatusConflict, metav1.StatusReasonConflict)
	case hit(a.trouble.Throttle):
		refuse(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
	case hit(a.trouble.Timeout):
		refuse(http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	case hit(a.trouble.Lost):
		f.lost = true
	case writes && hit(a.trouble.Kill):
		f.killed, f.killFirst = true, a.rand.IntN(2) == 0
	}
	return f
}

// ServeHTTP passes a request on, or lets it suffer.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f := a.fateOf(r)
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
		// The request is not given up with the connection of who has asked.
		proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
		if f.killed {
			a.kill(r.UserAgent())
		}
		panic(http.ErrAbortHandler)
	}
	proxy.ServeHTTP(w, r)
}

// forward is a proxy to the API server, which has to have started once.
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
			panic(http.ErrAbortHandler) // as if nobody stood between
		},
	}
	return a.proxy, nil
}

// forget has the API server looked for again, which may be at another port when it
// is started again.
func (a *API) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.proxy = nil
}

// authority trusts the API server's certificate, and says of nobody who he is: who
// asks brings a token.
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

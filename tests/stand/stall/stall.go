// Package stall has a proxy that makes an HTTP server hang, as a process does that is stopped without ending.
package stall

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
)

// Proxy is before a server. While it is stopped, it accepts requests and answers none, and the answers that have begun do not go on.
type Proxy struct {
	*httptest.Server

	mu     sync.Mutex
	target *url.URL
	gate   chan struct{}
}

// New starts a proxy that ends with t. stalls selects the requests that can hang. The proxy answers 503 until Forward names the server.
func New(t testing.TB, stalls func(*http.Request) bool) *Proxy {
	t.Helper()
	p := &Proxy{gate: make(chan struct{})}
	close(p.gate)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			p.mu.Lock()
			defer p.mu.Unlock()
			r.SetURL(p.target)
		},
		ModifyResponse: func(r *http.Response) error {
			if stalls(r.Request) {
				r.Body = body{r.Body, p, r.Request}
			}
			return nil
		},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.isForwarding() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if stalls(r) {
			p.pass(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.Resume()
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// Forward sets the address of the server.
func (p *Proxy) Forward(t testing.TB, address string) {
	t.Helper()
	target, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) isForwarding() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target != nil
}

// Stop makes the server hang.
func (p *Proxy) Stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

// Resume lets the server answer again, also what came while it hung. It does nothing for a proxy that is not stopped.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// pass waits while the proxy is stopped, at most until the request ends.
func (p *Proxy) pass(r *http.Request) {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

// body is the body of an answer that can hang.
type body struct {
	io.ReadCloser
	proxy   *Proxy
	request *http.Request
}

func (b body) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.proxy.pass(b.request)
	return n, err
}

package app

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// stallingProxy is before a gateway. While it is stalled, it accepts requests for the API and answers none, and the answers that have
// begun do not go on.
type stallingProxy struct {
	*httptest.Server

	mu   sync.Mutex
	gate chan struct{}
}

func newStallingProxy(t *testing.T, gateway string) *stallingProxy {
	t.Helper()
	target, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	p := &stallingProxy{gate: make(chan struct{})}
	close(p.gate)
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if stalls(r.Request) {
				r.Body = stallingBody{r.Body, p, r.Request}
			}
			return nil
		},
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if stalls(r) {
			p.pass(r)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.resume()
		p.CloseClientConnections()
		p.Close()
	})
	return p
}

// stalls reports whether a request needs more of the gateway than its files.
func stalls(r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/ready"
}

// pass waits while the proxy is stalled.
func (p *stallingProxy) pass(r *http.Request) {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
	case <-r.Context().Done():
	}
}

func (p *stallingProxy) stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

func (p *stallingProxy) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

type stallingBody struct {
	io.ReadCloser
	proxy   *stallingProxy
	request *http.Request
}

func (b stallingBody) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.proxy.pass(b.request)
	return n, err
}

// TestPageGatewayHangs has the gateway accept connections without an answer: while the page is open, and before it is opened. The page
// reports it, and reconnects without a reload.
func TestPageGatewayHangs(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := newStallingProxy(t, s.url)
	b := browse(t, p.URL, 1000, 700)
	b.open("#/overview")
	live := `document.querySelector("#connection .state").dataset.state === "live"`
	b.wait("the connection", live)

	p.stall()
	began := time.Now()
	b.wait("the silence", `document.getElementById("notice").textContent.includes("The gateway has fallen silent")`)
	t.Logf("the page has noticed it after %s", time.Since(began).Round(time.Second/10))
	b.wait("an attempt without an answer", `document.getElementById("notice").textContent.includes("accepts the connection, and does not answer")`)
	p.resume()
	b.wait("the connection", live)

	p.stall()
	b.do(`location.reload()`)
	b.wait("what is wrong", `document.querySelector("main")?.textContent.includes("accepts the connection, and does not answer")`)
	b.picture("silent")
	p.resume()
	b.wait("the overview", `document.querySelector("main h1") && !document.querySelector(".loading")`)
	b.wait("the connection", live)
}

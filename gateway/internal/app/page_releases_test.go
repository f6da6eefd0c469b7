package app

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageOfAnotherRelease has a page request a topic that its gateway does not know, as after a rollback of the gateway.
func TestPageOfAnotherRelease(t *testing.T) {
	t.Parallel()
	s := start(t)
	target, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var isOlder atomic.Bool
	isOlder.Store(true)
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		if r.In.URL.Path == "/api/v1/stream" && isOlder.Load() {
			r.Out.URL.RawQuery = url.Values{"topics": {"summary,unheard"}}.Encode()
		}
	}})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	b := browser.New(t, proxy.URL, 1000, 700)
	b.Open("#/overview")
	b.Wait("why there is no connection", `(() => {
		const text = document.body.textContent;
		return text.includes("The gateway has another release than this page. Reload the page.") && text.includes("there is no topic unheard");
	})()`)
	b.Picture("release")
	isOlder.Store(false)
	b.Wait("the connection", `document.querySelector("#connection .state").dataset.state === "live"`)
}

// TestPageStreamRefused has a proxy refuse the stream only. The page shows the detail of the refusal.
func TestPageStreamRefused(t *testing.T) {
	t.Parallel()
	s := start(t, "--stream.maxClientsPerAddress=1")
	holder, err := http.Get(s.url + "/api/v1/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Body.Close() }()
	b := browser.New(t, s.url, 1000, 700)
	b.Open("#/overview")
	b.Wait("the refusal", `document.body.textContent.includes("The gateway refuses the live connection: the stream has as many clients from this address as it may have")`)
}

package app

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
	"github.com/vitistack/stack/tests/stand/stall"
)

// TestPageGatewayHangs has the gateway accept connections without an answer: while the page is open, and before it is opened. The page
// reports it, and reconnects without a reload.
func TestPageGatewayHangs(t *testing.T) {
	t.Parallel()
	s := start(t)
	p := stall.New(t, func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") || r.URL.Path == "/ready" })
	p.Forward(t, s.url)
	b := browser.New(t, p.URL, 1000, 700)
	b.Open("#/overview")
	live := `document.querySelector("#connection .state").dataset.state === "live"`
	b.Wait("the connection", live)

	p.Stop()
	began := time.Now()
	b.Wait("the notice", `document.getElementById("notice").textContent.includes("The gateway does not respond")`)
	t.Logf("the page has noticed it after %s", time.Since(began).Round(time.Second/10))
	b.Wait("an attempt without an answer", `document.getElementById("notice").textContent.includes("accepts the connection, and does not answer")`)
	p.Resume()
	b.Wait("the connection", live)

	p.Stop()
	b.Do(`location.reload()`)
	b.Wait("what is wrong", `document.querySelector("main")?.textContent.includes("accepts the connection, and does not answer")`)
	b.Picture("silent")
	p.Resume()
	b.Wait("the overview", `document.querySelector("main h1") && !document.querySelector(".loading")`)
	b.Wait("the connection", live)
}

// TestPageRequestHangs has requests of views that are never answered, as those to a gateway whose node has lost its power. The views say so, and
// ask again.
func TestPageRequestHangs(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	p := stall.New(t, func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/timeline") || strings.HasSuffix(r.URL.Path, "/api/v1/events")
	})
	p.Forward(t, s.url)
	p.Stop()
	b := browser.New(t, p.URL, 1000, 700)
	b.Before(`{ const exact = AbortSignal.timeout.bind(AbortSignal); AbortSignal.timeout = (wait) => exact(wait === 60_000 ? 1000 : wait); }`)
	b.Open("#/clusters/team-a/shop")
	b.Wait("what is wrong", `document.getElementById("timeline-title")?.parentElement.textContent.includes("The gateway cannot be reached")`)
	b.See("#/events")
	b.Wait("what is wrong", `document.querySelector("main").textContent.includes("The history cannot be read at present")`)
	p.Resume()
	b.See("#/clusters/team-a/shop")
	b.Wait("the timeline", `document.querySelector(".waterfall")`)
}

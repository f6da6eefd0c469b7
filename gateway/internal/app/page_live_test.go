package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageLive follows a change into the page, and the page over a restart of the
// gateway.
func TestPageLive(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	api := fakeapi.Start(t)
	api.Serve(plurals...)
	busy(t, api)
	folder := t.TempDir()
	first := startAt(t, api, address, folder)
	b := browser.New(t, "http://"+address, 1200, 800)
	b.Open("#/machines?q=fresh")
	b.Wait("the empty table", `document.querySelector("main").textContent.includes("No machine matches")`)
	b.Do(`window.mark = "the same page"`)

	m := aMachine("team-a", "fresh-one", "Creating")
	api.Put(t, "machines", m)
	b.Wait("the machine", `document.querySelector("tbody")?.textContent.includes("Creating")`)
	m = aMachine("team-a", "fresh-one", "Running")
	m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "MachineRunning", LastTransitionTime: metav1.Now()}}
	api.Put(t, "machines", m)
	b.Wait("its new state", `document.querySelector("tbody")?.textContent.includes("Running")`)

	b.Do(`document.getElementById("pause").click()`)
	b.Wait("the notice", `document.getElementById("notice").textContent.includes("Updates paused")`)
	api.Put(t, "machines", aMachine("team-a", "fresh-two", "Failed"))
	b.Wait("the count of what was missed", `/[1-9]\d* change/.test(document.getElementById("notice").textContent)`)
	if strings.Contains(b.Text("tbody"), "fresh-two") {
		t.Error("a page that is paused has changed")
	}
	b.Do(`document.getElementById("pause").click()`)
	b.Wait("what was missed", `document.querySelector("tbody").textContent.includes("fresh-two")`)

	if err := first(); err != nil {
		t.Fatal(err)
	}
	b.Wait("the age of what is shown", `/Data is .* old/.test(document.getElementById("notice").textContent)`)
	if !strings.Contains(b.Text("tbody"), "fresh-two") {
		t.Error("the page has forgotten what it knew")
	}
	b.Picture("reconnecting")
	b.Accessible("reconnecting")
	api.Delete("machines", "team-a", "fresh-two")
	startAt(t, api, address, folder)
	b.Wait("the connection", `document.querySelector("#connection .state").dataset.state === "live"`)
	b.Wait("what has changed since", `!document.querySelector("tbody").textContent.includes("fresh-two")`)
	if browser.Eval[string](b, `window.mark`) != "the same page" {
		t.Error("the page was loaded again")
	}
	b.Clean()
}

// startAt runs a gateway at an address, and returns what stops it.
func startAt(t *testing.T, api *fakeapi.Server, address, folder string) func() error {
	t.Helper()
	c, err := config.Load([]string{"--rateLimit.enabled=false", "--state.dir=" + folder}, func(string) (string, bool) { return "", false }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	eventually(t, "the port", func() bool {
		listener, err = net.Listen("tcp", address)
		return err == nil
	})
	a, err := newApp("test", c, api.Config(), events.NewLogger(io.Discard, "error"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.serve(ctx, listener, nil) }()
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-done
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the gateway to be ready", func() bool {
		res, err := http.Get("http://" + address + "/ready")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
	return stop
}

// cutter passes connections on to a server, and cuts them on request.
type cutter struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
	// target is where connections go to, or empty while there is no way.
	target string
}

func cutProxy(t *testing.T, target string) *cutter {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{Listener: listener, target: target}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to := c.join(from)
			if to == nil {
				_ = from.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		c.cut()
		running.Wait()
	})
	return c
}

// join connects from with the target, or returns nil where there is no way.
func (c *cutter) join(from net.Conn) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	to, err := net.Dial("tcp", c.target)
	if err != nil {
		return nil
	}
	c.open = append(c.open, from, to)
	return to
}

// lead ends all connections, and has new ones go to a target.
func (c *cutter) lead(target string) {
	c.mu.Lock()
	c.target = target
	c.mu.Unlock()
	c.cut()
}

// cut ends all connections.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		_ = conn.Close()
	}
	c.open = nil
}

// TestPageResume cuts the stream of a page only, which then goes on where it was.
func TestPageResume(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	proxy := cutProxy(t, strings.TrimPrefix(s.url, "http://"))
	b := browser.New(t, "http://"+proxy.Addr().String(), 1200, 800)
	b.Open("#/machines?q=fresh")
	b.Wait("the connection", `document.querySelector("#connection .state").dataset.state === "live"`)
	before := s.app.hub.Stats()
	proxy.cut()
	s.api.Put(t, "machines", aMachine("team-a", "fresh-one", "Creating"))
	b.Wait("what has changed in between", `document.querySelector("tbody")?.textContent.includes("fresh-one")`)
	after := s.app.hub.Stats()
	if after.Resumed == before.Resumed || after.Snapshots != before.Snapshots {
		t.Errorf("the page did not resume: %+v, before %+v", after, before)
	}
	b.Clean()
}

// TestPageKeyboard finds a machine and opens it, switches the theme and goes on,
// with the keyboard alone.
func TestPageKeyboard(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1200, 800)
	b.Open("")
	b.Press(kb.Tab)
	if got := b.Text(":focus"); got != "Skip to the content" {
		t.Errorf("the first stop of Tab is %q", got)
	}
	b.Press(kb.Enter)
	if got := browser.Eval[string](b, `document.activeElement.id`); got != "main" {
		t.Errorf("the skip link leads to %q", got)
	}
	b.Press("g")
	b.Press("m")
	b.Wait("the machines", `document.querySelector("main h1").textContent.startsWith("Machines")`)
	if got := browser.Eval[string](b, `document.activeElement.tagName`); got != "H1" {
		t.Errorf("after a change of view, the focus is on %s", got)
	}
	b.Press("f")
	b.Wait("the search field", `document.activeElement.id === "search"`)
	b.Press(kb.Backspace)
	b.Press("shop")
	b.Wait("the search", `document.querySelector(".found").textContent.includes("of")`)
	if got := browser.Eval[string](b, `location.hash`); got != "#/machines?q=shop" {
		t.Errorf("the search is not in the URL: %s", got)
	}
	b.Press(kb.Escape)
	b.Press("j")
	b.Press(kb.ArrowDown)
	b.Press("j")
	b.Wait("the third row", `document.activeElement.closest("tr")?.dataset.row === "2"`)
	b.Press(kb.End)
	b.Wait("the last row", `Number(document.activeElement.closest("tr")?.getAttribute("aria-rowindex")) === Number(document.querySelector("table").getAttribute("aria-rowcount"))`)
	want := b.Text(":focus")
	b.Press(kb.Enter)
	b.Wait("the machine", `document.querySelector("main h1").textContent.startsWith(`+browser.Quote(want)+`)`)
	b.Press("?")
	b.Wait("the list of keys", `document.getElementById("keys").open`)
	b.Accessible("keys")
	b.Press(kb.Escape)
	b.Wait("the end of the list of keys", `!document.getElementById("keys").open`)
	b.Do(`document.getElementById("theme").focus()`)
	b.Press("d")
	b.Wait("the dark theme", `getComputedStyle(document.body).backgroundColor === "rgb(13, 19, 32)"`)
	b.Open("#/overview")
	if got := browser.Eval[string](b, `document.documentElement.dataset.theme`); got != "dark" {
		t.Errorf("the theme is forgotten: %q", got)
	}
	for range 60 {
		b.Press(kb.Tab)
		if browser.Eval[bool](b, `document.activeElement !== document.body && !document.activeElement.matches(".skip") && (() => { const r = document.activeElement.getBoundingClientRect(); return r.width === 0 || r.height === 0; })()`) {
			t.Fatalf("the focused element is not visible: %s", browser.Eval[string](b, `document.activeElement.outerHTML`))
		}
	}
	b.Clean()
}

// TestPageLogin asks for a key, refuses a wrong one, and keeps a good one where
// scripts cannot read it, until it is taken away.
func TestPageLogin(t *testing.T) {
	t.Parallel()
	const key = "a-key-that-nobody-guesses"
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "reader sha256:%x read", sha256.Sum256([]byte(key))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) }, "--auth.enabled=true", "--auth.keysFile="+keys, "--stream.heartbeat=1s")
	s.waitReady()
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/machines")
	b.Wait("the login", `document.querySelector("main h1").textContent === "Log in"`)
	b.Accessible("login")
	b.Picture("login")
	enter := func(key string) {
		b.Do(`document.getElementById("key").focus()`)
		b.Press(key)
		b.Press(kb.Enter)
	}
	enter("wrong")
	b.Wait("the refusal", `document.querySelector("[role=alert]")`)
	enter(key)
	b.Wait("the machines", `document.querySelector("tbody")`)
	if got := browser.Eval[string](b, `document.cookie + localStorage.getItem("key")`); strings.Contains(got, "nobody") {
		t.Errorf("a script can read the key: %s", got)
	}
	b.Do(`{ const real = fetch; window.fetch = (path, o) => (o?.method === "DELETE" ? Promise.reject(new TypeError("no network")) : real(path, o)); window.connectAgain = () => { window.fetch = real; }; }`)
	b.Do(`[...document.querySelectorAll("#tools button")].find((x) => x.textContent === "Log out").click()`)
	b.Wait("why the session goes on", `document.querySelector("#notice [role=alert]")?.textContent === "You are still logged in: the gateway cannot be reached. Log out again later."`)
	b.Accessible("still logged in")
	b.Do(`window.connectAgain()`)
	b.Do(`[...document.querySelectorAll("#tools button")].find((x) => x.textContent === "Log out").click()`)
	b.Wait("the login", `document.querySelector("main h1")?.textContent === "Log in"`)
	b.Wait("the end of the notice", `!document.querySelector("#notice [role=alert]")`)
	enter(key)
	b.Wait("the machines", `document.querySelector("tbody")`)
	if err := os.WriteFile(keys, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b.Wait("the end of the key", `document.querySelector("[role=alert]")?.textContent === "The session has ended, or the key is not valid any more."`)
	b.Clean()
}

// TestPageSaysThatItIsOpen has the page of a gateway without keys say so, and no other.
func TestPageSaysThatItIsOpen(t *testing.T) {
	t.Parallel()
	const says = `document.getElementById("notice").textContent.includes("Anyone who can reach this address can read this page")`
	open := start(t)
	b := browser.New(t, open.url, 1000, 700)
	b.Open("#/overview")
	b.Wait("the notice", says)
	b.Accessible("open")
	b.Clean()
	whole, wholeLine := keyLine(t, "whole", "read")
	limited, limitedLine := limitedKey(t, "limited", "read", "team-b")
	closed := start(t, "--auth.enabled=true", "--auth.keys="+wholeLine+","+limitedLine)
	b = browser.New(t, closed.url, 1000, 700)
	b.Open("#/overview")
	enter := func(key string) {
		b.Wait("the login", `document.getElementById("key")`)
		b.Do(`document.getElementById("key").focus()`)
		b.Press(key)
		b.Press(kb.Enter)
	}
	enter(limited)
	b.Wait("the refusal", `document.querySelector("[role=alert]")?.textContent.includes("is limited to the namespaces team-b")`)
	enter(whole)
	b.Wait("the overview", `document.querySelector("main .empty")`)
	if browser.Eval[bool](b, says) {
		t.Error("a page that asks for a key says that anyone can read it")
	}
}

// TestPageStates looks at a page without anything, and at one whose gateway is
// still starting.
func TestPageStates(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { api.FailResource("machines", http.StatusServiceUnavailable) })
	b := browser.New(t, s.url, 1000, 700)
	b.Open("#/overview")
	b.Wait("what it waits for", `document.querySelector("main").textContent.includes("reads Machine from the Kubernetes API")`)
	b.Accessible("starting")
	b.Picture("starting")
	s.api.FailResource("machines", 0)
	b.Wait("the empty overview", `document.querySelector("main").textContent.includes("Nothing has been declared yet")`)
	for _, view := range []string{"overview", "pipeline", "clusters", "machines", "networks", "addresses", "hosts", "events"} {
		b.See("#/" + view)
		b.Wait(view, `document.querySelector("main .empty")`)
		b.Accessible("empty " + view)
	}
	b.Clean()
}

// TestPageManyMachines opens the page on 10,000 machines. The page keeps few of them
// in the document, whatever is scrolled.
func TestPageManyMachines(t *testing.T) {
	t.Parallel()
	const many = 10_000
	s := startCold(t, func(api *fakeapi.Server) {
		for i := range many {
			api.Put(t, "machines", aMachine(fmt.Sprintf("team-%02d", i%40), fmt.Sprintf("machine-%05d", i), "Running"))
		}
	})
	s.waitReady()
	b := browser.New(t, s.url, 1400, 900)
	begin := time.Now()
	b.Open("#/machines")
	b.Wait("the rows", `document.querySelectorAll("tbody tr").length > 10`)
	t.Logf("rows after %s", time.Since(begin).Round(time.Millisecond))
	if got := browser.Eval[int](b, `Number(document.querySelector("table").getAttribute("aria-rowcount"))`); got != many+1 {
		t.Errorf("the table says that it has %d rows", got)
	}
	most := browser.Eval[int](b, `(async () => {
		const grid = document.querySelector(".grid");
		let most = 0;
		for (const part of [0.1, 0.5, 0.9, 1]) {
			grid.scrollTop = part * grid.scrollHeight;
			await new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 50));
			most = Math.max(most, document.querySelectorAll("tbody tr").length);
		}
		return most;
	})()`)
	if most > 120 {
		t.Errorf("%d rows are in the document at once", most)
	}
	b.Wait("the last machine", `document.querySelector("tbody").textContent.includes("machine-09999")`)
	b.See("#/machines?q=machine-04242")
	b.Wait("the one machine", `document.querySelector(".found").textContent.startsWith("1 of 10,000")`)
	b.Clean()
}

// Package browser looks at the status page in a Chromium of its own, from the Debian package chromium.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/memory"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Tab is a tab with the page of a gateway.
type Tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu sync.Mutex
	// complaints are what the browser found wrong: errors of scripts and of the
	// policy, and requests that go anywhere else.
	complaints []string
}

// New opens a Chromium with a window of a size in pixels, for the gateway at the URL base. It ends with t.
func New(t *testing.T, base string, width, height int64) *Tab {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatalf("%v: install the Debian package chromium, or run make prepare", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()), chromedp.Env("TMPDIR="+t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.WSURLReadTimeout(time.Minute),
	)
	// The test's context ends before its clean-up, which is to close the browser in
	// peace, so that nothing stays.
	allocator, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	ctx, cancelTab := chromedp.NewContext(allocator)
	b := &Tab{t: t, ctx: ctx, base: base}
	t.Cleanup(func() {
		defer cancel()
		defer cancelTab()
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the browser: %v", err)
		}
	})
	b.must(chromedp.Listen(ctx, b.hear))
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	b.must(err)
	_, err = chromedp.Call(ctx, log.Enable, cdp.Empty{})
	b.must(err)
	b.Size(width, height)
	return b
}

func (b *Tab) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *Tab) hear(event any) {
	complaint := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		complaint = e.ExceptionDetails.Text
		if e.ExceptionDetails.Exception != nil {
			complaint += " " + e.ExceptionDetails.Exception.Description
		}
	case *log.EventEntryAdded:
		// The gateway's absence is for the page to cope with.
		if e.Entry.Level == log.EntryLevelError && e.Entry.Source != log.EntrySourceNetwork {
			complaint = e.Entry.Text
		}
	case *network.EventRequestWillBeSent:
		if u := e.Request.URL; !strings.HasPrefix(u, b.base) && !strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") && !strings.HasPrefix(u, "about:") {
			complaint = "request to " + u
		}
	}
	if complaint != "" {
		b.mu.Lock()
		b.complaints = append(b.complaints, complaint)
		b.mu.Unlock()
	}
}

// Before runs a script in each document that is opened from now on, before the scripts of the document.
func (b *Tab) Before(script string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, page.Enable, page.EnableParams{})
	b.must(err)
	_, err = chromedp.Call(b.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	b.must(err)
}

// Open goes to a view, and waits until something is drawn.
func (b *Tab) Open(hash string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.Navigate(b.base+"/"+hash)))
	b.Wait("the page", `document.querySelector("main h1") && !document.querySelector(".loading")`)
}

// See goes to another view of the open page.
func (b *Tab) See(hash string) {
	b.t.Helper()
	b.Do(`location.hash = ` + Quote(hash))
	b.AwaitDrawing()
}

// AwaitDrawing waits until the page has drawn the latest data that it requested.
func (b *Tab) AwaitDrawing() {
	b.t.Helper()
	Eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// Eval runs an expression, which may be a promise, and returns what it yields.
func Eval[T any](b *Tab, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	b.must(err)
	return result
}

// Do runs a statement.
func (b *Tab) Do(expression string) {
	b.t.Helper()
	Eval[bool](b, expression+"; true")
}

// Follow evaluates an expression that leads to another document, and waits until that is loaded.
func (b *Tab) Follow(expression string) {
	b.t.Helper()
	loaded := func(page.EventLoadEventFired) bool { return true }
	_, err := chromedp.Run(b.ctx, chromedp.WaitEvent(page.LoadEventFired, loaded, chromedp.Evaluate[bool](expression+"; true")))
	b.must(err)
}

// Text returns the visible text of the first element of a selector, or nothing.
func (b *Tab) Text(selector string) string {
	b.t.Helper()
	return Eval[string](b, `document.querySelector(`+Quote(selector)+`)?.innerText ?? ""`)
}

// Press types keys, such as kb.ArrowDown.
func (b *Tab) Press(keys string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
	b.AwaitDrawing()
}

// Wait waits for an expression to be true.
func (b *Tab) Wait(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !Eval[bool](b, `Boolean(`+expression+`)`) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited too long for %s; the page says:\n%s", what, b.Text("body"))
		}
		b.AwaitDrawing()
	}
}

// Quote returns a text as a string of JavaScript.
func Quote(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted)
}

// Media sets what the system prefers, such as a dark theme.
func (b *Tab) Media(name, value string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
	b.must(err)
	b.AwaitDrawing()
}

// Paper shows the page as it would be printed on A4, until the returned function is called.
func (b *Tab) Paper() (screen func()) {
	b.t.Helper()
	show := func(media, event string) {
		_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media})
		b.must(err)
		b.Do(`dispatchEvent(new Event("` + event + `"))`)
		b.AwaitDrawing()
	}
	b.Size(794, 1123)
	show("print", "beforeprint")
	return func() {
		b.t.Helper()
		show("", "afterprint")
	}
}

// Size changes the window.
func (b *Tab) Size(width, height int64) {
	b.t.Helper()
	b.Zoom(width, height, 1)
}

// Zoom changes the window, and enlarges what is in it, as browsers do.
func (b *Tab) Zoom(width, height, factor int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width / factor, Height: height / factor, DeviceScaleFactor: float64(factor),
	})
	b.must(err)
	b.AwaitDrawing()
}

// Picture keeps what the window shows.
func (b *Tab) Picture(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.must(err)
	b.must(os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600))
}

// Clean fails the test where the browser has complained.
func (b *Tab) Clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser complains: %s", c)
	}
}

// Footprint is what a page costs its browser.
type Footprint struct {
	Nodes, Listeners int64
	// Heap is in bytes.
	Heap float64
}

// Footprint returns what the page costs after a garbage collection.
func (b *Tab) Footprint() Footprint {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, heapprofiler.CollectGarbage, cdp.Empty{})
	b.must(err)
	counters, err := chromedp.Call(b.ctx, memory.GetDOMCounters, cdp.Empty{})
	b.must(err)
	usage, err := chromedp.Call(b.ctx, runtime.GetHeapUsage, cdp.Empty{})
	b.must(err)
	return Footprint{Nodes: counters.Nodes, Listeners: counters.JsEventListeners, Heap: usage.UsedSize}
}

// axe is the accessibility checker.
var axe = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	script, err := os.ReadFile(filepath.Join(cache, "vitistack/axe/node_modules/axe-core/axe.min.js"))
	if err != nil {
		return "", fmt.Errorf("%w: run make prepare", err)
	}
	return string(script), nil
})

// Accessible fails the test for each violation of WCAG 2.1 AA in what is shown.
func (b *Tab) Accessible(what string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	if !Eval[bool](b, `Boolean(window.axe)`) {
		b.Do(script)
	}
	violations := Eval[[]string](b, `document.getAnimations().forEach((a) => { if (a.effect.getComputedTiming().iterations !== Infinity) a.finish(); });
		axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], resultTypes: ["violations"] })
		.then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`)
	for _, v := range violations {
		b.t.Errorf("%s: %s", what, v)
	}
}

package app

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
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a Chromium of its own, that looks at the page.
type browser struct {
	t    *testing.T
	ctx  context.Context
	base string

	mu sync.Mutex
	// complaints are what the browser found wrong: errors of scripts and of the
	// policy, and requests that go anywhere else.
	complaints []string
}

// browse opens a Chromium with a window of this size, for the gateway at base.
func browse(t *testing.T, base string, width, height int64) *browser {
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
	b := &browser{t: t, ctx: ctx, base: base}
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
	b.size(width, height)
	return b
}

func (b *browser) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) hear(event any) {
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

// open goes to a view, and waits until something is drawn.
func (b *browser) open(hash string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.Navigate(b.base+"/"+hash)))
	b.wait("the page", `document.querySelector("main h1") && !document.querySelector(".loading")`)
}

// see goes to another view of the open page.
func (b *browser) see(hash string) {
	b.t.Helper()
	b.do(`location.hash = ` + quote(hash))
	b.awaitDrawing()
}

// awaitDrawing waits until the page has drawn the latest data that it requested.
func (b *browser) awaitDrawing() {
	b.t.Helper()
	eval[bool](b, `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`)
}

// eval runs an expression, which may be a promise, and returns what it yields.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	b.must(err)
	return result
}

func (b *browser) do(expression string) {
	b.t.Helper()
	eval[bool](b, expression+"; true")
}

func (b *browser) text(selector string) string {
	b.t.Helper()
	return eval[string](b, `document.querySelector(`+quote(selector)+`)?.innerText ?? ""`)
}

// press types keys, such as kb.ArrowDown.
func (b *browser) press(keys string) {
	b.t.Helper()
	b.must(chromedp.Do(b.ctx, chromedp.KeyEvent(keys)))
	b.awaitDrawing()
}

// wait waits for an expression to be true.
func (b *browser) wait(what, expression string) {
	b.t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !eval[bool](b, `Boolean(`+expression+`)`) {
		if time.Now().After(deadline) {
			b.t.Fatalf("waited too long for %s; the page says:\n%s", what, b.text("body"))
		}
		b.awaitDrawing()
	}
}

func quote(text string) string {
	quoted, _ := json.Marshal(text)
	return string(quoted)
}

// media sets what the system prefers, such as a dark theme.
func (b *browser) media(name, value string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: name, Value: value}}})
	b.must(err)
	b.awaitDrawing()
}

// size changes the window.
func (b *browser) size(width, height int64) {
	b.t.Helper()
	b.zoom(width, height, 1)
}

// zoom changes the window, and enlarges what is in it, as browsers do.
func (b *browser) zoom(width, height, factor int64) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width / factor, Height: height / factor, DeviceScaleFactor: float64(factor),
	})
	b.must(err)
	b.awaitDrawing()
}

// picture keeps what the window shows.
func (b *browser) picture(name string) {
	b.t.Helper()
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	b.must(err)
	b.must(os.WriteFile(filepath.Join(b.t.ArtifactDir(), name+".png"), png, 0o600))
}

// clean fails the test where the browser has complained.
func (b *browser) clean() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.complaints {
		b.t.Errorf("the browser complains: %s", c)
	}
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

// accessible fails the test for each violation of WCAG 2.1 AA in what is shown.
func (b *browser) accessible(what string) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatal(err)
	}
	if !eval[bool](b, `Boolean(window.axe)`) {
		b.do(script)
	}
	violations := eval[[]string](b, `document.getAnimations().forEach((a) => { if (a.effect.getComputedTiming().iterations !== Infinity) a.finish(); });
		axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"], resultTypes: ["violations"] })
		.then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary)))`)
	for _, v := range violations {
		b.t.Errorf("%s: %s", what, v)
	}
}

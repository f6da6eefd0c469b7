// Screenshots takes pictures of a running status page, such as those of the README,
// with Chromium.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shot is one picture.
type shot struct {
	name, hash, scheme string
	height             int64
}

// shots are those of the README.
var shots = []shot{
	{"overview", "#/overview", "light", 860},
	{"cluster", "#/clusters/commerce/search", "dark", 1000},
}

func main() {
	url := flag.String("url", "http://127.0.0.1:9991", "`address` of the gateway")
	folder := flag.String("to", "gateway/internal/page/docs", "`folder` to write to")
	width := flag.Int64("width", 1360, "width of the window in `pixels`")
	flag.Func("view", "`name=hash`: take this view instead, for example hosts=#/hosts (repeatable)", addView())
	flag.Parse()
	if err := take(*url, *folder, *width); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// addView reads a view of the command line. The first one takes the place of those
// of the README.
func addView() func(string) error {
	first := true
	return func(text string) error {
		name, hash, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q has no =: write name=#/view", text)
		}
		if first {
			shots, first = nil, false
		}
		shots = append(shots, shot{name + "-light", hash, "light", 860}, shot{name + "-dark", hash, "dark", 860})
		return nil
	}
}

func take(url, folder string, width int64) (err error) {
	scratch, err := os.MkdirTemp("", "screenshots-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.Env("TMPDIR="+scratch))
	limited, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	allocator, cancel := chromedp.NewExecAllocator(limited, options...)
	defer cancel()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	defer func() { err = errors.Join(err, chromedp.Cancel(ctx)) }()
	for _, s := range shots {
		picture, err := s.take(ctx, url, width)
		if err != nil {
			return fmt.Errorf("take a picture of %s: %w", s.hash, err)
		}
		if err := os.WriteFile(filepath.Join(folder, s.name+".png"), picture, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// drawn holds once the view is complete: it is live, nothing loads, and nothing moves.
const drawn = `document.querySelector("#connection [data-state=live]") && document.querySelector("main h1") && !document.querySelector(".loading") && !document.querySelector("main").innerText.includes("Loading …") && document.getAnimations().every((a) => a.playState !== "running")`

func (s *shot) take(ctx context.Context, url string, width int64) ([]byte, error) {
	size := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: s.height, DeviceScaleFactor: 1}
	if _, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, size); err != nil {
		return nil, err
	}
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: s.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
	}}
	if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, media); err != nil {
		return nil, err
	}
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(url+"/"+s.hash)); err != nil {
		return nil, err
	}
	if _, err := chromedp.Run(ctx, chromedp.Poll[bool](drawn)); err != nil {
		return nil, err
	}
	return chromedp.Run(ctx, chromedp.CaptureScreenshot())
}

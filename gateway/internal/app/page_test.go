package app

import (
	"testing"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// pages are all views of the busy data centre, and a text that each has to show.
var pages = []struct{ name, hash, shows string }{
	{"overview", "#/overview", "Needs attention"},
	{"pipeline", "#/pipeline", "Dead letters"},
	{"clusters", "#/clusters", "analytics"},
	{"cluster", "#/clusters/team-a/shop", "Every node is ready"},
	{"cluster-large", "#/clusters/team-c/analytics", "37 ready"},
	{"machines", "#/machines", "analytics-cp-0"},
	{"machine", "#/machines/team-a/shop-cp-0", "hypervisor-01"},
	{"networks", "#/networks", "10.20.1.0/24"},
	{"network", "#/networks/team-a/team-a-net", "excluded"},
	{"addresses", "#/addresses", "10.20.1.20"},
	{"address", "#/addresses/team-a/printer", "reserved"},
	{"hosts", "#/hosts", "Proxmox VE"},
	{"provider", "#/providers/kubevirt", "v1.6.0"},
	{"dead-letters", "#/dead-letters", "No dead letters"},
	{"events", "#/events", "Pause"},
	{"missing", "#/clusters/team-a/nothing", "There is no cluster"},
	{"unknown", "#/nowhere", "There is no such page"},
}

// windows are what the page is looked at with: zoomed is a laptop at 200 %.
var windows = []struct {
	name                string
	width, height, zoom int64
}{{"phone", 320, 800, 1}, {"tablet", 1024, 768, 1}, {"laptop", 1440, 900, 1}, {"zoomed", 1280, 900, 2}, {"wall", 3840, 2160, 1}}

// cutOff lists what cannot be seen whole, also by scrolling down or in a part of the
// page that is made for it.
const cutOff = `(() => {
	const scrolls = (e) => e && e !== document.documentElement && (/auto|scroll/.test(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
	const found = document.documentElement.scrollWidth > innerWidth ? ["the page scrolls sideways"] : [];
	for (const e of document.querySelectorAll("body *")) {
		if (e.closest(".quiet, .skip, dialog, svg svg *, input")) continue; // a field scrolls with its caret
		const right = e.getBoundingClientRect().right;
		const hides = /hidden|clip/.test(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 1 && !e.closest("[title]");
		if (hides || (right > innerWidth + 1 && !scrolls(e))) found.push(e.outerHTML.slice(0, 160));
	}
	return found.slice(0, 10).join("\n");
})()`

// small lists what is smaller than a pointer needs: 24 pixels. Links in the middle of a name's width may be narrower.
const small = `[...document.querySelectorAll("main a[href], main button, main select, main summary, main input, .top a, .top button, .top select")]
	.filter((e) => e.checkVisibility() && !e.closest("svg, .skip") && e.getBoundingClientRect().height > 0)
	.filter((e) => e.getBoundingClientRect().height < 24)
	.map((e) => e.outerHTML.slice(0, 160) + " is " + e.getBoundingClientRect().height).slice(0, 10).join("\n")`

// TestPageViews looks at every view in both themes and in windows of all sizes, with a
// checker of accessibility.
func TestPageViews(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1440, 900)
	b.Open("#/overview")
	for _, v := range pages {
		b.See(v.hash)
		b.Wait(v.name, `document.querySelector("main").textContent.includes(`+browser.Quote(v.shows)+`)`)
		for _, scheme := range []string{"light", "dark"} {
			b.Media("prefers-color-scheme", scheme)
			b.Accessible(v.name + " " + scheme)
			b.Picture(v.name + "-" + scheme)
		}
		for _, w := range windows {
			b.Zoom(w.width, w.height, w.zoom)
			if cut := browser.Eval[string](b, cutOff); cut != "" {
				t.Errorf("%s cuts something off %s:\n%s", v.name, w.name, cut)
			}
			if targets := browser.Eval[string](b, small); targets != "" {
				t.Errorf("%s has targets that are too small %s:\n%s", v.name, w.name, targets)
			}
		}
		b.Size(320, 800)
		b.Picture(v.name + "-narrow")
		b.Size(1440, 900)
	}
	b.Clean()
}

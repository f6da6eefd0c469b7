package app

import (
	"testing"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// offPaper lists what is wider than the paper, where nothing can be scrolled.
const offPaper = `[...document.querySelectorAll("main *")]
	.filter((e) => e.checkVisibility() && !e.closest(".quiet") && e.getBoundingClientRect().width > 0 && e.getBoundingClientRect().right > innerWidth + 1)
	.map((e) => e.outerHTML.slice(0, 120)).slice(0, 4)`

// TestPagePrint prints every view: nothing is cut off, and what only a screen needs is left out.
func TestPagePrint(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1440, 900)
	b.Open("#/overview")
	for _, v := range pages {
		b.See(v.hash)
		b.Wait(v.name, `document.querySelector("main").textContent.includes(`+browser.Quote(v.shows)+`)`)
		screen := b.Paper()
		for _, e := range browser.Eval[[]string](b, offPaper) {
			t.Errorf("%s is wider than the paper: %s", v.name, e)
		}
		for _, e := range browser.Eval[[]string](b, `[...document.querySelectorAll(".grid thead th")].filter((e) => !e.innerText.trim()).map((e) => e.outerHTML.slice(0, 160))`) {
			t.Errorf("%s prints a column without its name: %s", v.name, e)
		}
		visible := browser.Eval[[]string](b, `[...document.querySelectorAll(".top, button, .filters, .copy")].filter((e) => e.checkVisibility() && !e.closest("thead")).map((e) => e.outerHTML.slice(0, 160))`)
		for _, e := range visible {
			t.Errorf("%s prints %s", v.name, e)
		}
		if !browser.Eval[bool](b, `document.querySelector("main h1").checkVisibility()`) {
			t.Errorf("%s is printed without its title", v.name)
		}
		b.Picture(v.name + "-paper")
		screen()
		b.Size(1440, 900)
	}
	b.Clean()
}

// TestPageUsage compares what the page adds up by cluster and by namespace with the machines of the API.
func TestPageUsage(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1440, 900)
	b.Open("#/hosts?sums=all")
	const rows = `[...document.querySelectorAll("table.sums tbody tr")].filter((row) => !row.closest("[aria-labelledby=sizes-title]"))` // without the sizes
	b.Wait("the sums", rows+`.length > 12`)
	differences := browser.Eval[string](b, `(async () => {
		const { bytes } = await import("/page/format.js");
		const machines = [];
		for (let next = "/api/v1/machines?limit=1000"; next; ) {
			const response = await fetch(next);
			machines.push(...(await response.json()).machines);
			next = response.headers.get("Link")?.match(/<([^>]+)>; rel="next"/)?.[1];
		}
		const sum = (all, of) => all.reduce((n, m) => n + (m[of] ?? 0), 0);
		const expected = (all) => {
			const ready = all.filter((m) => m.ready).length;
			const number = ready === all.length ? String(all.length) : ready + " of " + all.length + " ready";
			return [number, String(sum(all, "cpus")), bytes(sum(all, "memoryBytes")), bytes(sum(all, "diskBytes"))].join(" | ");
		};
		return `+rows+`.map((row) => {
			const key = row.querySelector("th").textContent;
			const [namespace, cluster] = key.split("/");
			const want = expected(machines.filter((m) => m.namespace === namespace && (!cluster || m.cluster === cluster)));
			const got = [...row.querySelectorAll("td")].map((d) => d.textContent).join(" | ");
			return got === want ? "" : key + ": got " + got + ", want " + want;
		}).filter(Boolean).join("\n");
	})()`)
	if differences != "" {
		t.Error(differences)
	}
	b.Clean()
}

package app

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// moving are the elements that an animation or a transition may move.
const moving = `[...document.querySelectorAll("*")].filter((e) => {
	const s = getComputedStyle(e);
	return s.animationName !== "none" || s.transitionDuration.split(",").some((d) => parseFloat(d) > 0);
})`

// TestPageStillness asks for less motion: changes show, and nothing moves.
func TestPageStillness(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/machines?q=newcomer")
	for i, preference := range []string{"no-preference", "reduce"} {
		b.Media("prefers-reduced-motion", preference)
		name := fmt.Sprintf("newcomer-%d", i)
		b.See("#/machines?q=" + name)
		s.api.Put(t, "machines", aMachine("team-a", name, "Creating"))
		b.Wait("the machine", `document.querySelector("tr.fresh")?.textContent.includes(`+browser.Quote(name)+`)`)
		if moves := browser.Eval[int](b, moving+`.length`) > 0; moves != (preference == "no-preference") {
			t.Errorf("with %s, something moves: %t", preference, moves)
		}
	}
	for _, v := range pages {
		b.See(v.hash)
		if got := browser.Eval[string](b, moving+`.map((e) => e.outerHTML.slice(0, 120)).join("\n")`); got != "" {
			t.Errorf("%s moves:\n%s", v.name, got)
		}
	}
	b.Clean()
}

// aDay is what a page hears in some hours of a busy data centre: thousands of
// events, and machines that come, change and go.
const aDay = `{
	for (let i = 0; i < 5000; i++) {
		const id = "passing-" + day + "-" + i;
		const machine = { id, name: id, namespace: "team-a", status: "pending", phase: "Creating", ready: false, cpus: 2, memoryBytes: 4e9, since: new Date().toISOString() };
		parts.handlers.patch({ topic: "machines", upserts: [machine], removes: [] });
		parts.handlers.patch({ topic: "machines", upserts: [{ ...machine, phase: "Running", status: "running", ready: true }], removes: [] });
		parts.handlers.event({ source: "/test", id, type: "infrastructure.machine.created", time: new Date().toISOString(), namespace: "team-a", data: { name: id, namespace: "team-a" } });
		parts.handlers.patch({ topic: "machines", upserts: [], removes: [id] });
	}
	day++;
}`

// TestPageEndures looks at a page for days: it goes through every view, hears many
// thousand changes and loses its connection many times, and does not grow.
func TestPageEndures(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) })
	s.waitReady()
	proxy := cutProxy(t, strings.TrimPrefix(s.url, "http://"))
	b := browser.New(t, "http://"+proxy.Addr().String(), 1200, 800)
	b.Open("#/overview")
	browser.Eval[bool](b, `Promise.all(["store", "connection"].map((part) => import("/page/" + part + ".js"))).then((all) => {
		window.parts = Object.assign({}, ...all);
		window.day = 0;
		return true;
	})`)
	live := 0
	liveDay := func() {
		b.Do(aDay)
		for _, v := range pages {
			b.See(v.hash)
		}
		proxy.cut()
		live++
		m := aMachine("team-a", "resident", "Running")
		m.Labels = map[string]string{"day": fmt.Sprint(live)}
		m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "MachineRunning", Message: fmt.Sprint("day ", live), LastTransitionTime: metav1.Now()}}
		s.api.Put(t, "machines", m)
		b.Wait("what came after the cut", `parts.find("machines", "team-a", "resident")?.message === "day `+fmt.Sprint(live)+`"`)
		b.See("#/machines")
		b.Wait("the machines", `document.querySelector("tbody tr[data-row]")`)
	}
	for range 2 {
		liveDay() // the feed, and what else is kept for a while, has filled
	}
	before := b.Footprint()
	for range 6 {
		liveDay()
	}
	after := b.Footprint()
	t.Logf("before %+v, after %+v", before, after)
	// A page that kept the machines that have passed would take tens of megabytes.
	if after.Nodes > before.Nodes+500 || after.Listeners > before.Listeners+300 || after.Heap > before.Heap+4<<20 {
		t.Errorf("the page grows from %+v to %+v", before, after)
	}
	if fresh, resumed := browser.Eval[int](b, `parts.connection.fresh`), browser.Eval[int](b, `parts.connection.resumed`); fresh != 1 || resumed != live {
		t.Errorf("the page started from a snapshot %d times and resumed %d times, want 1 and %d", fresh, resumed, live)
	}
	b.Clean()
}

package app

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPagePalette finds objects of every kind from any view, by everything that names them.
func TestPagePalette(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		busy(t, api)
		nc := &v1alpha1.NetworkConfiguration{TypeMeta: vitistack("v1alpha1", "NetworkConfiguration"), ObjectMeta: meta("team-a", "db-0")}
		nc.Labels = map[string]string{v1alpha1.LabelMachine: "db-0"}
		nc.Spec.NetworkInterfaces = []v1alpha1.InterfaceSpec{{Name: "eth0", MACAddress: "52:54:00:ab:cd:ef"}}
		api.Put(t, "networkconfigurations", nc)
	})
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/events")
	uid := s.get("/api/v1/clusters/team-a/billing").object(t)["id"].(string)
	for _, tc := range []struct{ text, first, hash string }{
		{"shop", "team-a/shop", "#/clusters/team-a/shop"},
		{"shop-cp-1", "team-a/shop-cp-1", "#/machines/team-a/shop-cp-1"},
		{"10.20.1.200", "team-a/db-0", "#/machines/team-a/db-0"},
		{"52:54:00:AB:CD:EF", "team-a/db-0", "#/machines/team-a/db-0"},
		{uid, "team-a/billing", "#/clusters/team-a/billing"},
		{"10.20.1.0/24", "team-a/team-a-net", "#/networks/team-a/team-a-net"},
		{"hypervisor-03", "hypervisor-03", "#/hosts?q=hypervisor-03"},
		{"pipeline", "Pipeline", "#/pipeline"},
	} {
		b.Press("/")
		b.Wait("the palette", `document.getElementById("palette").open && document.activeElement.id === "palette-text"`)
		b.Do(`{ const f = document.getElementById("palette-text"); f.value = ` + browser.Quote(tc.text) + `; f.dispatchEvent(new Event("input")); }`)
		if got := b.Text("#palette li strong"); got != tc.first {
			t.Errorf("%s finds %q first, want %q:\n%s", tc.text, got, tc.first, b.Text("#palette"))
		}
		if tc.text == "shop" {
			b.Accessible("palette")
			b.Picture("palette")
		}
		b.Press(kb.Enter)
		b.Wait(tc.hash, `location.hash === `+browser.Quote(tc.hash)+` && !document.getElementById("palette").open`)
	}
	b.Press("/")
	b.Do(`{ const f = document.getElementById("palette-text"); f.value = "no such thing"; f.dispatchEvent(new Event("input")); }`)
	if got := b.Text("#palette"); !strings.Contains(got, "Nothing matches") {
		t.Errorf("a search without a match says %q", got)
	}
	b.Press(kb.Escape)
	b.Wait("the end of the palette", `!document.getElementById("palette").open`)
	b.Clean()
}

// TestPageOrder shows what is in trouble first, and what is not ready by one click.
func TestPageOrder(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		for i := range 40 {
			m := aMachine("team-a", fmt.Sprintf("a-%02d", i), "Running")
			m.Status.Conditions = readyFor(time.Hour, "", "")
			api.Put(t, "machines", m)
		}
		m := aMachine("team-z", "z-broken", "Failed")
		m.Status.Conditions = readyFor(time.Minute, "TemplateNotFound", "there is no template huge")
		api.Put(t, "machines", m)
		m = aMachine("team-z", "y-starts", "Creating")
		m.Status.Conditions = readyFor(time.Second, "Starting", "starts")
		api.Put(t, "machines", m)
	})
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/machines")
	b.Wait("the rows", `document.querySelectorAll("tbody tr[data-row]").length > 10`)
	names := `[...document.querySelectorAll("tbody tr[data-row] th")].slice(0, 3).map((x) => x.innerText).join()`
	if got := browser.Eval[string](b, names); got != "z-broken,y-starts,a-00" {
		t.Errorf("the table begins with %s", got)
	}
	b.Do(`[...document.querySelectorAll(".filters button")].find((x) => x.textContent === "Not ready (2)").click()`)
	b.Wait("what is not ready", `document.querySelectorAll("tbody tr[data-row]").length === 2 && location.hash === "#/machines?ready=no"`)
	b.Do(`[...document.querySelectorAll(".filters button")].find((x) => x.textContent === "Clear").click()`)
	b.Wait("every row on paper", `(dispatchEvent(new Event("beforeprint")), document.querySelectorAll("tbody tr[data-row]").length === 42)`)
	b.Do(`dispatchEvent(new Event("afterprint"))`)
	if got := browser.Eval[int](b, `document.querySelectorAll("tbody tr[data-row]").length`); got >= 42 {
		t.Errorf("%d rows are in the document after printing", got)
	}
	b.Clean()
}

// TestPageEventFilters has the history answer what the filters of the view select, also what the page has not loaded.
func TestPageEventFilters(t *testing.T) {
	t.Parallel()
	s := start(t)
	var all []history.Event
	for i := range 300 {
		e := history.Event{
			ID: fmt.Sprintf("e-%d", i), Source: "/test", Type: "infrastructure.machine.created", Time: time.Now().Add(time.Duration(i-400) * time.Minute), Data: []byte(`{}`),
			Object: history.Object{Kind: "Machine", Namespace: "team-a", Name: fmt.Sprintf("web-%d", i)},
		}
		if i == 3 {
			e.Type, e.Namespace, e.Name, e.Data = "infrastructure.cluster.updated", "team-old", "legacy", []byte(`{"note":"needle"}`)
		}
		all = append(all, e)
	}
	if _, err := s.app.history.Write(t.Context(), history.Record{Events: all}); err != nil {
		t.Fatal(err)
	}
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/events")
	b.Wait("the newest events", `document.querySelectorAll(".event-list > li").length === 100`)
	for _, hash := range []string{"#/events?type=infrastructure.cluster.updated", "#/events?ns=team-old", "#/events?q=needle"} {
		b.See(hash)
		b.Wait("the one event of "+hash, `document.querySelectorAll(".event-list > li").length === 1 && document.querySelector(".event-list").textContent.includes("legacy")`)
	}
	b.See("#/events?type=infrastructure.cluster.updated&ns=team-a")
	b.Wait("no event", `document.querySelector("main .empty")?.textContent.includes("No event matches")`)
	b.See("#/events")
	b.Wait("all again", `document.querySelectorAll(".event-list > li").length === 100`)
	b.Clean()
}

package app

import (
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageEvents follows the stream of events: history first, then what comes, with
// filters, and holding still.
func TestPageEvents(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/events")
	b.Wait("the empty list", `document.querySelector("main .empty")`)
	s.api.Put(t, "machines", aMachine("team-a", "one", "Pending"))
	eventually(t, "the machine", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == "1" })
	running := aMachine("team-a", "one", "Running")
	s.api.Put(t, "machines", running)
	b.Wait("the event", `document.querySelector(".event-list")?.textContent.includes("Machine runs")`)

	hold := `[...document.querySelectorAll("main button")].find((x) => /^(Pause|Resume)/.test(x.textContent)).click()`
	b.Do(hold)
	e := event.New()
	e.SetID("held")
	e.SetSource("/test")
	e.SetType("infrastructure.cluster.updated")
	e.SetTime(time.Now())
	if err := e.SetData("application/json", map[string]any{"namespace": "team-b", "name": "two", "changes": []any{map[string]any{"path": "/status/phase", "from": "Provisioning", "to": "Running"}}}); err != nil {
		t.Fatal(err)
	}
	s.app.replicas.ShowEvent(e, "team-b")
	b.Wait("the count of what is held", `document.querySelector("main").textContent.includes("Resume (1 new)")`)
	if strings.Contains(b.Text(".event-list"), "two") {
		t.Error("a list that is held still has changed")
	}
	b.Do(hold)
	b.Wait("what was held", `document.querySelector(".event-list").textContent.includes("Provisioning → Running")`)
	b.Do(`document.querySelector(".event-list summary").click()`)
	b.Wait("the detail", `document.querySelector(".event-list pre")?.textContent.includes('"id": "held"')`)
	b.Accessible("events")
	b.Picture("events")
	b.See("#/events?ns=team-a")
	b.Wait("one namespace", `document.querySelectorAll(".event-list > li").length === 1`)
	b.See("#/events?q=cluster+changed")
	b.Wait("one kind", `document.querySelectorAll(".event-list > li").length === 1 && document.querySelector(".event-list").textContent.includes("two")`)
	e.SetID("odd")
	e.SetTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
	s.app.replicas.ShowEvent(e, "team-b")
	b.Wait("an event of a time that browsers do not know", `document.querySelectorAll(".event-list > li").length === 2`)

	letter := event.New()
	letter.SetID("dead")
	letter.SetSource("/apis")
	letter.SetType("dev.knative.apiserver.ref.add")
	letter.SetSubject("/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/one")
	letter.SetExtension("knativeerrordest", "http://create-vm.vitistack-system/")
	letter.SetExtension("knativeerrorcode", 422)
	encoded, err := letter.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	b.See("#/pipeline")
	b.Wait("no dead letters", `document.querySelector("main").textContent.includes("No dead letters")`)
	if r := s.do("POST", "/dead-letters", string(encoded), "Content-Type", structured); r.StatusCode >= 300 {
		t.Fatalf("the dead letter: %s %s", r.Status, r.body)
	}
	b.Wait("the dead letter", `document.querySelector(".letters")?.textContent.includes("create-vm answered 422")`)
	push := "vitistack_function_deliveries_total{function=\"create-vm\",outcome=\"done\",instance=\"a\"} 41\nvitistack_function_deliveries_total{function=\"create-vm\",outcome=\"retry\",instance=\"a\"} 7\n"
	if r := s.do("POST", "/api/v1/import/prometheus", push, "Content-Type", "text/plain"); r.StatusCode >= 300 {
		t.Fatalf("the push: %s %s", r.Status, r.body)
	}
	b.Wait("the deliveries", `[...document.querySelectorAll("main tbody tr")].some((r) => r.textContent === "create-vm4170")`)
	b.Clean()
}

// lagging tells the page what the gateway tells one that has fallen behind, and then
// cuts it off in the middle of that.
const lagging = `import("/page/store.js").then(({ all, handlers }) => {
	const names = () => all("functions").map((f) => f.name).join();
	const summary = (name) => handlers.summary({ summary: { functions: [{ name, ready: true }] } });
	handlers.snapshot({ topic: "machines", part: 0, items: [] });
	summary("allocate-ip");
	handlers.synced();
	const behind = names();
	handlers.snapshot({ topic: "machines", part: 0, items: [] });
	handlers.hello({ resumed: true });
	summary("kea-reserve");
	return "behind: " + behind + ", cut: " + names();
})`

// TestPageFunctions shows that a function does not run, before anything is stuck for
// it.
func TestPageFunctions(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1200, 800)
	b.Open("#/overview")
	b.Wait("a page without problems", `document.querySelector("main .headline.good")`)
	service := &inventory.KnativeService{TypeMeta: metav1.TypeMeta{APIVersion: "serving.knative.dev/v1", Kind: "Service"}, ObjectMeta: meta("vitistack-system", "allocate-ip")}
	service.Labels = map[string]string{"app.kubernetes.io/part-of": "vitistack"}
	service.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "RevisionFailed", Message: "the image cannot be pulled", LastTransitionTime: metav1.Now()}}
	s.api.Put(t, "services", service)
	b.Wait("the function", `document.querySelector(".attention")?.textContent.includes("the image cannot be pulled")`)
	if got := b.Text(".health"); !strings.Contains(got, "allocate-ip down") {
		t.Errorf("the layers: %s", got)
	}
	b.See("#/pipeline")
	b.Wait("the lane", `document.querySelector(".lanes").textContent.includes("allocate-ip does not run")`)
	service.Status.Conditions[0].Status = "True"
	s.api.Put(t, "services", service)
	b.Wait("the end of it", `!document.querySelector(".lanes").textContent.includes("allocate-ip does not run")`)
	if got := browser.Eval[string](b, lagging); got != "behind: allocate-ip, cut: kea-reserve" {
		t.Errorf("the functions after the page was behind, and after it was cut off from a snapshot: %s", got)
	}
	b.Clean()
}

// TestPageTables sorts, filters and exports a table, by its URL and by its controls.
func TestPageTables(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		busy(t, api)
		api.Put(t, "machines", aMachine("team-a", "formula", "Failed"))
	})
	s.waitReady()
	b := browser.New(t, s.url, 1600, 900)
	b.Open("#/machines?cluster=shop&sort=-address")
	b.Wait("the machines of a cluster", `document.querySelectorAll("tbody tr[data-row]").length === 5`)
	if got := b.Text("tbody tr"); !strings.Contains(got, "10.20.1.24") {
		t.Errorf("the first row is %q", got)
	}
	if got := browser.Eval[string](b, `document.querySelector("th[aria-sort=descending]").innerText.trim()`); !strings.HasPrefix(got, "Address") {
		t.Errorf("sorted by %q", got)
	}
	b.Do(`[...document.querySelectorAll("thead button")].find((x) => x.textContent.startsWith("Name")).click()`)
	b.Wait("the order in the URL", `location.hash.includes("sort=name")`)
	b.Do(`{ const s = [...document.querySelectorAll("label.field")].find((x) => x.textContent.startsWith("State")).querySelector("select"); s.value = "Pending"; s.dispatchEvent(new Event("change")); }`)
	b.Wait("nothing", `document.querySelector("main .empty")?.textContent.includes("No machine matches")`)
	b.Do(`[...document.querySelectorAll(".filters button")].find((x) => x.textContent === "Clear").click()`)
	b.Wait("everything", `location.hash === "#/machines?sort=name" && document.querySelectorAll("tbody tr[data-row]").length > 5`)
	csv := browser.Eval[string](b, `new Promise((done) => {
		const made = URL.createObjectURL;
		URL.createObjectURL = (blob) => { blob.text().then(done); return made.call(URL, blob); };
		HTMLAnchorElement.prototype.click = function () {};
		[...document.querySelectorAll(".filters button")].find((x) => x.textContent === "Export CSV").click();
	})`)
	lines := strings.Split(strings.TrimSpace(csv), "\r\n")
	if want := len(s.app.store.Current().Collection("machines").Items) + 1; len(lines) != want {
		t.Errorf("the export has %d lines, want %d", len(lines), want)
	}
	if !strings.HasPrefix(lines[0], "Name,Namespace,State,Cluster,Role,Address,Hypervisor,CPUs,Memory,Disk,") {
		t.Errorf("the export begins with %s", lines[0])
	}
	b.Clean()
}

// TestPageAddresses reads the map of a network's addresses, also that of IPv6, where
// numbers are larger than those of JavaScript.
func TestPageAddresses(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		busy(t, api)
		n := aNetwork("team-six", "six")
		n.Status.IPv6Prefix, n.Status.IPv6Gateway = "2001:db8:1::/64", "2001:db8:1::1"
		api.Put(t, "networknamespaces", n)
	})
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/networks/team-a/team-a-net")
	b.Wait("the map", `document.querySelector(".address-map")`)
	label := browser.Eval[string](b, `document.querySelector(".address-map").getAttribute("aria-label")`)
	if want := "Address map: 17 allocated, 1 reserved, 193 free, 45 excluded."; label != want {
		t.Errorf("the map says %q, want %q", label, want)
	}
	b.Do(`document.querySelector("main details summary").click()`)
	table := b.Text("main details table")
	for _, want := range []string{"10.20.1.100\t10.20.1.119\texcluded\texcluded", "10.20.1.77\t\treserved\tprinter", "10.20.1.241\t10.20.1.254\texcluded\toutside the pool", "10.20.1.255\t\texcluded\tbroadcast"} {
		if !strings.Contains(table, want) {
			t.Errorf("the list lacks %q:\n%s", want, table)
		}
	}
	b.Accessible("network with its list")
	b.See("#/networks/team-six/six")
	b.Wait("the map of IPv6", `document.querySelector(".address-map")?.getAttribute("aria-label").includes("2^64 free")`)
	for text, want := range map[string]string{"::": "::", "2001:db8::1": "2001:db8::1", "fe80:0:0:1::ff": "fe80:0:0:1::ff", "1::": "1::"} {
		got := browser.Eval[string](b, `import("/page/addressmap.js").then((m) => m.formatAddress(m.parseAddress(`+browser.Quote(text)+`), true))`)
		if back := browser.Eval[bool](b, `import("/page/addressmap.js").then((m) => m.parseAddress(`+browser.Quote(got)+`) === m.parseAddress(`+browser.Quote(text)+`))`); !back || got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
	b.Clean()
}

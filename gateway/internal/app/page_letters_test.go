package app

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/tests/stand/browser"
)

// putLetter delivers a dead letter to the gateway, as the Broker does.
func putLetter(t *testing.T, s *env, name, function string) {
	t.Helper()
	e := event.New()
	e.SetID("id-" + name)
	e.SetSource("/apis")
	e.SetType("dev.knative.apiserver.ref.add")
	e.SetSubject("/apis/vitistack.io/v1alpha1/namespaces/team-a/machines/" + name)
	e.SetTime(time.Now())
	e.SetExtension("knativeerrordest", "http://"+function+".vitistack-system/")
	e.SetExtension("knativeerrorcode", 422)
	if err := e.SetData("application/json", map[string]string{"kind": "Machine", "name": name}); err != nil {
		t.Fatal(err)
	}
	encoded, err := e.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	if r := s.do(http.MethodPost, "/dead-letters", string(encoded), "Content-Type", structured); r.StatusCode >= 300 {
		t.Fatalf("the dead letter: %s %s", r.Status, r.body)
	}
}

// TestPageDeadLetters filters dead letters, asks for a key that may write and for a confirmation, discards one, and shows why
// another cannot be sent again.
func TestPageDeadLetters(t *testing.T) {
	t.Parallel()
	reader, readLine := keyLine(t, "reader", "read")
	writer, writeLine := keyLine(t, "writer", "read+write")
	s := start(t, "--auth.keys="+readLine+","+writeLine)
	for i := range 3 {
		putLetter(t, s, "web-"+strconv.Itoa(i), "create-vm")
	}
	putLetter(t, s, "net", "provision-network")
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/dead-letters")
	b.Wait("the letters", `document.querySelectorAll(".letters > li").length === 4`)
	b.Accessible("dead letters")
	b.Do(`{ const s = [...document.querySelectorAll("label.field")].find((x) => x.textContent.startsWith("Receiver")).querySelector("select"); s.value = "http://provision-network.vitistack-system/"; s.dispatchEvent(new Event("change")); }`)
	b.Wait("the letters of one receiver", `document.querySelectorAll(".letters > li").length === 1`)
	b.See("#/dead-letters?q=web-1")
	b.Wait("the letter of one machine", `document.querySelectorAll(".letters > li").length === 1 && document.querySelector(".letters").textContent.includes("web-1")`)

	click := func(label string) {
		t.Helper()
		b.Do(`[...document.querySelectorAll("main button")].find((x) => (x.getAttribute("aria-label") ?? x.textContent) === ` + browser.Quote(label) + `).click()`)
		b.AwaitDrawing()
	}
	enter := func(key string) {
		t.Helper()
		b.Wait("the form for a key", `document.getElementById("write-key")`)
		b.Do(`document.getElementById("write-key").focus()`)
		b.Press(key)
		b.Press(kb.Enter)
	}
	click("Discard: web-1")
	enter(reader)
	b.Wait("the refusal of a key that only reads", `document.querySelector(".confirm [role=alert]")?.textContent === "key/reader lacks the scope write."`)
	enter(writer)
	b.Wait("the question", `document.querySelector(".confirm")?.textContent.includes("Discard the dead letter of web-1?")`)
	b.Accessible("confirmation")
	click("Cancel")
	b.Wait("the letter that is kept", `!document.querySelector(".confirm") && document.querySelectorAll(".letters > li").length === 1`)
	if total := s.get("/api/v1/dead-letters?limit=1").Header.Get("X-Total-Count"); total != "4" {
		t.Errorf("%s dead letters after a cancelled action, want 4", total)
	}
	click("Discard: web-1")
	click("Discard")
	b.Wait("the end of the letter", `document.querySelector("main [role=status]")?.textContent.includes("Discarded 1 dead letter")`)
	if total := s.get("/api/v1/dead-letters?limit=1").Header.Get("X-Total-Count"); total != "3" {
		t.Errorf("%s dead letters after one is discarded, want 3", total)
	}

	b.See("#/dead-letters?q=web-2")
	b.Wait("the last machine", `document.querySelector(".letters")?.textContent.includes("web-2")`)
	click("Send again: web-2")
	b.Wait("the question", `document.querySelector(".confirm")`)
	click("Send again")
	b.Wait("why it failed", `document.querySelector(".letters [role=alert]")?.textContent.includes("cannot be sent again: the gateway has no Broker: set K_SINK")`)
	if total := s.get("/api/v1/dead-letters?limit=1").Header.Get("X-Total-Count"); total != "3" {
		t.Errorf("%s dead letters after a refused action, want 3", total)
	}
	b.Clean()
}

// TestPageDeadLettersBeyondTheRateLimit discards more letters than the rate limit allows at once. The page goes on after the time that the
// gateway names.
func TestPageDeadLettersBeyondTheRateLimit(t *testing.T) {
	t.Parallel()
	writer, line := keyLine(t, "writer", "read+write")
	s := start(t, "--auth.keys="+line, "--rateLimit.enabled=true", "--rateLimit.requestsPerMinute=60", "--rateLimit.burstSize=10")
	const letters = 30
	for i := range letters {
		putLetter(t, s, "web-"+strconv.Itoa(i), "create-vm")
	}
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/dead-letters")
	b.Wait("the letters", `document.querySelectorAll(".letters > li").length === 30`)
	click := func(label string) {
		t.Helper()
		b.Do(`[...document.querySelectorAll("main button")].find((x) => x.textContent === ` + browser.Quote(label) + `).click()`)
		b.AwaitDrawing()
	}
	click("Discard: all 30 shown")
	b.Wait("the form for a key", `document.getElementById("write-key")`)
	b.Do(`document.getElementById("write-key").focus()`)
	b.Press(writer)
	b.Press(kb.Enter)
	b.Wait("the question", `document.querySelector(".confirm")?.textContent.includes("Discard 30 dead letters?")`)
	click("Discard")
	b.Wait("the progress", `/\d+ of 30 are done. The gateway limits requests: the next one follows in \d+ s./.test(document.querySelector(".confirm [role=status]")?.textContent)`)
	b.Wait("the end of all letters", `document.querySelector("main")?.textContent.includes("Discarded 30 dead letters")`)
	eventually(t, "the empty list", func() bool { return s.get("/api/v1/dead-letters?limit=1").Header.Get("X-Total-Count") == "0" })
}

// TestPageManyDeadLetters shows as many dead letters as a request may ask for, and says how to find the others.
func TestPageManyDeadLetters(t *testing.T) {
	t.Parallel()
	s := start(t)
	var letters []history.DeadLetter
	for i := range 1001 {
		letters = append(letters, history.DeadLetter{ID: strconv.Itoa(i), Source: "/apis", Destination: "http://create-vm/", Type: "dev.knative.apiserver.ref.add", Name: "web", Time: time.Now(), Data: "{}"})
	}
	if _, err := s.app.history.Write(t.Context(), history.Record{DeadLetters: letters}); err != nil {
		t.Fatal(err)
	}
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/dead-letters?limit=960")
	b.Wait("the letters", `document.querySelectorAll(".letters > li").length === 960`)
	b.Do(`[...document.querySelectorAll("main button")].find((x) => x.textContent === "Show older ones").click()`)
	b.Wait("all letters that can be shown", `document.querySelectorAll(".letters > li").length === 1000 && document.querySelector("main").textContent.includes("The newest 1,000 are shown. Search to find others.")`)
	b.Clean()
}

package app

import (
	"testing"
	"time"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageWrongClock opens the page in browsers whose clock is wrong. What has waited for an hour is a problem, and what has waited for seconds is none.
func TestPageWrongClock(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		for name, ago := range map[string]time.Duration{"slow": time.Hour, "fresh": time.Second} {
			m := aMachine("team-a", name, "Creating")
			m.Status.Conditions = readyFor(ago, "Starting", "waiting for the virtual machine to start")
			api.Put(t, "machines", m)
		}
	})
	s.waitReady()
	for because, ahead := range map[string]string{"the clock is two hours ahead": "7200e3", "the clock is two hours behind": "-7200e3"} {
		b := browser.New(t, s.url, 1200, 900)
		b.Before(`{ const right = Date.now; Date.now = () => right() + ` + ahead + `; }`)
		b.Open("#/overview")
		b.Wait(because+": the machine that has waited for an hour alone", `(() => {
			const text = document.querySelector(".attention")?.innerText ?? "";
			return text.includes("team-a/slow") && !text.includes("team-a/fresh") && document.querySelector(".attention time")?.innerText === "60 min";
		})()`)
	}
}

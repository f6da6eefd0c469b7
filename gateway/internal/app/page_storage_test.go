package app

import (
	"testing"

	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageWithoutStorage opens the page in a browser that stores nothing for it, as with blocked cookies. Each access to localStorage is then an error.
func TestPageWithoutStorage(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1200, 900)
	b.Before(`Object.defineProperty(window, "localStorage", { get() { throw new DOMException("Access is denied for this document.", "SecurityError"); } });`)
	b.Open("#/overview")
	b.Wait("the connection", `document.querySelector("#connection .state")?.dataset.state === "live"`)
	b.Press("?")
	b.Wait("the keys", `document.getElementById("keys").open`)
	b.Do(`document.querySelector("#keys input").click()`)
	b.Do(`document.getElementById("keys").close()`)
	b.Press("?")
	if browser.Eval[bool](b, `document.getElementById("keys").open`) {
		t.Error("single keys work after they were switched off")
	}
}

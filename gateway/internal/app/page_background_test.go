package app

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageLoginInBackground leaves the page while it asks for a key for longer than a hidden page keeps its connection, as a user does who looks for
// the key elsewhere. What the user has written stays.
func TestPageLoginInBackground(t *testing.T) {
	t.Parallel()
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, fmt.Appendf(nil, "reader sha256:%x read", sha256.Sum256([]byte("a-key-that-nobody-guesses"))), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startCold(t, func(api *fakeapi.Server) { busy(t, api) }, "--auth.enabled=true", "--auth.keysFile="+keys)
	s.waitReady()
	b := browser.New(t, s.url, 1200, 800)
	b.Before(`{ const exact = setTimeout; window.setTimeout = (f, wait, ...more) => exact(f, wait === 60_000 ? 20 : wait, ...more); }`)
	b.Open("#/machines")
	b.Wait("the login", `document.querySelector("main h1").textContent === "Log in"`)
	b.Do(`document.getElementById("key").focus()`)
	b.Press("a-key")
	for _, hidden := range []string{"true", "false"} {
		b.Do(`Object.defineProperty(document, "hidden", { value: ` + hidden + `, configurable: true })`)
		b.Do(`document.dispatchEvent(new Event("visibilitychange"))`)
		browser.Eval[bool](b, `new Promise((done) => setTimeout(() => done(true), 500))`)
	}
	b.AwaitDrawing()
	if got := browser.Eval[string](b, `document.getElementById("key")?.value ?? "no field"`); got != "a-key" {
		t.Errorf("the field has %q", got)
	}
}

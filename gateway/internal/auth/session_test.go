package auth

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/session"
)

// TestStreamEndsWithItsSession opens a stream shortly before its session ends.
func TestStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	const key = "a key that is long enough"
	var line bytes.Buffer
	if err := HashKey([]string{"wall", "read"}, strings.NewReader(key+"\n"), &line); err != nil {
		t.Fatal(err)
	}
	_, hashed, _ := strings.Cut(strings.TrimSpace(line.String()), ": ")
	secret := make([]byte, session.KeySize)
	a, err := New(Options{
		Settings: config.Auth{Enabled: true, Keys: []string{hashed}}, Log: slog.New(slog.DiscardHandler), Timeout: time.Second,
		DeriveKey: func(context.Context, string, int) ([]byte, error) { return secret, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	token, err := session.Seal(secret, sha256.Sum256([]byte(key)), time.Now().Add(2*time.Second-session.Lifetime))
	if err != nil {
		t.Fatal(err)
	}
	var isAdmitted func() bool
	app := fiber.New()
	app.Get("/", func(c *fiber.Ctx) error {
		isAdmitted = a.StillAdmitted(c)
		return nil
	})
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.AddCookie(&http.Cookie{Name: cookieName, Value: token})
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	if _, err := app.Test(req); err != nil {
		t.Fatal(err)
	}
	if !isAdmitted() {
		t.Fatal("the stream ends before its session")
	}
	for deadline := time.Now().Add(10 * time.Second); isAdmitted(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream goes on after its session")
		}
	}
}

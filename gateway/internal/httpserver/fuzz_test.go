package httpserver

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzRequestID parses any request ID.
func FuzzRequestID(f *testing.F) {
	for _, text := range []string{"req-1\r\nSet-Cookie: a", "req-1", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if id := requestID(text); !utf8.ValidString(id) || strings.ContainsAny(id, "\r\n\"\\ ") {
			t.Errorf("request id %q of %q", id, text)
		}
	})
}

package httpclient

import (
	"net/http"
	"strings"
	"testing"
)

// FuzzAnswer parses any data as the answer of a backend. The error is one short line.
func FuzzAnswer(f *testing.F) {
	f.Add(500, "120", []byte(`{"detail":"no\nmore"}`))
	f.Add(302, "Wed, 21 Oct 2099 07:28:00 GMT", []byte(`{"error":{"message":"x"}}`))
	f.Add(-1, "-5", []byte(`[`))
	f.Add(429, "99999999999999", []byte(`{"title":"`+strings.Repeat("x", 400)+`"}`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		e := (&Error{Method: "GET", Where: "host"}).status(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}, body)
		if e.RetryAfter < 0 || strings.ContainsAny(e.Error(), "\r\n") {
			t.Errorf("%s, after %s", e, e.RetryAfter)
		}
		if said := e.Detail(); strings.ContainsAny(said, "\r\n") || len(said) > 310 {
			t.Errorf("%q says %q", body, said)
		}
	})
}

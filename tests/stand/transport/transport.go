// Package transport has what tests need to look at HTTP requests, and to change their answers, before they are sent.
package transport

import (
	"net/http"
	"net/http/httptest"
)

// Func is a function as an http.RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// EmptyCache returns a transport to an API server whose cache has nothing: lists of the resourceVersion 0, which the cache answers without
// waiting for the latest changes, are empty.
func EmptyCache(next http.RoundTripper) http.RoundTripper {
	return Func(func(r *http.Request) (*http.Response, error) {
		if answer := FromEmptyCache(r); answer != nil {
			return answer, nil
		}
		return next.RoundTrip(r)
	})
}

// FromEmptyCache returns the answer of EmptyCache, or nil for a request that goes on to the API server.
func FromEmptyCache(r *http.Request) *http.Response {
	if r.Method != http.MethodGet || r.URL.Query().Get("resourceVersion") != "0" {
		return nil
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.WriteString(`{"metadata":{"resourceVersion":"1"},"items":[]}`)
	return w.Result()
}

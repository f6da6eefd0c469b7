// Package transport has what tests need to look at HTTP requests, and to change their answers, before they are sent.
package transport

import (
	"encoding/json"
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

// Lists returns a transport to an API server that answers lists of the resourceVersion 0 with cached, and all others with present. It appends the
// resourceVersion of each list to asked.
func Lists(cached, present any, asked *[]string) Func {
	return func(r *http.Request) (*http.Response, error) {
		version, list := r.URL.Query().Get("resourceVersion"), present
		if version == "0" {
			list = cached
		}
		*asked = append(*asked, version)
		w := httptest.NewRecorder()
		err := json.NewEncoder(w).Encode(list)
		return w.Result(), err
	}
}

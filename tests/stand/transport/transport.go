// Package transport has what tests need to look at HTTP requests, and to change their answers, before they are sent.
package transport

import "net/http"

// Func is a function as an http.RoundTripper.
type Func func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f Func) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

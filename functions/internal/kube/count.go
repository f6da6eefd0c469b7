package kube

import (
	"net/http"

	"github.com/vitistack/stack/events"
)

// countRequests counts the requests through next for the deliveries that send them.
func countRequests(next http.RoundTripper) http.RoundTripper { return counter{next} }

type counter struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (c counter) RoundTrip(r *http.Request) (*http.Response, error) {
	events.CountRequest(r.Context(), r.Method != http.MethodGet)
	return c.RoundTripper.RoundTrip(r)
}

// WrappedRoundTripper lets client-go find the transport below.
func (c counter) WrappedRoundTripper() http.RoundTripper { return c.RoundTripper }

package broker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIngress(t *testing.T) {
	t.Parallel()
	binary := map[string]string{"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/test", "ce-type": "thing.changed", "Content-Type": "application/json"}
	without := func(name string) map[string]string {
		header := map[string]string{}
		for n, v := range binary {
			if n != name {
				header[n] = v
			}
		}
		return header
	}
	structured := map[string]string{"Content-Type": "application/cloudevents+json"}
	cases := map[string]struct {
		reason string
		method string
		header map[string]string
		body   string
		want   int
	}{
		"Binary":     {reason: "binary mode is accepted", header: binary, body: `{}`, want: http.StatusAccepted},
		"Structured": {reason: "structured mode is accepted", header: structured, body: `{"specversion":"1.0","id":"1","source":"/test","type":"thing.changed"}`, want: http.StatusAccepted},
		"NoType":     {reason: "type is required", header: without("ce-type"), want: http.StatusBadRequest},
		"NoID":       {reason: "id is required", header: without("ce-id"), want: http.StatusBadRequest},
		"NoEvent":    {reason: "a request without an event is rejected", header: map[string]string{"Content-Type": "text/plain"}, body: "hello", want: http.StatusBadRequest},
		"NotJSON":    {reason: "a malformed structured event is rejected", header: structured, body: "{", want: http.StatusBadRequest},
		"TooLarge":   {reason: "bodies are limited", header: binary, body: strings.Repeat("x", maxEvent+1), want: http.StatusRequestEntityTooLarge},
		"Get":        {reason: "only POST is accepted", method: http.MethodGet, header: binary, want: http.StatusMethodNotAllowed},
		"Options":    {reason: "the webhook handshake is answered", method: http.MethodOptions, want: http.StatusOK},
		"LastHop":    {reason: "an event without remaining hops is rejected", header: merge(binary, "ce-knativebrokerttl", "1"), body: `{}`, want: http.StatusBadRequest},
		"HopsLeft":   {reason: "an event with remaining hops is accepted", header: merge(binary, "ce-knativebrokerttl", "2"), body: `{}`, want: http.StatusAccepted},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := start(t)
			method := tc.method
			if method == "" {
				method = http.MethodPost
			}
			request := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(tc.body))
			for name, value := range tc.header {
				request.Header.Set(name, value)
			}
			recorder := httptest.NewRecorder()
			b.ServeHTTP(recorder, request)
			if diff := cmp.Diff(tc.want, recorder.Code); diff != "" {
				t.Errorf("%s: status (-want +got):\n%s%s", tc.reason, diff, recorder.Body)
			}
			var received int64
			if tc.want == http.StatusAccepted {
				received = 1
			}
			if got := b.Stats().Received; got != received {
				t.Errorf("%s: counted %d events, want %d", tc.reason, got, received)
			}
		})
	}
}

func TestFullBrokerRefuses(t *testing.T) {
	t.Parallel()
	b, send := start(t)
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	b.held.Store(maxHeld)
	if code := post(t, server.URL, newEvent("1")); code != http.StatusServiceUnavailable {
		t.Errorf("a full broker answers %d, want 503", code)
	}
	b.held.Store(maxHeld - 1)
	send(newEvent("1"))
}

func merge(header map[string]string, name, value string) map[string]string {
	merged := map[string]string{name: value}
	for n, v := range header {
		merged[n] = v
	}
	return merged
}

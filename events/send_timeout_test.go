package events

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// TestSendWithoutAnswer distinguishes a sink that has the event and does not answer from one that is not there.
func TestSendWithoutAnswer(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-answer }))
	t.Cleanup(func() {
		close(answer)
		slow.Close()
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, tc := range map[string]struct {
		reason, url string
		unanswered  bool
	}{
		"Slow": {"a subscriber of a synchronous Broker is slow", slow.URL, true},
		"Gone": {"the Broker does not run", gone.URL, false},
	} {
		sender := NewSinkSender(NewSink(tc.url, nil))
		request := NewReconcileRequest("/s", Ref{Kind: "K", Name: "n"}, "u", "c")
		limited, end := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := sender.Send(limited, request)
		end()
		if err == nil || errors.Is(err, ErrUnanswered) != tc.unanswered {
			t.Errorf("%s, with a limit of the caller: got %v: %s", name, err, tc.reason)
		}
		sender.http.Timeout = 100 * time.Millisecond
		err = sender.Send(t.Context(), request)
		if err == nil || errors.Is(err, ErrUnanswered) != tc.unanswered {
			t.Errorf("%s: got %v: %s", name, err, tc.reason)
		}
		if err := sender.Request(t.Context(), request); (err == nil) != tc.unanswered {
			t.Errorf("%s, a request for a reconcile: got %v: %s", name, err, tc.reason)
		}
	}
}

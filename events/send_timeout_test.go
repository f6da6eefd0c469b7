package events

import (
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
		sender.http.Timeout = 100 * time.Millisecond
		err := sender.Send(t.Context(), NewReconcileRequest("/s", Ref{Kind: "K", Name: "n"}, "u", "c"))
		if err == nil || errors.Is(err, ErrUnanswered) != tc.unanswered {
			t.Errorf("%s: got %v: %s", name, err, tc.reason)
		}
	}
}

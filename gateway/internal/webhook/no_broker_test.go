package webhook_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/gateway/internal/webhook"
)

// TestBrokerIsGone restarts the gateway without K_SINK: a pending delivery to the Broker becomes a dead letter that names K_SINK, and that can
// be sent again when K_SINK is set.
func TestBrokerIsGone(t *testing.T) {
	t.Parallel()
	down, up := newReceiver(t, nil, slices.Repeat([]int{500}, 1000)...), newReceiver(t, nil)
	url := "sqlite://" + filepath.Join(t.TempDir(), "h.db")
	broker := webhook.Endpoint{Name: webhook.BrokerName, URL: down.URL, Timeout: time.Second, Retries: -1, Inside: true}
	s := start(t, url, broker)
	s.record("e1", "infrastructure.machine.created", "team-a")
	s.expect("broker retried")
	s.stop()

	s = start(t, url)
	s.expect("_other dead")
	letters := s.awaitLetters()
	if letters[0].Destination != webhook.BrokerName || !strings.Contains(letters[0].Error, "K_SINK") || !strings.Contains(letters[0].Error, "send this dead letter again") {
		t.Fatalf("dead letters %+v", letters)
	}
	if _, err := new(webhook.Deliverer).Resend(letters[0]); err == nil || !strings.Contains(err.Error(), "K_SINK") {
		t.Errorf("sent again without a Broker: %v", err)
	}
	s.stop()

	broker.URL = up.URL
	s = start(t, url, broker)
	d, err := (&webhook.Deliverer{Endpoints: []webhook.Endpoint{broker}}).Resend(letters[0])
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := s.store.RemoveDeadLetter(t.Context(), letters[0].Sequence, d); !removed || err != nil {
		t.Fatalf("sent again: %t, %v", removed, err)
	}
	s.expect("broker delivered")
}

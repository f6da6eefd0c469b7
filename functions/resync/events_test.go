package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
)

// newPing returns the event of the PingSource resync in a namespace.
func newPing(namespace, id string) event.Event {
	e := event.New()
	e.SetID(id)
	e.SetType(events.TypePing)
	e.SetSource("/apis/v1/namespaces/" + namespace + "/pingsources/resync")
	return e
}

// TestUnexpectedEvents delivers what a Broker without filters would deliver too. No such event may start a round.
func TestUnexpectedEvents(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ reason, eventType, source string }{
		"Heartbeat": {"a full round every ten seconds", events.TypePing, "/apis/v1/namespaces/vitistack-system/pingsources/heartbeat"},
		"Elsewhere": {"the PingSource of another installation", events.TypePing, "/apis/v1/namespaces/other/pingsources/resync"},
		"Change":    {"a round for each change of an object", events.TypeUpdate, "https://10.0.0.1:443"},
		"Own":       {"a round for each event that a round sends", events.TypeResync, "/functions/resync"},
	} {
		e := event.New()
		e.SetID("e1")
		e.SetType(tc.eventType)
		e.SetSource(tc.source)
		var got sent
		var written []string
		f := &function{api: pages{written: &written}, sender: &got, now: func() time.Time { return now }, namespace: "vitistack-system"}
		_, err := f.handle(t.Context(), e)
		if !events.IsPermanent(err) || !strings.Contains(err.Error(), "correct the filter of its Trigger") || len(got)+len(written) > 0 {
			t.Errorf("%s (%s): sent %v, wrote %v, and %v, want a permanent error that names the filter", name, tc.reason, got, written, err)
		}
	}
}

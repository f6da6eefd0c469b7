package ingest

import (
	"context"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/webhook"
)

// Recorder records the events of other systems.
type Recorder struct {
	History   *history.Store
	Deliverer *webhook.Deliverer
	// Show shows an event about a namespace to the clients of the stream.
	Show func(e event.Event, namespace string)
}

// late is the age from which the history has the time of an event's arrival.
const late = 24 * time.Hour

// Record writes an event of another system to the history, plans its deliveries to webhooks, and shows it to clients. It reports
// whether the event is new; a known event changes nothing. An event with an implausible time gets the current time, and in the history
// also one that is late: the history expires by this time, and has to recognise a repetition for all of its retention.
func (r *Recorder) Record(ctx context.Context, in *event.Event) (bool, error) {
	if now := time.Now(); !Plausible(in.Time(), now) {
		in.SetTime(now)
	}
	ref := inventory.RefOfSubject(in.Subject())
	recorded := domainevents.ToHistory(*in, ref.Namespace, "")
	recorded.Kind, recorded.Name = ref.Kind, ref.Name
	if now := time.Now(); now.Sub(in.Time()) > late {
		recorded.Time = now
	}
	if ref.Kind == string(inventory.KindCluster) {
		recorded.Cluster = ref.Name
	}
	written, err := r.History.Write(ctx, history.Record{
		Events:     []history.Event{recorded},
		Deliveries: r.Deliverer.Plan(*in, ref.Namespace, webhook.BrokerName),
	})
	if err != nil || len(written.Events) == 0 {
		return false, err
	}
	r.Show(*in, ref.Namespace)
	return true, nil
}

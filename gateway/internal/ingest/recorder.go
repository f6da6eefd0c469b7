package ingest

import (
	"context"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
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

// Record writes an event of another system to the history, plans its deliveries to webhooks, and shows it to clients. It reports
// whether the event is new; a known event changes nothing. An event with an implausible time gets the current time.
func (r *Recorder) Record(ctx context.Context, in *event.Event) (bool, error) {
	if now := time.Now(); !Plausible(in.Time(), now) {
		in.SetTime(now)
	}
	ref := subjectRef(in.Subject())
	recorded := domainevents.ToHistory(*in, ref.Namespace, "")
	recorded.Kind, recorded.Name = ref.Kind, ref.Name
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

// subjectRef parses the subject of an event, which is an object's path in the Kubernetes API.
func subjectRef(subject string) events.Ref {
	parts := strings.Split(strings.TrimPrefix(subject, "/apis/"), "/")
	kinds := map[string]inventory.Kind{}
	for _, k := range inventory.Kinds {
		kinds[strings.ToLower(string(k))+"s"] = k
	}
	switch {
	case len(parts) == 6 && parts[2] == "namespaces":
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Namespace: parts[3], Kind: string(kinds[parts[4]]), Name: parts[5]}
	case len(parts) == 4:
		return events.Ref{APIVersion: parts[0] + "/" + parts[1], Kind: string(kinds[parts[2]]), Name: parts[3]}
	default:
		return events.Ref{}
	}
}

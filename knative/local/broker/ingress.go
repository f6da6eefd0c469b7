package broker

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
	knbroker "knative.dev/eventing/pkg/broker"
	"knative.dev/eventing/pkg/utils"
)

// errFull means that the broker holds the maximum number of deliveries.
var errFull = errors.New("the broker holds too many undelivered events: send again later")

// ServeHTTP is the ingress. It accepts one CloudEvent in binary or structured mode by POST and answers 202 once it is queued for every matching Trigger.
// 400: not a valid event, or one that has passed the broker too often; 413: too large; 503: the broker is full.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Allow", "POST, OPTIONS")
	switch r.Method {
	case http.MethodOptions: // the CloudEvents webhook handshake
		w.Header().Set("WebHook-Allowed-Origin", "*")
		w.Header().Set("WebHook-Allowed-Rate", "*")
		return
	case http.MethodPost:
	default:
		http.Error(w, "send events by POST", http.StatusMethodNotAllowed)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxEvent)
	e, err := cehttp.NewEventFromHTTPRequest(r)
	if err != nil {
		code := http.StatusBadRequest
		if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
			code = http.StatusRequestEntityTooLarge
		}
		http.Error(w, fmt.Sprintf("read the event: %v", err), code)
		return
	}
	switch err := b.accept(*e, utils.PassThroughHeaders(r.Header)); {
	case errors.Is(err, errFull):
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		w.WriteHeader(http.StatusAccepted)
	}
}

// accept validates an event, uses one of its hops, and queues it for each matching Trigger.
func (b *Broker) accept(e event.Event, header http.Header) error {
	if err := e.Validate(); err != nil {
		return fmt.Errorf("validate the event: %w", err)
	}
	hops := int32(maxHops)
	if left, err := knbroker.GetTTL(e.Context); err == nil {
		hops = left - 1
	}
	if hops <= 0 {
		return fmt.Errorf("event %s of type %s and its replies have passed the broker %d times: break the loop between Triggers", e.ID(), e.Type(), maxHops)
	}
	if b.held.Load() >= maxHeld {
		return errFull
	}
	if err := knbroker.DeleteTTL(e.Context); err != nil {
		return fmt.Errorf("remove the hop count: %w", err)
	}
	e.SetExtension(knbroker.EventArrivalTime, types.Timestamp{Time: time.Now()})
	b.received.Add(1)

	key := orderKey(e)
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, q := range b.queues {
		if q.current().matches(b.ctx, e) {
			q.push(&delivery{event: e, key: key, header: header, hops: hops, first: true})
		}
	}
	return nil
}

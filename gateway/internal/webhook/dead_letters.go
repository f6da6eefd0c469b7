package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
)

// resendSource is the source of the reconcile requests that replace dead letters.
const resendSource = "/gateway/dead-letters"

// letter returns the dead letter of a delivery to an endpoint.
func letter(endpoint string, d history.Delivery, code int) history.DeadLetter {
	out := history.DeadLetter{
		ID: d.EventID, Destination: endpoint, Type: d.Type, Code: code, Error: d.Error, Time: time.Now(), Data: d.Body,
	}
	var e event.Event
	if err := json.Unmarshal([]byte(d.Body), &e); err == nil {
		out.Source, out.Subject = e.Source(), e.Subject()
		out.Namespace, _ = e.Extensions()["namespace"].(string)
		out.Name, _ = e.Extensions()["name"].(string)
	}
	return out
}

// dropOtherParties turns the pending deliveries to parties that are not configured, and are due before a time, into dead letters.
func (d *Deliverer) dropOtherParties(ctx context.Context, due time.Time) error {
	parties := make([]string, 0, len(d.Endpoints))
	for _, e := range d.Endpoints {
		parties = append(parties, e.party())
	}
	return d.History.MoveOtherEndpoints(ctx, parties, due, func(pending history.Delivery) history.DeadLetter {
		name, _, _ := strings.Cut(pending.Endpoint, "@")
		pending.Error = describeRemoved(name, pending.Error)
		d.Count(d.countedName(name), Dead)
		d.Log.Warn("Event cannot be delivered", "endpoint", name, "eventId", pending.EventID, "error", pending.Error)
		return letter(name, pending, 0)
	})
}

// errNoBroker is why nothing is delivered to the Broker.
var errNoBroker = errors.New("the gateway has no Broker: set K_SINK, or wait until SinkBinding gateway is Ready, which sets it")

// describeRemoved says why a delivery to an endpoint that is not configured became a dead letter, and how to deliver it.
func describeRemoved(endpoint, lastError string) string {
	if endpoint == BrokerName {
		return fmt.Sprintf("%s; then send this dead letter again: last error: %q", errNoBroker, lastError)
	}
	return fmt.Sprintf("endpoint %s is not configured at this address any more: last error: %q", endpoint, lastError)
}

// countedName returns the name by which deliveries to an endpoint are counted. Endpoints that are not configured share one.
func (d *Deliverer) countedName(name string) string {
	if slices.ContainsFunc(d.Endpoints, func(e Endpoint) bool { return e.Name == name }) {
		return name
	}
	return metrics.Other
}

// Resend returns the delivery that sends the event of a dead letter again. A webhook gets the same event, and the subscribers of
// Triggers get the same request to an external system. A function gets a request to reconcile the object, because functions read the
// live object. An error says why the event cannot be sent.
func (d *Deliverer) Resend(l history.DeadLetter) (history.Delivery, error) {
	now := time.Now()
	broker := false
	for _, e := range d.Endpoints {
		if e.Name == l.Destination {
			return history.Delivery{Endpoint: e.party(), EventID: l.ID, Type: l.Type, Body: l.Data, Due: now, Created: now}, nil
		}
		broker = broker || e.Name == BrokerName
	}
	if l.Destination == BrokerName {
		return history.Delivery{}, errNoBroker
	}
	again := requestOf
	if events.IsChange(l.Type) || l.Type == events.TypeResync {
		again = reconcileRequest
	} else if !events.IsRequest(l.Type) {
		return history.Delivery{}, fmt.Errorf("no endpoint is called %q: configure it in handlers.webhook.endpoints, or let the sender of the event send it again", l.Destination)
	}
	if !broker {
		return history.Delivery{}, errNoBroker
	}
	request, err := again(l, now)
	if err != nil {
		return history.Delivery{}, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return history.Delivery{}, fmt.Errorf("encode event %s: %w", request.ID(), err)
	}
	return history.Delivery{Endpoint: BrokerName, EventID: request.ID(), Type: request.Type(), Body: string(body), Due: now, Created: now}, nil
}

// reconcileRequest returns a request to reconcile the object of a dead letter.
func reconcileRequest(l history.DeadLetter, now time.Time) (event.Event, error) {
	ref, err := objectOf(l)
	if err != nil {
		return event.Event{}, err
	}
	request := events.NewReconcileRequest(resendSource, ref, "", "")
	request.SetID(fmt.Sprintf("dead-letter-%d-%d", l.Sequence, now.UnixMilli()))
	return request, nil
}

// requestOf returns the request to an external system that a dead letter keeps. The attribute provider selects the Trigger of an IPAM.
func requestOf(l history.DeadLetter, now time.Time) (event.Event, error) {
	var about struct {
		UID      string `json:"uid"`
		Provider string `json:"provider"`
	}
	ref := inventory.RefOfSubject(l.Subject)
	if err := json.Unmarshal([]byte(l.Data), &about); err != nil || ref.Kind == "" {
		return event.Event{}, errors.New("its subject or its data is not that of a request: discard it")
	}
	e := event.New()
	e.SetID(l.ID)
	e.SetSource(l.Source)
	e.SetType(l.Type)
	e.SetTime(now)
	ref.Set(&e, about.UID)
	if about.Provider != "" {
		e.SetExtension("provider", about.Provider)
	}
	return e, e.SetData(event.ApplicationJSON, json.RawMessage(l.Data))
}

// objectOf returns the object that a dead letter is about: by its subject, or by its data for kinds that the gateway does not keep.
func objectOf(l history.DeadLetter) (events.Ref, error) {
	ref := inventory.RefOfSubject(l.Subject)
	if ref.Kind != "" {
		return ref, nil
	}
	var object struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal([]byte(l.Data), &object); err != nil || object.Kind == "" || object.APIVersion == "" {
		return ref, errors.New("its subject and its data name no object: change the object, or wait for resync, to reconcile it")
	}
	return events.Ref{APIVersion: object.APIVersion, Kind: object.Kind, Namespace: l.Namespace, Name: l.Name}, nil
}

package domainevents

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/history"
)

// ToHistory converts an event for the history. cause is the identifier of the event whose delivery led to it, or empty.
func ToHistory(e event.Event, namespace, cause string) history.Event {
	var about struct {
		UID     string `json:"uid"`
		Name    string `json:"name"`
		Cluster string `json:"cluster"`
	}
	// Other data describes no object.
	_ = json.Unmarshal(e.Data(), &about)
	h := history.Event{
		ID: e.ID(), Source: e.Source(), Type: e.Type(), Subject: e.Subject(), Time: e.Time(),
		Object: history.Object{Kind: extension(e, "kind"), Namespace: namespace, Name: extension(e, "name")},
		UID:    about.UID, Cluster: about.Cluster, Cause: cause, Data: Data(e),
	}
	if h.Name == "" {
		h.Name = about.Name
	}
	if h.Kind == "KubernetesCluster" {
		h.Cluster = h.Name
	}
	return h
}

// Data returns the data of an event as JSON in UTF-8.
func Data(e event.Event) json.RawMessage {
	if len(e.Data()) == 0 {
		return json.RawMessage("null")
	}
	if utf8.Valid(e.Data()) && json.Valid(e.Data()) {
		return e.Data()
	}
	quoted, err := json.Marshal(string(e.Data()))
	if err != nil {
		return json.RawMessage("null")
	}
	return quoted
}

// Restore converts an event of the history back.
func Restore(h history.Event) event.Event {
	e := event.New()
	e.SetID(h.ID)
	e.SetSource(h.Source)
	e.SetType(h.Type)
	e.SetSubject(h.Subject)
	e.SetTime(h.Time)
	if h.Source == Source {
		e.SetDataSchema(schemaOf(h.Type))
		if h.UID != "" {
			e.SetExtension("apiversion", apiVersion)
		}
	}
	for name, value := range map[string]string{"kind": h.Kind, "namespace": h.Namespace, "name": h.Name, "partitionkey": h.UID} {
		if value != "" {
			e.SetExtension(name, value)
		}
	}
	if string(h.Data) != "null" {
		// The history holds only JSON, which SetData accepts.
		_ = e.SetData(event.ApplicationJSON, h.Data)
	}
	return e
}

// apiVersion is the API version of the kinds with events.
const apiVersion = "vitistack.io/v1alpha1"

func schemaOf(eventType string) string { return "https://vitistack.io/schemas/" + eventType + ".json" }

func extension(e event.Event, name string) string {
	s, _ := e.Extensions()[name].(string)
	return s
}

// record writes a decision to the history, and shows and returns its new events.
func (p *Producer) record(ctx context.Context, s subject, known history.Known, v decision, cause string) ([]event.Event, error) {
	known.Object = history.Object{Kind: string(s.kind), Namespace: s.namespace, Name: s.name}
	r := history.Record{Known: &known, Forget: v.document == nil}
	if r.Forget && known.Version == 0 {
		return nil, nil
	}
	var err error
	if !r.Forget {
		if known.Document, err = json.Marshal(v.document); err != nil {
			return nil, fmt.Errorf("encode what is known of %s: %w", s.name, err)
		}
	}
	made := make([]event.Event, 0, len(v.events))
	for _, d := range v.events {
		e, err := p.event(s, d)
		if err != nil {
			return nil, err
		}
		made = append(made, e)
		r.Events = append(r.Events, ToHistory(e, s.namespace, cause))
		r.Deliveries = append(r.Deliveries, p.Deliveries(e, s.namespace, cause != "")...)
	}
	write := p.History.Write
	if len(made) == 0 && cause == "" {
		write = p.History.WriteLater
	}
	written, err := write(ctx, r)
	if err != nil {
		return nil, err
	}
	var recorded []event.Event
	for _, e := range made {
		for _, w := range written.Events {
			if w.ID == e.ID() {
				p.Show(e, s.namespace)
				recorded = append(recorded, e)
			}
		}
	}
	return recorded, nil
}

// event completes a draft.
func (p *Producer) event(s subject, d draft) (event.Event, error) {
	e := event.New()
	e.SetID(s.id + "." + d.suffix)
	e.SetSource(Source)
	e.SetType(d.eventType)
	e.SetTime(time.Now().UTC().Truncate(time.Microsecond))
	e.SetDataSchema(schemaOf(d.eventType))
	if s.kind == KindOperator {
		e.SetSubject(s.id)
		e.SetExtension("partitionkey", s.id)
	} else {
		ref := events.Ref{APIVersion: apiVersion, Kind: string(s.kind), Namespace: s.namespace, Name: s.name}
		ref.Set(&e, s.id)
	}
	if err := e.SetData(event.ApplicationJSON, d.data); err != nil {
		return e, fmt.Errorf("encode event %s: %w", e.ID(), err)
	}
	return e, nil
}

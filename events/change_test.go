package events_test

import (
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
)

func TestTypesOfChanges(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ change, added, deleted bool }{
		events.TypeRefAdd:    {change: true, added: true},
		events.TypeRefUpdate: {change: true},
		events.TypeRefDelete: {change: true, deleted: true},
		events.TypeAdd:       {change: true, added: true},
		events.TypeUpdate:    {change: true},
		events.TypeDelete:    {change: true, deleted: true},
		events.TypeResync:    {},
		// Every pod may send such a type, which must not become a label of a metric.
		"dev.knative.apiserver.other": {},
	}
	for eventType, want := range cases {
		if change, added, deleted := events.IsChange(eventType), events.IsAdd(eventType), events.IsDelete(eventType); change != want.change || added != want.added || deleted != want.deleted {
			t.Errorf("%s: change %t, add %t, delete %t, want %+v", eventType, change, added, deleted, want)
		}
	}
}

func TestCarried(t *testing.T) {
	t.Parallel()
	const object = `{"kind":"NetworkConfiguration","metadata":{"name":"vm","generation":2}}`
	cases := map[string]struct {
		reason, eventType, data string
		want                    bool
	}{
		"Update":    {reason: "Resource mode", eventType: events.TypeUpdate, data: object, want: true},
		"Delete":    {reason: "it has the last state of the object", eventType: events.TypeDelete, data: object, want: true},
		"Reference": {reason: "a reference looks like an object without a status", eventType: events.TypeRefUpdate, data: object},
		"Resync":    {reason: "a resync is about the live object", eventType: events.TypeResync, data: object},
		"Broken":    {reason: "the object is read instead", eventType: events.TypeUpdate, data: `{"metadata":`},
		"OtherForm": {reason: "the object is read instead", eventType: events.TypeUpdate, data: `{"metadata":{"generation":"two"}}`},
		"Empty":     {reason: "the object is read instead", eventType: events.TypeUpdate},
	}
	for name, tc := range cases {
		e := event.New()
		e.SetType(tc.eventType)
		if err := e.SetData(event.ApplicationJSON, []byte(tc.data)); err != nil {
			t.Fatal(err)
		}
		var got struct {
			Metadata struct{ Generation int64 }
		}
		if carried := events.ObjectFrom(e, &got); carried != tc.want || (carried && got.Metadata.Generation != 2) {
			t.Errorf("%s: %s: got %t, %+v", name, tc.reason, carried, got)
		}
	}
}

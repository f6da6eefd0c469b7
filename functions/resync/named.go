package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// namedObjects returns the objects that a request names, and none for a request to read all. Objects of a kind that
// is never due, and names that no object can have, are a permanent error.
func namedObjects(in event.Event) ([]events.DueObject, error) {
	var data events.ResyncRequested
	if len(in.Data()) > 0 {
		if err := in.DataAs(&data); err != nil {
			return nil, events.Permanent(fmt.Errorf("read event %s: %w", in.ID(), err))
		}
	}
	for _, o := range data.Objects {
		if problems := slices.Concat(content.IsPathSegmentName(o.Name), content.IsPathSegmentName(o.Namespace)); o.Name == "" || len(problems) > 0 || kindOf(o.Kind) == nil {
			return nil, events.Permanent(fmt.Errorf("read event %s: %q of kind %q in namespace %q can never be due: only the gateway sends %s", in.ID(), o.Name, o.Kind, o.Namespace, events.TypeResyncRequested))
		}
	}
	return data.Objects, nil
}

// kindOf returns the kind of a name, or nil.
func kindOf(name string) *kind {
	for i := range kinds {
		if kinds[i].name == name {
			return &kinds[i]
		}
	}
	return nil
}

// reconcileNamed sends an event for each object that a request names, if it still needs a reconcile. When the delivery has lasted as
// long as a slice, it requests the objects that are left. Nothing is recorded: the gateway names an object again while it is due.
func (f *function) reconcileNamed(ctx context.Context, r request) error {
	p := &round{function: f, record: record{round: r.round}, sliceStart: f.now()}
	for i, named := range r.named {
		if p.isOver(sliceLimit) {
			events.Report(ctx, "", fmt.Sprintf("Request %s has sent events for %d objects and continues at %s %s/%s", r.round, p.progress.Sent, named.Kind, named.Namespace, named.Name))
			return p.requestNamed(ctx, r.named[i:])
		}
		if err := p.sendNamed(ctx, named); err != nil {
			return err
		}
		p.handled = true
	}
	events.Report(ctx, "", fmt.Sprintf("Request %s has sent events for %d of %d objects", r.round, p.progress.Sent, len(r.named)))
	return nil
}

// sendNamed sends an event for an object if it exists and needs a reconcile. A MachineProvider gets one in any case: the gateway has
// counted its Machines, and create-vm counts them again.
func (p *round) sendNamed(ctx context.Context, named events.DueObject) error {
	k := kindOf(named.Kind)
	var got list[object]
	err := p.api.ListInto(ctx, k.resource, kube.Page{Namespace: named.Namespace, Name: named.Name, Limit: 1}, &got)
	if err != nil || len(got.Items) == 0 {
		return err
	}
	return p.sendIfDue(ctx, *k, got.Items[0], k.name == machineProvider)
}

// requestNamed sends the request for the objects that a delivery has left. Its id derives from that of the request and from their number.
func (p *round) requestNamed(ctx context.Context, left []events.DueObject) error {
	e := event.New()
	e.SetType(events.TypeResyncRequested)
	e.SetSource("/functions/" + name)
	e.SetID(p.round + "." + strconv.Itoa(len(left)))
	if err := e.SetData(event.ApplicationJSON, events.ResyncRequested{Objects: left}); err != nil {
		return fmt.Errorf("write event %s: %w", e.ID(), err)
	}
	_, err := p.post(ctx, e)
	return err
}

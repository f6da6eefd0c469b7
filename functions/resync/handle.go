package main

import (
	"context"
	"fmt"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

type function struct {
	lister lister
	sender sender
	now    func() time.Time
}

// lister reads pages of objects of all namespaces.
type lister interface {
	ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

// pageSize bounds the memory for one list.
const pageSize = 500

// handle looks through all kinds and sends one event for each object that is not
// settled. The ids of the events derive from the ping's, so that a ping that is
// delivered twice sends the same events again.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	sent := 0
	held := map[string]string{}
	for _, k := range kinds {
		err := f.each(ctx, k.resource, func(o object) error {
			if k.name == "IPAllocation" {
				held[o.Metadata.UID] = o.Status.Address
			}
			if settled(k, o, f.now()) {
				return nil
			}
			sent++
			return f.send(ctx, k, o, in)
		})
		if err != nil {
			return nil, err
		}
	}
	swept, err := f.sweep(ctx, in, held)
	if err != nil {
		return nil, err
	}
	events.Report(ctx, "", fmt.Sprintf("Sent %d objects and %d leases to be looked at", sent, swept))
	return nil, nil
}

// each calls do for every object of a resource, a page at a time.
func (f *function) each(ctx context.Context, resource schema.GroupVersionResource, do func(object) error) error {
	next := kube.Page{Limit: pageSize}
	for {
		var p page
		if err := f.lister.ListInto(ctx, resource, next, &p); err != nil {
			return err
		}
		for _, o := range p.Items {
			if err := do(o); err != nil {
				return err
			}
		}
		if next.Continue = p.Metadata.Continue; next.Continue == "" {
			return nil
		}
	}
}

func (f *function) send(ctx context.Context, k kind, o object, cause event.Event) error {
	ref := events.Ref{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name,
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name,
	}
	return f.sender.Send(ctx, events.LookAgain("/functions/"+name, ref, o.Metadata.UID, o.Metadata.ResourceVersion+"."+cause.ID()))
}

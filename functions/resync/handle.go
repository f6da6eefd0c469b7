package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
)

type function struct {
	api    api
	sender sender
	now    func() time.Time
	// namespace is the stack's.
	namespace string
}

// api reads pages of objects of all namespaces, and writes metadata and the ConfigMap orphans.
type api interface {
	orphans.API
	ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

// pageSize bounds the memory for one list.
const pageSize = 500

// handle looks through all kinds and sends one event for each object that needs a
// reconcile: in the full round that the PingSource asks for, objects that are Ready have
// their turn as well. The ids of the events derive from the ping's, so that a ping that is
// delivered twice sends the same events again.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	p := pass{function: f, cause: in, full: in.Type() == events.TypePing, machines: map[string]int{}, held: map[string]string{}, exists: map[string]bool{}, oldest: map[string]object{}, queued: map[string]bool{}}
	for _, k := range kinds {
		if err := f.each(ctx, k.resource, func(o object) error { return p.look(ctx, k, o) }); err != nil {
			return nil, err
		}
		if k.name == ipAllocation {
			if err := p.wakeQueues(ctx, k); err != nil {
				return nil, err
			}
		}
	}
	swept, err := p.sweep(ctx)
	if err != nil {
		return nil, err
	}
	if p.full {
		if err := p.checkOrphans(ctx); err != nil {
			return nil, err
		}
	}
	events.Report(ctx, "", fmt.Sprintf("Sent %d objects and %d leases to be looked at", p.sent, swept))
	return nil, nil
}

// pass is one look through all kinds.
type pass struct {
	*function
	cause event.Event
	// full is whether objects that are Ready have their turn.
	full bool
	sent int
	// machines counts the Machines of each MachineProvider.
	machines map[string]int
	// held are the addresses of allocations, by UID.
	held map[string]string
	// exists are the UIDs of all objects that may hold a Lease, and orphans the Leases of
	// others.
	exists  map[string]bool
	orphans []v1alpha1.Orphan
	// oldest are the allocations that have waited longest for an address, by pool,
	// and queued the NetworkConfigurations that wait for one.
	oldest map[string]object
	queued map[string]bool
}

// look sends an event for an object that is not settled. Of those that wait for an
// address of the same pool one is enough: it is served first, and wakes the next.
func (p *pass) look(ctx context.Context, k kind, o object) error {
	p.exists[o.Metadata.UID] = true
	if k.name == ipAllocation && o.Status.Phase != released {
		p.held[o.Metadata.UID] = o.Status.Address
	}
	if k.name == machine {
		p.machines[o.Status.Provider]++
	}
	miscounted := k.name == machineProvider && o.Status.MachineCount != p.machines[o.Metadata.Name]
	switch {
	case !miscounted && settled(k, o, p.now(), p.full):
		return nil
	case o.asked() || o.changed() || !o.exhausted():
		return p.send(ctx, k, o)
	case k.name == ipAllocation:
		p.queue(o)
		return nil
	case k.name == networkConfiguration && p.queued[o.Metadata.Namespace+"/"+o.Metadata.Name]:
		return nil
	default:
		return p.send(ctx, k, o)
	}
}

func (p *pass) queue(o object) {
	p.queued[o.Metadata.Namespace+"/"+o.Spec.NetworkConfigurationName] = true
	pool := o.Metadata.Namespace + "/" + o.Spec.NetworkNamespaceName + "/" + o.Spec.IPFamily
	first, ok := p.oldest[pool]
	if !ok || o.Metadata.CreationTimestamp.Before(&first.Metadata.CreationTimestamp) {
		p.oldest[pool] = o
	}
}

func (p *pass) wakeQueues(ctx context.Context, k kind) error {
	for _, pool := range slices.Sorted(maps.Keys(p.oldest)) {
		if err := p.send(ctx, k, p.oldest[pool]); err != nil {
			return err
		}
	}
	return nil
}

// send sends the event of an object. An annotation that asked for it is taken away
// then, so that it can ask again.
func (p *pass) send(ctx context.Context, k kind, o object) error {
	ref := events.Ref{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name,
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name,
	}
	p.sent++
	if err := p.sender.Send(ctx, p.event(ref, o.Metadata.UID, o.Metadata.ResourceVersion)); err != nil || !o.asked() {
		return err
	}
	obj := k.make()
	obj.SetNamespace(o.Metadata.Namespace)
	obj.SetName(o.Metadata.Name)
	err := p.api.Merge(ctx, obj, map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "annotations": map[string]any{v1alpha1.AnnotationReconcile: nil},
	}})
	if kube.NotFound(err) || kube.Conflict(err) {
		return nil
	}
	return err
}

func (p *pass) event(ref events.Ref, uid, version string) event.Event {
	return events.LookAgain("/functions/"+name, ref, uid, version+"."+p.cause.ID())
}

// each calls do for every object of a resource, a page at a time.
func (f *function) each(ctx context.Context, resource schema.GroupVersionResource, do func(object) error) error {
	next := kube.Page{Limit: pageSize}
	for {
		var p page
		if err := f.api.ListInto(ctx, resource, next, &p); err != nil {
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

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

// handle reads all kinds and sends one event for each object that needs a reconcile. The full
// round that the PingSource asks for includes objects that are Ready. The IDs of the events
// derive from that of the ping, so that a redelivered ping sends the same events again.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	p := round{function: f, cause: in, full: in.Type() == events.TypePing, machines: map[string]int{}, held: map[string]string{}, uids: map[string]bool{}, longestWaiting: map[string]object{}, queued: map[string]bool{}}
	for _, k := range kinds {
		if err := f.forEach(ctx, k.resource, func(o object) error { return p.inspect(ctx, k, o) }); err != nil {
			return nil, err
		}
		if k.name == ipAllocation {
			if err := p.sendQueued(ctx, k); err != nil {
				return nil, err
			}
		}
	}
	swept, err := p.sendUnusedLeases(ctx)
	if err != nil {
		return nil, err
	}
	if p.full {
		if err := p.checkOrphans(ctx); err != nil {
			return nil, err
		}
	}
	events.Report(ctx, "", fmt.Sprintf("Sent events for %d objects and %d Leases", p.sent, swept))
	return nil, nil
}

// round is one reading of all kinds.
type round struct {
	*function
	cause event.Event
	// full is whether the round includes objects that are Ready, and looks for orphans.
	full bool
	sent int
	// machines counts the Machines of each MachineProvider.
	machines map[string]int
	// held maps the UIDs of IPAllocations to their addresses.
	held map[string]string
	// uids are those of all objects that may hold a Lease, in a full round. orphans are the
	// Leases whose holder does not exist.
	uids    map[string]bool
	orphans []v1alpha1.Orphan
	// longestWaiting has, for each pool, the IPAllocation that has waited longest for an
	// address. queued are the NetworkConfigurations that wait for one.
	longestWaiting map[string]object
	queued         map[string]bool
}

// inspect sends an event for an object that needs a reconcile. Of the IPAllocations that wait
// for an address of the same pool, only the oldest gets one, because each that is served
// requeues the next.
func (p *round) inspect(ctx context.Context, k kind, o object) error {
	if p.full {
		p.uids[o.Metadata.UID] = true
	}
	if k.name == ipAllocation && o.Status.Phase != phaseReleased {
		p.held[o.Metadata.UID] = o.Status.Address
	}
	if k.name == machine {
		p.machines[o.Status.Provider]++
	}
	miscounted := k.name == machineProvider && o.Status.MachineCount != p.machines[o.Metadata.Name]
	switch {
	case !miscounted && needsNoReconcile(k, o, p.now(), p.full):
		return nil
	case o.isRequested() || o.isChanged() || !o.waitsForAddress():
		return p.send(ctx, k, o)
	case k.name == ipAllocation:
		p.queueForAddress(o)
		return nil
	case k.name == networkConfiguration && p.queued[o.Metadata.Namespace+"/"+o.Metadata.Name]:
		return nil
	default:
		return p.send(ctx, k, o)
	}
}

func (p *round) queueForAddress(o object) {
	p.queued[o.Metadata.Namespace+"/"+o.Spec.NetworkConfigurationName] = true
	pool := o.Metadata.Namespace + "/" + o.Spec.NetworkNamespaceName + "/" + o.Spec.IPFamily
	first, ok := p.longestWaiting[pool]
	if !ok || o.Metadata.CreationTimestamp.Before(&first.Metadata.CreationTimestamp) {
		p.longestWaiting[pool] = o
	}
}

func (p *round) sendQueued(ctx context.Context, k kind) error {
	for _, pool := range slices.Sorted(maps.Keys(p.longestWaiting)) {
		if err := p.send(ctx, k, p.longestWaiting[pool]); err != nil {
			return err
		}
	}
	return nil
}

// send sends the event of an object and removes the annotation that requested it, so that it
// can be requested again.
func (p *round) send(ctx context.Context, k kind, o object) error {
	ref := events.Ref{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name,
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name,
	}
	p.sent++
	if err := p.sender.Send(ctx, p.event(ref, o.Metadata.UID, o.Metadata.ResourceVersion)); err != nil || !o.isRequested() {
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

func (p *round) event(ref events.Ref, uid, version string) event.Event {
	return events.NewReconcileRequest("/functions/"+name, ref, uid, version+"."+p.cause.ID())
}

// forEach calls do for every object of a resource, a page at a time.
func (f *function) forEach(ctx context.Context, resource schema.GroupVersionResource, do func(object) error) error {
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

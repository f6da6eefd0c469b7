package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// api reads pages of objects of all namespaces and single objects, and writes metadata, the
// ConfigMap orphans, and the Leases of rounds.
type api interface {
	orphans.API
	ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error
	Create(ctx context.Context, obj kube.Object) error
	Update(ctx context.Context, obj kube.Object) error
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

const (
	// pageSize bounds the memory for one list.
	pageSize = 500
	// sliceDuration is the time after which a slice ends at the next page. sliceLimit is the
	// time after which it ends within a page. Both are below the timeout of a delivery.
	sliceDuration = 5 * time.Second
	sliceLimit    = 12 * time.Second
)

// handle runs one slice of a round: it reads pages of all kinds and sends one event for each
// object that needs a reconcile. The full round that the PingSource asks for includes objects
// that are Ready. A round with more pages than a slice has time for continues with the event
// that the slice sends. The IDs of all events derive from that of the round, so that a
// redelivered event sends the same events again.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	r, err := parseRequest(in)
	if err != nil {
		return nil, err
	}
	held, err := f.readRecord(ctx, r.full)
	if err != nil {
		return nil, err
	}
	p := &round{function: f, full: r.full, record: held, sliceStart: f.now()}
	switch decideTurn(r, held, p.sliceStart) {
	case start:
		p.record = record{round: r.round, started: p.sliceStart, lease: held.lease, progress: progress{Previous: held.previousStart()}}
	case ignore:
		events.Report(ctx, "", fmt.Sprintf("Nothing to do: slice %d of round %s had its turn, or round %q runs", r.slice, r.round, held.round))
		return nil, nil
	case wait:
		return nil, fmt.Errorf("wait until Lease %s/%s says that slice %d of round %s is next", f.namespace, leaseName(r.full), r.slice, r.round)
	case resume:
	}
	err = p.run(ctx, held.round != "")
	if errors.Is(err, errOvertaken) {
		events.Report(ctx, "", "Nothing to do: "+err.Error())
		return nil, nil
	}
	return nil, err
}

// previousStart returns when the round of a Lease without a round that runs has started.
func (r record) previousStart() (t metav1.Time) {
	if r.lease != nil {
		t.Time = r.started
	}
	return t
}

// round is a round during one of its slices.
type round struct {
	*function
	// full is whether the round includes objects that are Ready, and looks for orphans.
	full bool
	record
	// sliceStart is when the slice has started, and handled whether an object had its turn.
	sliceStart time.Time
	handled    bool
	// all has the IPAllocations by namespace, if this slice has read all. namespaceRead are those
	// of the namespace that was listed last.
	all           map[string]*allocations
	namespaceRead *allocations
}

// run runs a slice. isClaimed is whether the Lease names the round already.
func (p *round) run(ctx context.Context, isClaimed bool) error {
	first := p.progress
	complete, err := p.readSteps(ctx)
	if err != nil {
		return err
	}
	if complete {
		return p.complete(ctx, isClaimed)
	}
	next := p.progress
	next.Slice++
	if !isClaimed {
		p.progress = first
		if err := p.writeRecord(ctx, p.full, &p.record); err != nil {
			return err
		}
	}
	// The event comes before the Lease: if this delivery dies in between, the next one sends
	// the same event again, and the Lease lets only one of them have its turn.
	if err := p.sender.Send(ctx, continuation(p.full, p.round, next.Slice)); err != nil {
		return err
	}
	p.progress = next
	if err := p.writeRecord(ctx, p.full, &p.record); err != nil {
		return err
	}
	if p.full {
		reportProgress(p.record)
	}
	events.Report(ctx, "", fmt.Sprintf("Round %s has read %d objects in %d pages and continues at %s %s", p.round, next.Objects, next.Pages, next.Step, next.After))
	return nil
}

// complete ends a round. A full round reports orphans, and its Lease says when it has started,
// which decides which objects the next full round includes.
func (p *round) complete(ctx context.Context, isClaimed bool) error {
	var failed error
	if p.full {
		if failed = p.checkOrphans(ctx); failed != nil && !events.IsPermanent(failed) {
			return failed
		}
	}
	completed, id := p.now(), p.round
	p.round, p.progress.Step, p.progress.Orphans = "", "", nil
	if p.full || isClaimed {
		if err := p.writeRecord(ctx, p.full, &p.record); err != nil {
			return err
		}
	}
	if p.full {
		reportComplete(p.record, completed)
	}
	events.Report(ctx, "", fmt.Sprintf("Round %s has sent events for %d objects and %d Leases", id, p.progress.Sent, p.progress.Leases))
	return failed
}

// step is one list that a round reads.
type step struct {
	name string
	// run reads the list from the place where the round stopped. complete is whether it has
	// read the last page, otherwise the slice is over.
	run func(ctx context.Context, p *round) (complete bool, err error)
}

// steps are the kinds, and then the Leases of what they hold.
func steps() []step {
	var all []step
	for _, k := range kinds {
		all = append(all, step{k.name, func(ctx context.Context, p *round) (bool, error) {
			if k.name == ipAllocation {
				return p.readAllocations(ctx, k)
			}
			return forEach(ctx, p, k.resource, kube.Page{Limit: pageSize}, func(o object) error { return p.inspect(ctx, k, o) })
		}})
	}
	return append(all, leaseSteps...)
}

// stepIndex returns the index of a step, or -1. The empty name is the first step.
func stepIndex(name string) int {
	for i, s := range steps() {
		if s.name == name || name == "" {
			return i
		}
	}
	return -1
}

// readSteps reads lists until the slice is over. It reports whether it has read all.
func (p *round) readSteps(ctx context.Context) (complete bool, err error) {
	all := steps()
	for i := stepIndex(p.progress.Step); i < len(all); i++ {
		p.progress.Step = all[i].name
		complete, err := all[i].run(ctx, p)
		if err != nil || !complete {
			return false, err
		}
		if all[i].name == machineProvider {
			p.progress.Machines = nil
		}
		if i+1 < len(all) && p.isOver(sliceDuration) {
			p.progress.Step = all[i+1].name
			return false, nil
		}
	}
	return true, nil
}

// isOver reports whether a slice has lasted for a time. A slice is not over before an object
// had its turn, so that each slice makes progress.
func (p *round) isOver(limit time.Duration) bool {
	return p.handled && p.now().Sub(p.sliceStart) >= limit
}

// keyed is an object with a key, which is its place in a list of all namespaces.
type keyed interface{ key() string }

// list is one page of a list.
type list[T keyed] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// forEach calls do for the objects of a list after the place where the round stopped, in the
// order of their keys, until the slice is over. It reports whether it has read the last page.
func forEach[T keyed](ctx context.Context, p *round, resource schema.GroupVersionResource, page kube.Page, do func(T) error) (complete bool, err error) {
	at := &p.progress
	skip := at.After
	for {
		var got list[T]
		page.Continue = at.Continue
		err := p.api.ListInto(ctx, resource, page, &got)
		if next, expired := kube.ContinueExpired(err); expired && next != at.Continue {
			at.Continue, skip = next, at.After
			continue
		}
		if err != nil {
			return false, err
		}
		at.Pages++
		for _, item := range got.Items {
			key := item.key()
			if skip != "" && key <= skip {
				continue
			}
			if p.isOver(sliceLimit) {
				return false, nil
			}
			if err := do(item); err != nil {
				return false, err
			}
			at.After, p.handled = key, true
			at.Objects++
		}
		if at.Continue = got.Metadata.Continue; at.Continue == "" {
			at.After = ""
			return true, nil
		}
		if p.isOver(sliceDuration) {
			return false, nil
		}
	}
}

// inspect sends an event for an object that needs a reconcile. Of the IPAllocations that wait
// for an address of the same pool, only the oldest gets one, because each that is served
// requeues the next.
func (p *round) inspect(ctx context.Context, k kind, o object) error {
	if k.name == machine {
		if p.progress.Machines == nil {
			p.progress.Machines = map[string]int{}
		}
		p.progress.Machines[o.Status.Provider]++
	}
	miscounted := k.name == machineProvider && o.Status.MachineCount != p.progress.Machines[o.Metadata.Name]
	if !miscounted && needsNoReconcile(k, o, p.now(), p.window()) {
		return nil
	}
	if o.isQueued() && (k.name == ipAllocation || k.name == networkConfiguration) {
		a, err := p.allocationsOf(ctx, o.Metadata.Namespace)
		if err != nil || k.name == ipAllocation && a.longestWaiting[o.pool()].Metadata.UID != o.Metadata.UID || k.name == networkConfiguration && a.queued[o.Metadata.Name] {
			return err
		}
	}
	return p.send(ctx, k, o)
}

// window returns the time whose turns a full round takes, and nil for another round.
func (p *round) window() *window {
	if !p.full {
		return nil
	}
	return &window{previous: p.progress.Previous.Time, start: p.started}
}

// send sends the event of an object and removes the annotation that requested it, so that it
// can be requested again.
func (p *round) send(ctx context.Context, k kind, o object) error {
	ref := events.Ref{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name,
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name,
	}
	p.progress.Sent++
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
	return events.NewReconcileRequest("/functions/"+name, ref, uid, version+"."+p.round)
}

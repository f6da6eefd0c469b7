package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events"
)

type function struct {
	api    api
	sender sender
	now    func() time.Time
	// namespace is the stack's.
	namespace string
	// grace is how long the event of an object's last write may be in transit.
	grace time.Duration
}

const (
	// pageSize bounds the memory for one list.
	pageSize = 500
	// sliceDuration is the time after which a slice ends at the next page. sliceLimit is the
	// time after which it ends within a page. With an event that the Broker does not answer, and the
	// one that continues the round, a slice stays below the timeout of a delivery, 30 seconds.
	sliceDuration = 5 * time.Second
	sliceLimit    = 8 * time.Second
)

// handle sends an event for each object that a request names and that still needs a reconcile. Otherwise it
// runs one slice of a round: it reads pages of all kinds and sends one event for each
// object that needs a reconcile. The full round that the PingSource asks for includes objects
// that are Ready. A round with more pages than a slice has time for continues with the event
// that the slice sends. The IDs of all events derive from that of the round, so that a
// redelivered event sends the same events again.
func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	r, err := parseRequest(in, f.namespace)
	if err != nil {
		return nil, err
	}
	if len(r.named) > 0 {
		return nil, f.reconcileNamed(ctx, r)
	}
	held, err := f.readRecord(ctx, r.full)
	if err != nil {
		return nil, err
	}
	p := &round{function: f, full: r.full, record: held, sliceStart: f.now()}
	switch decideSlice(r, held, p.sliceStart) {
	case start:
		p.record = record{round: r.round, started: p.sliceStart, lease: held.lease, progress: progress{Previous: held.previousStart()}}
	case ignore:
		events.Report(ctx, "", fmt.Sprintf("Nothing to do: slice %d of round %s is complete, or round %q runs", r.slice, r.round, held.round))
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
	// sliceStart is when the slice has started, and handled whether it has handled an object.
	sliceStart time.Time
	handled    bool
	// all has the IPAllocations by namespace, if this slice has read all. namespaceRead are those
	// of the namespace that was listed last.
	all           map[string]*allocations
	namespaceRead *allocations
	// leasedRead are the addresses with a Lease of the namespace that was listed last.
	leasedRead *leasedAddresses
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
	// the same event again, and the Lease lets only one of them run.
	if _, err := p.post(ctx, continuation(p.full, p.round, next.Slice)); err != nil {
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

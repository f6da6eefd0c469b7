package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// Leases name the round that runs, and its progress. Requested rounds have a Lease of their
// own, so that they run between the slices of a full round.
const (
	leaseFull      = "resync"
	leaseRequested = "resync-requested"
	// leaseDuration is the time without progress after which another event continues a round.
	leaseDuration      = time.Minute
	annotationProgress = "vitistack.io/resync-progress"
)

// Attributes of the event that continues a round. Its subject is the name of the round's Lease.
const (
	attributeRound = "round"
	attributeSlice = "slice"
)

// request is what an event requests: the first slice of a round, which is 0, a later one, or the objects that it names.
type request struct {
	full  bool
	round string
	slice int
	named []events.DueObject
}

// parseRequest reads the request out of an event. The ping of another PingSource than the one of resync in the namespace of the stack, another event
// that no sender has for resync, an invalid continuation, and data that cannot be read are permanent errors.
func parseRequest(in event.Event, namespace string) (request, error) {
	switch {
	case in.Type() == events.TypeResyncContinued:
		return parseContinuation(in)
	case in.Type() == events.TypeResyncRequested:
		named, err := namedObjects(in)
		return request{round: in.ID(), named: named}, err
	case in.Type() == events.TypePing && in.Source() == "/apis/v1/namespaces/"+namespace+"/pingsources/"+name:
		return request{full: true, round: in.ID()}, nil
	default:
		return request{}, events.Permanent(fmt.Errorf("handle event %s of type %s from %s: %s has nothing to do for this event: correct the filter of its Trigger", in.ID(), in.Type(), in.Source(), name))
	}
}

// parseContinuation reads the request out of the event that continues a round.
func parseContinuation(in event.Event) (request, error) {
	round, _ := types.Format(in.Extensions()[attributeRound])
	text, _ := types.Format(in.Extensions()[attributeSlice])
	slice, err := strconv.Atoi(text)
	if known := in.Subject() == leaseFull || in.Subject() == leaseRequested; err != nil || slice < 1 || round == "" || !known {
		return request{}, events.Permanent(fmt.Errorf("event %s names no slice of a round: only resync itself sends %s", in.ID(), events.TypeResyncContinued))
	}
	return request{full: in.Subject() == leaseFull, round: round, slice: slice}, nil
}

// continuation is the event that continues a round with a slice. Its id derives from both.
func continuation(full bool, round string, slice int) event.Event {
	e := event.New()
	e.SetType(events.TypeResyncContinued)
	e.SetSource("/functions/" + name)
	e.SetSubject(leaseName(full))
	e.SetID(fmt.Sprintf("%s.%s.%d", leaseName(full), round, slice))
	e.SetExtension(attributeRound, round)
	e.SetExtension(attributeSlice, strconv.Itoa(slice))
	e.SetExtension("partitionkey", leaseName(full))
	return e
}

func leaseName(full bool) string {
	if full {
		return leaseFull
	}
	return leaseRequested
}

// progress is the place at which the next slice of a round starts, and the bounded state that
// slices share.
type progress struct {
	Slice int `json:"slice"`
	// Previous is the start of the full round before this one.
	Previous metav1.Time `json:"previous,omitzero"`
	// Step is the name of the list that is read. Continue is the token of its next page, and
	// After the key of the last object that was handled.
	Step     string `json:"step,omitempty"`
	Continue string `json:"continue,omitempty"`
	After    string `json:"after,omitempty"`
	// Machines counts the Machines of each MachineProvider, until the MachineProviders are
	// handled.
	Machines map[string]int `json:"machines,omitempty"`
	// Orphans are Leases whose holder does not exist, at most orphans.Most.
	Orphans []v1alpha1.Orphan `json:"orphans,omitempty"`
	// Allocated counts the IPAllocations that have an address, and Leased those whose Lease of that address the round has read.
	Allocated int `json:"allocated,omitempty"`
	Leased    int `json:"leased,omitempty"`
	Pages     int `json:"pages"`
	Objects   int `json:"objects"`
	// Sent and Leases count the events that were sent for objects and for unused Leases.
	Sent   int `json:"sent"`
	Leases int `json:"leases"`
}

// record is the content of the Lease of a round. Its zero value is that of a Lease that does
// not exist.
type record struct {
	// round is the id of the round that runs, or empty.
	round            string
	started, renewed time.Time
	progress         progress
	lease            *coordinationv1.Lease
}

// sliceAction is what resync does with an event.
type sliceAction int

const (
	// start begins a round.
	start sliceAction = iota
	// resume continues the round of the Lease with its next slice.
	resume
	// ignore does nothing, because the slice is complete, or another round runs.
	ignore
	// wait retries later, because the Lease does not name the slice as the next one yet.
	wait
)

// decideSlice decides what resync does with an event. A slice may run until the Lease names the next
// one. A request for a round continues the round of the Lease instead if that makes no progress.
func decideSlice(r request, held record, now time.Time) sliceAction {
	switch {
	case held.round == "" && r.slice == 0:
		return start
	case held.round == "":
		return ignore
	case held.round != r.round && r.slice == 0 && now.Sub(held.renewed) >= leaseDuration:
		return resume
	case held.round != r.round || r.slice < held.progress.Slice:
		return ignore
	case r.slice > held.progress.Slice:
		return wait
	default:
		return resume
	}
}

// readRecord reads the Lease of a round. Progress that cannot be read, or names an unknown step,
// starts at the first list again.
func (f *function) readRecord(ctx context.Context, full bool) (record, error) {
	l := &coordinationv1.Lease{}
	err := f.api.Get(ctx, f.namespace, leaseName(full), l)
	if kube.NotFound(err) {
		return record{}, nil
	}
	if err != nil {
		return record{}, err
	}
	r := record{lease: l}
	if l.Spec.HolderIdentity != nil {
		r.round = *l.Spec.HolderIdentity
	}
	if l.Spec.AcquireTime != nil {
		r.started = l.Spec.AcquireTime.Time
	}
	if l.Spec.RenewTime != nil {
		r.renewed = l.Spec.RenewTime.Time
	}
	if err := json.Unmarshal([]byte(l.Annotations[annotationProgress]), &r.progress); err != nil || stepIndex(r.progress.Step) < 0 {
		r.progress = progress{Slice: r.progress.Slice, Previous: r.progress.Previous}
	}
	return r, nil
}

// errOvertaken is the error of a write to a Lease that another delivery has written.
var errOvertaken = errors.New("another delivery has continued the round")

// writeRecord writes the Lease of a round, on the condition that it has not been written since
// it was read. Otherwise it returns errOvertaken.
func (f *function) writeRecord(ctx context.Context, full bool, r *record) error {
	text, err := json.Marshal(r.progress)
	if err != nil {
		return fmt.Errorf("write Lease %s/%s: %w", f.namespace, leaseName(full), err)
	}
	r.renewed = f.now()
	seconds, started, renewed := int32(leaseDuration/time.Second), metav1.NewMicroTime(r.started), metav1.NewMicroTime(r.renewed)
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: leaseName(full)}}
	if r.lease != nil {
		l = r.lease.DeepCopy()
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	if full {
		l.Labels = map[string]string{v1alpha1.LabelHeartbeat: name} // the gateway expects it to be renewed
	}
	l.Annotations[annotationProgress] = string(text)
	l.Spec.AcquireTime, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = &started, &renewed, &seconds
	if l.Spec.HolderIdentity = nil; r.round != "" {
		l.Spec.HolderIdentity = &r.round
	}
	if r.lease == nil {
		err = f.api.Create(ctx, l)
	} else {
		err = f.api.Update(ctx, l)
	}
	if kube.AlreadyExists(err) || kube.Conflict(err) {
		return errOvertaken
	}
	if err == nil {
		r.lease = l
	}
	return err
}

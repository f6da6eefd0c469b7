package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/functions/internal/coalesce"
	"github.com/vitistack/stack/functions/internal/gatewaysignature"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/external"
)

type function struct {
	kube *kube.Client
	// providers are those of the registry. Every other name is an external IPAM, to which
	// sender sends events.
	providers map[string]provider.Interface
	sender    external.Sender
	now       func() time.Time
	// datacenters share no bridge with any other data centre.
	datacenters plan.Datacenters
	// optionalPools is whether a namespace that may use no NetworkPool may have any network.
	optionalPools bool
	// namespace is the stack's. sharedNetBox is whether another installation of the stack
	// uses the same NetBox.
	namespace    string
	sharedNetBox bool
	// reporter publishes whether the servers of providers answer.
	reporter *backendhealth.Reporter
	// pause is how long a delivery waits for more changes before it counts again.
	pause time.Duration
	// counts merges deliveries that count the networks of a namespace at the same time.
	counts   coalesce.Calls[error]
	recounts recounts
}

const kindNetwork = "NetworkNamespace"

// reconcileOptions says how much work a delivery does.
type reconcileOptions struct {
	// full is whether a network that is Ready is checked as well, because events may have
	// been lost.
	full bool
	// answer is the answer of an external IPAM, or nil.
	answer *external.Answer
	// retry is whether the segment is requested before nextCheckTime, because what it has waited for may be over.
	retry bool
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	if in.Type() == events.TypeNetworkProvisioned || in.Type() == events.TypeNetworkFailed {
		if err := gatewaysignature.Verify(ctx, f.kube, in); err != nil {
			return nil, err
		}
		return f.handleAnswer(ctx, in)
	}
	ref, err := events.RefOf(in)
	switch {
	case err != nil:
		return nil, err
	case orphans.IsRef(ref):
		return nil, cmp.Or(f.checkHealth(ctx), f.reportOrphans(ctx))
	case ref.Kind == kindPool:
		return nil, kube.OnConflict(func() error { return f.admission().recheckAll(ctx) })
	case ref.Kind == kindNetwork:
		if network.IsUsageEvent(in) || f.isProvisionedChange(in) {
			return nil, nil
		}
		o := reconcileOptions{full: in.Type() == events.TypeResync}
		return nil, kube.OnConflict(func() error { return f.reconcileNetwork(ctx, ref.Namespace, ref.Name, o) })
	case isCountedByAllocations(in, ref.Kind):
		return nil, nil
	case slices.Contains(userKinds, ref.Kind):
		return nil, f.reconcileUsers(ctx, ref.Namespace, events.IsDelete(in.Type()))
	default:
		return nil, events.UnexpectedEvent(ref, name)
	}
}

// isProvisionedChange reports whether an event carries a network that has its segment, so that only a full reconcile has something
// to do. The deletion of a network gives its segment to others.
func (f *function) isProvisionedChange(in event.Event) bool {
	nn := v1alpha2.NetworkNamespace{}
	return !events.IsDelete(in.Type()) && events.ObjectFrom(in, &nn) && decideStep(&nn, false, f.now()) == stepCheck
}

// reconcileNetwork takes one NetworkNamespace a step further. If the network no longer
// exists, the networks that wait for its segment are reconciled instead.
func (f *function) reconcileNetwork(ctx context.Context, namespace, name string, o reconcileOptions) error {
	nn := &v1alpha2.NetworkNamespace{}
	if err := f.kube.Get(ctx, namespace, name, nn); kube.NotFound(err) {
		return f.reconcileOverlapping(ctx)
	} else if err != nil {
		return err
	}
	if v1alpha1.IsPaused(nn) {
		return nil
	}
	if !isAnswerFor(nn, o.answer) {
		o.answer = nil
	}
	switch decideStep(nn, o.answer != nil || o.retry, f.now()) {
	case stepDelete:
		return f.deleteNetwork(ctx, nn)
	case stepCheck:
		return f.checkNetwork(ctx, nn, o)
	case stepWait:
		return f.redeliverBefore(nextCheck(nn))
	default:
		return f.requestSegment(ctx, nn, o.answer)
	}
}

// step is what a delivery does for a network.
type step int

const (
	stepDelete step = iota
	stepCheck
	stepWait
	stepRequest
)

// decideStep returns what a delivery does for a network:
//
//	network                                        answer  step
//	being deleted                                  any     delete
//	provisioned, vitistack.io/reconcile is absent  none    check
//	before nextCheckTime of its generation         none    wait
//	otherwise                                      any     request
func decideStep(nn *v1alpha2.NetworkNamespace, answered bool, now time.Time) step {
	switch {
	case nn.DeletionTimestamp != nil:
		return stepDelete
	case answered || kube.ReconcileRequested(nn):
		return stepRequest
	case isProvisioned(nn):
		return stepCheck
	case now.Before(nextCheck(nn)) && nn.Status.ObservedGeneration == nn.Generation:
		return stepWait
	default:
		return stepRequest
	}
}

// checkNetwork checks a network that has its segment, if events may have been lost.
func (f *function) checkNetwork(ctx context.Context, nn *v1alpha2.NetworkNamespace, o reconcileOptions) error {
	if !o.full {
		return nil
	}
	if err := f.usage().updateCounts(ctx, nn); err != nil {
		return err
	}
	if excluded, err := f.admission().recheck(ctx, nn); excluded || err != nil {
		return err
	}
	return f.compareWithProvider(ctx, nn)
}

// requestSegment gets the segment of a network from its provider, claims it, and writes the
// result into the status. The answer of an external IPAM is checked in this order:
//
//	external.ReadAnswer   its form, and whether machines can be in the segment
//	handleAnswer          the provider that it comes from was asked
//	isAnswerFor           the spec still names that provider
//	plan.CheckUsable      the segment is what the spec requests, or checkHeldSegment: it is the one that the network has
//	checkPools            a NetworkPool allows it
//	claims.claim          it overlaps no other network
func (f *function) requestSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace, answer *external.Answer) error {
	pools, err := network.Pools(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil {
		return err
	}
	from, err := f.prepareRequest(ctx, nn, pools)
	if err == nil && answer == nil {
		err = f.lockRequest(ctx, nn, from)
	}
	if err != nil {
		return err
	}
	seg, err := f.requestOrFindSegment(ctx, nn, from, answer)
	known := plan.RequestedSegment(nn)
	if err == nil {
		known = plan.ProvidedSegment(nn, seg)
		err = checkPools(pools, nn, known)
		seg.ExclusiveVLAN = pools.HasExclusiveVLAN(known)
	}
	if err == nil && !plan.HoldsSegment(nn) {
		err = f.claims().claim(ctx, nn, seg)
	}
	if err != nil && !errors.As(err, new(reconcile.UserError)) && !errors.As(err, new(provider.Error)) {
		return f.releaseIfDeleted(ctx, nn, from, fmt.Errorf("provide network %s/%s: %w", nn.Namespace, nn.Name, err))
	}
	before := nn.DeepCopy()
	outcome := setSegmentResult(nn, seg, err, f.now())
	if isReady(nn) {
		if err := f.usage().setCounts(ctx, nn); err != nil {
			return err
		}
	}
	if _, err := reconcile.PatchStatus(ctx, f.kube, before, nn, nn.Status.Phase, outcome); err != nil {
		return f.releaseIfDeleted(ctx, nn, from, err)
	}
	if err := f.endRequest(ctx, nn); err != nil {
		return err
	}
	if err := f.admission().retryIfAdmitted(ctx, nn, known); err != nil {
		return err
	}
	return f.redeliverBefore(nextCheck(nn))
}

// redeliverWindow is how long the Broker redelivers an event. Resync delivers what is due
// later.
const redeliverWindow = 15 * time.Second

// errRedeliver has the Broker deliver the event again in a moment.
var errRedeliver = errors.New("it is too early to ask the provider again")

// redeliverBefore returns errRedeliver if a time is soon.
func (f *function) redeliverBefore(next time.Time) error {
	if now := f.now(); next.After(now) && next.Sub(now) <= redeliverWindow {
		return errRedeliver
	}
	return nil
}

// reconcileOverlapping reconciles the networks that wait for a segment of another network.
func (f *function) reconcileOverlapping(ctx context.Context) error {
	waiting, err := f.claims().overlapping(ctx)
	if err != nil {
		return err
	}
	for _, nn := range waiting {
		if err := kube.OnConflict(func() error { return f.reconcileNetwork(ctx, nn.Namespace, nn.Name, reconcileOptions{retry: true}) }); err != nil {
			return err
		}
	}
	return nil
}

// reconcileUsers counts the addresses in the networks of a namespace after an object has
// got or released some, and continues deletions that waited for a deleted object. Changes
// at the same time are counted once. If many deliveries wait to count again, this one leaves its
// networks to them.
func (f *function) reconcileUsers(ctx context.Context, namespace string, deleted bool) error {
	var counted []*v1alpha2.NetworkNamespace
	began := f.now()
	err := f.counts.Do(ctx, fmt.Sprint(namespace, deleted), func(ctx context.Context) (err error) {
		counted, err = f.countNetworks(ctx, namespace, deleted)
		return err
	})
	if len(counted) == 0 || !f.recounts.join(counted) {
		return err
	}
	defer f.recounts.leave()
	pause := max(f.pause, min(pauseFactor*f.now().Sub(began), maxPause))
	return errors.Join(err, f.usage().countAgain(ctx, counted, pause))
}

// countNetworks counts the addresses in the networks of a namespace. It returns the networks that
// have to be counted again after a pause, because their counts have changed.
func (f *function) countNetworks(ctx context.Context, namespace string, deleted bool) (counted []*v1alpha2.NetworkNamespace, err error) {
	list := &v1alpha2.NetworkNamespaceList{}
	if err := f.kube.List(ctx, namespace, "", list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		nn := &list.Items[i]
		changed := false
		switch {
		case v1alpha1.IsPaused(nn):
		case nn.DeletionTimestamp != nil && deleted:
			err = kube.OnConflict(func() error { return f.reconcileNetwork(ctx, nn.Namespace, nn.Name, reconcileOptions{}) })
		case nn.DeletionTimestamp == nil && isReady(nn) && nn.Status.NextCheckTime == nil:
			changed, err = f.usage().beginCount(ctx, nn)
		}
		if err != nil {
			return counted, err
		}
		if changed {
			counted = append(counted, nn)
		}
	}
	return counted, nil
}

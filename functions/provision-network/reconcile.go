package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/merge"
	"github.com/vitistack/stack/functions/internal/networkpool"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/internal/signature"
)

// source is where segments come from. There is one file for each.
type source interface {
	// Provide returns the segment of nn, which it makes at the first call; every
	// later call for the same UID returns the same segment. It returns refused where
	// the owner of the network has to change its spec, and fault where the source
	// gives none now.
	Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error)
	// Release gives the segment of nn back. It is no error if there is none, and a
	// fault while it is being given back, or cannot be.
	Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error
}

type function struct {
	kube    *kube.Client
	sources map[string]source
	sender  sender
	now     func() time.Time
	// datacenters are those that have no bridge in common with another one.
	datacenters map[v1alpha2.Identifier]bool
	// optionalPools is whether namespaces that may use no NetworkPool are allowed everything.
	optionalPools bool
	// namespace is the stack's, and shared is whether another installation of the stack uses
	// the same NetBox.
	namespace string
	shared    bool
	// pause is how long to wait for more to happen before addresses are counted.
	pause time.Duration
	// looks are those at the users of a namespace's networks.
	looks merge.Calls[error]
	// waiting is the number of deliveries that wait to count again.
	waiting atomic.Int64
}

const (
	kindNetwork = "NetworkNamespace"
	// asking is the time that a delivery has.
	asking = 25 * time.Second
)

// look is how to look at a network.
type look struct {
	// again is whether it may have been missed that something happened.
	again bool
	// said is what an external IPAM answers.
	said *answer
}

func (f *function) handle(ctx context.Context, in event.Event) (*event.Event, error) {
	if in.Type() == events.TypeNetworkProvisioned || in.Type() == events.TypeNetworkFailed {
		if err := signature.Verify(ctx, f.kube, in); err != nil {
			return nil, err
		}
		return f.answered(ctx, in)
	}
	ref, err := events.RefOf(in)
	switch {
	case err != nil:
		return nil, err
	case orphans.IsRef(ref):
		return nil, f.checkOrphans(ctx)
	case ref.Kind == kindPool:
		return nil, kube.OnConflict(func() error { return f.poolsChanged(ctx) })
	case ref.Kind == kindNetwork:
		how := look{again: in.Type() == events.TypeResync}
		return nil, kube.OnConflict(func() error { return f.settle(ctx, ref.Namespace, ref.Name, how) })
	case countedByAllocations(in, ref.Kind):
		return nil, nil
	default:
		return nil, f.usersChanged(ctx, ref.Namespace, events.IsDelete(in.Type()))
	}
}

// settle brings one NetworkNamespace a step further.
func (f *function) settle(ctx context.Context, namespace, name string, how look) error {
	nn := &v1alpha2.NetworkNamespace{}
	err := f.kube.Get(ctx, namespace, name, nn)
	switch {
	case kube.NotFound(err):
		return f.handOver(ctx)
	case err != nil:
		return err
	case nn.DeletionTimestamp != nil:
		return f.release(ctx, nn)
	case how.said == nil && provided(nn) && !kube.AskedFor(nn):
		return f.keep(ctx, nn, how)
	}
	if until := restsUntil(nn, f.now()); how.said == nil && !until.IsZero() {
		return f.later(until)
	}
	return f.ask(ctx, nn, how)
}

// keep looks after a network that has what it wants.
func (f *function) keep(ctx context.Context, nn *v1alpha2.NetworkNamespace, how look) error {
	if !how.again {
		return nil
	}
	if err := f.count(ctx, nn); err != nil {
		return err
	}
	if left, err := f.recheckPool(ctx, nn); left || err != nil {
		return err
	}
	return f.recheck(ctx, nn)
}

// ask gets the segment of a network, claims it, and writes down what came of it.
func (f *function) ask(ctx context.Context, nn *v1alpha2.NetworkNamespace, how look) error {
	pools, err := networkpool.Of(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil {
		return err
	}
	from, err := f.begin(ctx, nn, pools)
	if err == nil && how.said == nil {
		err = f.reserve(ctx, nn, from)
	}
	if err != nil {
		return err
	}
	seg, err := f.provide(ctx, nn, from, how)
	known := requestedSegment(nn)
	if err == nil {
		known = provisionedSegment(nn, seg)
		err = inPool(pools, nn, known)
		seg.ownVLAN = known.Provider == v1alpha2.ProviderManual && !pools.ShareVLANs(known)
	}
	if err == nil && !holds(nn) {
		err = f.claim(ctx, nn, seg)
	}
	if err != nil && !errors.As(err, new(refused)) && !errors.As(err, new(fault)) {
		return f.overtaken(ctx, nn, from, fmt.Errorf("provide network %s/%s: %w", nn.Namespace, nn.Name, err))
	}
	before := nn.DeepCopy()
	told := decide(nn, seg, err, f.now())
	if isReady(nn) {
		if err := f.summarize(ctx, nn); err != nil {
			return err
		}
	}
	if err := f.write(ctx, before, nn, told); err != nil {
		return f.overtaken(ctx, nn, from, err)
	}
	if err := f.endMissedWait(ctx, nn, known); err != nil {
		return err
	}
	return f.later(nextCheck(nn))
}

// errEarly says that a network has to be looked at again in a moment, for which the
// broker delivers again.
var errEarly = errors.New("it is too early to ask the source again")

// later asks for a redelivery where the time to look again is near. Resync looks
// at what is due later.
func (f *function) later(until time.Time) error {
	if now := f.now(); until.After(now) && until.Sub(now) <= soon {
		return errEarly
	}
	return nil
}

// begin notes on a network who is asked for its segment, before that is asked, so
// that the same one is asked to take it back. Who asked for another look is
// answered by taking the annotation away. It returns the source to ask, which is absent for a
// request that no NetworkPool allows.
func (f *function) begin(ctx context.Context, nn *v1alpha2.NetworkNamespace, pools networkpool.Pools) (source, error) {
	provider, _ := providerOf(nn.Spec)
	from := f.source(provider)
	if why := inPool(pools, nn, requestedSegment(nn)); why != nil && !holds(nn) {
		from = absent{why}
	}
	before := nn.DeepCopy()
	kube.AddFinalizer(nn, v1alpha1.FinalizerNetworkNamespace)
	delete(nn.Annotations, v1alpha1.AnnotationReconcile)
	if asked := nn.Annotations[v1alpha1.AnnotationProvider]; asked != "" && asked != provider {
		if isReady(nn) {
			from = absent{final("ProviderChanged", "provider %s has provided the segment: set spec.networkProvisioning.provider back to it, or delete this network and create it again", asked)}
		} else if err := f.source(asked).Release(ctx, nn); err != nil {
			from = absent{final("ProviderChanged", "provider %s has been asked for a segment, and has to take it back first: %s", asked, err)}
		} else {
			delete(nn.Annotations, v1alpha1.AnnotationProvider)
		}
	}
	if _, isAbsent := from.(absent); !isAbsent {
		if nn.Annotations == nil {
			nn.Annotations = map[string]string{}
		}
		nn.Annotations[v1alpha1.AnnotationProvider] = provider
	}
	_, err := f.kube.Patch(ctx, before, nn)
	return from, err
}

// reserve notes on a network that a server is being asked for its segment, so that
// no other delivery asks at the same time. The note lapses when the delivery that
// wrote it must have ended.
func (f *function) reserve(ctx context.Context, nn *v1alpha2.NetworkNamespace, from source) error {
	switch from.(type) {
	case nam, netbox:
	default:
		return nil
	}
	if isReady(nn) {
		return nil
	}
	before := nn.DeepCopy()
	nn.Status.ObservedGeneration, nn.Status.NextCheckTime = nn.Generation, at(f.now(), asking)
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.ObservedGeneration != nn.Generation {
		provider, _ := providerOf(nn.Spec)
		kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reasonAsking, "asks "+provider+" for the segment")
	}
	_, err := f.kube.PatchStatus(ctx, before, nn)
	return err
}

// source is the one of a provider. What has none of its own is asked by events.
func (f *function) source(provider string) source {
	if from, ok := f.sources[provider]; ok {
		return from
	}
	return external{name: provider, sender: f.sender, now: f.now}
}

// provide is the segment that the source gives, or that an IPAM has answered with. It
// returns a user error where the segment has no address for a machine, and a fault where
// it is another one than the network has given out.
func (f *function) provide(ctx context.Context, nn *v1alpha2.NetworkNamespace, from source, how look) (segment, error) {
	var seg segment
	var err error
	has, canFind := from.(finder)
	switch {
	case how.said != nil:
		seg, err = how.said.segment, how.said.err
	case canFind && isReady(nn):
		seg, err = f.find(ctx, nn, has)
	default:
		seg, err = from.Provide(ctx, nn)
		counted(nn, "provide", err)
	}
	if err != nil {
		return segment{}, err
	}
	if holds(nn) {
		if err := unchanged(nn, seg); err != nil {
			return segment{}, err
		}
		if err := suited(nn); err != nil {
			return segment{}, err
		}
		if err := f.alone(ctx, nn, seg); err != nil {
			return segment{}, err
		}
	}
	return seg, usable(nn, seg)
}

// answered puts the answer of an external IPAM into the network that it is for. An
// answer for a network that is gone is answered by the event that sets the segment
// free.
func (f *function) answered(ctx context.Context, in event.Event) (*event.Event, error) {
	said, err := readAnswer(in)
	if err != nil {
		return nil, err
	}
	nn, err := f.byUID(ctx, said.uid)
	if err != nil {
		return nil, err
	}
	if nn == nil {
		return f.late(ctx, in, said)
	}
	asked := nn.Annotations[v1alpha1.AnnotationProvider]
	_, ownSource := f.sources[asked]
	if asked == "" || ownSource || (said.provider != "" && said.provider != asked) {
		return nil, events.Permanent(fmt.Errorf("use the answer for network %s/%s: its provider is %s, and has not been asked by an event", nn.Namespace, nn.Name, asked))
	}
	if said.err != nil && isReady(nn) {
		events.Report(ctx, nn.Status.Phase, "Dropped a refusal that comes after the segment")
		return nil, nil
	}
	return nil, kube.OnConflict(func() error { return f.settle(ctx, nn.Namespace, nn.Name, look{said: &said}) })
}

// late answers an IPAM that has made a segment for a network that is gone: it has
// been told so before it had made any, and is told again by a reply, so that it
// keeps none for nobody.
func (f *function) late(ctx context.Context, in event.Event, said answer) (*event.Event, error) {
	reply, ok := said.refuse(in)
	if !ok {
		events.Report(ctx, "", "Dropped an answer for a network that does not exist")
		return nil, nil
	}
	events.Report(ctx, phaseDeleting, "Released the segment of a network that is gone")
	return reply, nil
}

// byUID finds a network, and is nil where it does not exist.
func (f *function) byUID(ctx context.Context, uid string) (*v1alpha2.NetworkNamespace, error) {
	list := &v1alpha2.NetworkNamespaceList{}
	if err := f.kube.List(ctx, "", "", list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if string(list.Items[i].UID) == uid {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

// write patches the status if it has changed, and tells people if the reason has.
func (f *function) write(ctx context.Context, before, nn *v1alpha2.NetworkNamespace, told story) error {
	if _, err := f.kube.PatchStatus(ctx, before, nn); err != nil {
		return err
	}
	if told.news {
		f.kube.Tell(ctx, nn, told.warning, told.reason, told.message)
	}
	events.Report(ctx, nn.Status.Phase, told.message)
	return nil
}

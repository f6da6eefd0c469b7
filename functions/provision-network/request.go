package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/external"
)

// requestTimeout is the time that a delivery has.
const requestTimeout = 25 * time.Second

// provider returns the provider with a name: that of the registry, or else an external IPAM.
func (f *function) provider(name string) provider.Interface {
	p, isRegistered := f.providers[name]
	if m, isMisconfigured := p.(*misconfigured); isMisconfigured {
		return m.resolve()
	}
	if isRegistered {
		return p
	}
	return external.Provider{Name: name, Sender: f.sender, Now: f.now}
}

// decideProvider returns the provider that has to release its segment before the one in the
// spec is asked, or else why the one in the spec is not asked:
//
//	asked before        network  in a NetworkPool  release  refusal
//	another provider    Ready    any                        ProviderChanged
//	another provider    else     yes               it
//	another provider    else     no                it       NotInPool
//	the same, or none   any      yes
//	the same, or none   Ready    no
//	the same, or none   else     no                         NotInPool
func decideProvider(nn *v1alpha2.NetworkNamespace, pools plan.Pools) (release string, refusal error) {
	if err := checkPools(pools, nn, plan.RequestedSegment(nn)); err != nil && !plan.HoldsSegment(nn) {
		refusal = err
	}
	providerName, _ := plan.ProviderOf(nn.Spec)
	asked := nn.Annotations[v1alpha1.AnnotationProvider]
	switch {
	case asked == "" || asked == providerName:
		return "", refusal
	case isReady(nn):
		return "", provider.PermanentError("ProviderChanged", "provider %s provided the segment: set spec.networkProvisioning.provider back to it, or delete this network and create it again", asked)
	default:
		return asked, refusal
	}
}

// prepareRequest returns the provider to ask for the segment of a network, which is
// Unavailable if the network may not use it. Before the request it writes the provider into
// an annotation, so that the same provider is asked to release the segment. It removes the
// annotation vitistack.io/reconcile from a network that is not Ready, because this is the delivery that it requests, and later ones ask until the
// network is Ready. A Ready network keeps the annotation until endRequest: without it, no later delivery would ask.
func (f *function) prepareRequest(ctx context.Context, nn *v1alpha2.NetworkNamespace, pools plan.Pools) (provider.Interface, error) {
	providerName, _ := plan.ProviderOf(nn.Spec)
	from := f.provider(providerName)
	release, refusal := decideProvider(nn, pools)
	before := nn.DeepCopy()
	if release != "" {
		if err := f.kube.CheckSpecCurrent(ctx, nn); err != nil { // a changed spec may name the former provider again, and machines use its segment
			return nil, err
		}
		err := f.provider(release).Release(ctx, nn)
		switch working := (provider.Error{}); {
		case err == nil:
			delete(nn.Annotations, v1alpha1.AnnotationProvider)
		case errors.As(err, &working) && !working.Permanent:
			working.Message = fmt.Sprintf("provider %s was asked for a segment, and has to release it first: %s", release, working.Message)
			refusal = working
		default:
			refusal = provider.PermanentError("ProviderChanged", "provider %s was asked for a segment, and has to release it first: %s", release, err)
		}
	}
	if refusal != nil {
		from = provider.Unavailable{Err: refusal}
	}
	kube.AddFinalizer(nn, v1alpha1.FinalizerNetworkNamespace)
	if !isReady(nn) {
		delete(nn.Annotations, v1alpha1.AnnotationReconcile)
	}
	if _, isUnavailable := from.(provider.Unavailable); !isUnavailable {
		if nn.Annotations == nil {
			nn.Annotations = map[string]string{}
		}
		nn.Annotations[v1alpha1.AnnotationProvider] = providerName
	}
	_, err := f.kube.Patch(ctx, before, nn)
	return from, err
}

// endRequest removes the annotation vitistack.io/reconcile from a network whose status has the result.
func (f *function) endRequest(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if err := f.kube.EndReconcileRequest(ctx, nn); err != nil && !kube.NotFound(err) {
		return err
	}
	return nil
}

// lockRequest sets nextCheckTime while a server is asked for the segment of a network, so
// that no other delivery asks at the same time. The lock expires with the delivery.
func (f *function) lockRequest(ctx context.Context, nn *v1alpha2.NetworkNamespace, from provider.Interface) error {
	if _, isServer := from.(provider.Server); !isServer || isReady(nn) {
		return nil
	}
	before := nn.DeepCopy()
	nn.Status.ObservedGeneration, nn.Status.NextCheckTime = nn.Generation, checkTime(f.now(), requestTimeout)
	if readyCondition(nn).ObservedGeneration != nn.Generation {
		providerName, _ := plan.ProviderOf(nn.Spec)
		kube.SetReady(&nn.Status.Conditions, nn.Generation, false, reasonAsking, "requesting the segment from provider "+providerName)
	}
	_, err := f.kube.PatchStatus(ctx, before, nn)
	return err
}

// requestOrFindSegment returns the segment of a network: that of the answer, or else that of the
// provider. It returns a user error if no machine could use the segment, and a permanent
// Error if it is not the one that the network has allocated.
func (f *function) requestOrFindSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace, from provider.Interface, answer *external.Answer) (segment.Segment, error) {
	var seg segment.Segment
	var err error
	server, isServer := from.(provider.Server)
	switch {
	case answer != nil:
		seg, err = answer.Segment, answer.Err
	case isServer && isReady(nn):
		seg, err = f.findSegment(ctx, nn, server)
	default:
		seg, err = from.Provide(ctx, nn)
		countRequest(nn, "provide", err)
		if outdated := (provider.Error{}); errors.As(err, &outdated) && outdated.Outdated {
			err = f.releaseOutdated(ctx, nn, from, outdated)
		}
	}
	if err == nil && plan.HoldsSegment(nn) {
		err = f.checkHeldSegment(ctx, nn, from, seg)
	}
	if err == nil {
		err = plan.CheckUsable(nn, seg)
	}
	return seg, err
}

// releaseOutdated releases the segment that a provider has for an earlier request of a network, and returns outdated, so that the next delivery
// requests another segment. If the spec has been changed since it was read, it releases nothing and returns an error for which kube.Conflict is
// true: the segment may be that of the present spec, which machines use.
func (f *function) releaseOutdated(ctx context.Context, nn *v1alpha2.NetworkNamespace, from provider.Interface, outdated provider.Error) error {
	if err := f.kube.CheckSpecCurrent(ctx, nn); err != nil {
		return err
	}
	err := from.Release(ctx, nn)
	countRequest(nn, "release", err)
	if err != nil {
		return err
	}
	return outdated
}

// findSegment looks up the segment of a network without creating one.
func (f *function) findSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace, server provider.Server) (segment.Segment, error) {
	seg, err := server.Find(ctx, nn)
	countRequest(nn, "find", err)
	return seg, err
}

// checkHeldSegment checks the segment that the provider has for a network which has given
// out addresses of it.
func (f *function) checkHeldSegment(ctx context.Context, nn *v1alpha2.NetworkNamespace, from provider.Interface, seg segment.Segment) error {
	if err := checkUnchanged(nn, seg); err != nil {
		return err
	}
	if err := checkRequest(nn, from); err != nil {
		return err
	}
	return f.claims().checkOverlap(ctx, nn, seg)
}

// checkUnchanged returns a permanent Error if seg is not the segment in the status of a
// network that is Ready.
func checkUnchanged(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	has, err := segment.FromStatus(nn)
	if err != nil || has.Same(seg) && has.IPv4Gateway == seg.IPv4Gateway && has.IPv6Gateway == seg.IPv6Gateway {
		return nil
	}
	if providerName, _ := plan.ProviderOf(nn.Spec); providerName == v1alpha2.ProviderManual {
		_, path := segment.Block(nn.Spec)
		return provider.PermanentError("SegmentChanged", "spec.%s describes %s, but the network has allocated %s and keeps it, because machines use it: write that back, or delete this network and create it again",
			path, seg, has)
	}
	return provider.PermanentError("SourceChanged", "the provider has %s, but provided %s before, which the network keeps, because machines may use it: correct it at the provider", seg, has)
}

// checkRequest returns a permanent Error if the segment in the status of a network that is
// Ready is not what its spec requests of a server.
func checkRequest(nn *v1alpha2.NetworkNamespace, from provider.Interface) error {
	server, isServer := from.(provider.Server)
	has, err := segment.FromStatus(nn)
	if err != nil || !isServer {
		return nil
	}
	if err := server.CheckRequest(nn, has); err != nil {
		providerName, _ := plan.ProviderOf(nn.Spec)
		return provider.PermanentError("RequestChanged", "the spec requests another segment than the network has (%s). The network keeps its segment, because machines may use it: change spec.networkProvisioning.%s back, or delete this network and create it again",
			err, providerName)
	}
	return nil
}

package main

import (
	"context"
	"errors"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/networkpool"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/functions/provision-network/provider/manual"
)

const (
	kindPool        = "NetworkPool"
	reasonNotInPool = "NotInPool"
)

// checkPools returns a permanent Error if no NetworkPool allows what is known of the segment
// of a network. A network that machines may use keeps its segment.
func checkPools(pools networkpool.Pools, nn *v1alpha2.NetworkNamespace, known networkpool.Segment) error {
	problem := pools.Check(known)
	if problem == "" {
		return nil
	}
	if holdsSegment(nn) {
		problem += "; the network keeps its segment until it is deleted, because machines may use it"
	}
	return provider.PermanentError(reasonNotInPool, "%s", problem)
}

// requestedSegment returns what is known of a segment before the provider is asked: the
// provider, and for manual the whole segment.
func requestedSegment(nn *v1alpha2.NetworkNamespace) networkpool.Segment {
	providerName, _ := providerOf(nn.Spec)
	if providerName == v1alpha2.ProviderManual {
		if seg, err := manual.Segment(nn); err == nil {
			return providedSegment(nn, seg)
		}
	}
	return networkpool.Segment{Provider: providerName}
}

// providedSegment returns a segment as NetworkPools describe it.
func providedSegment(nn *v1alpha2.NetworkNamespace, seg provider.Segment) networkpool.Segment {
	providerName, _ := providerOf(nn.Spec)
	s := networkpool.Segment{Provider: providerName, VLAN: &seg.VLAN}
	for _, prefix := range []netip.Prefix{seg.IPv4, seg.IPv6} {
		if prefix.IsValid() {
			s.Prefixes = append(s.Prefixes, prefix)
		}
	}
	return s
}

// knownSegment returns what is known of the segment of a network: what it has allocated, or
// else what it requests.
func knownSegment(nn *v1alpha2.NetworkNamespace) networkpool.Segment {
	if seg, err := provider.StatusSegment(nn); err == nil && holdsSegment(nn) {
		return providedSegment(nn, seg)
	}
	return requestedSegment(nn)
}

// recheckPools reports whether no NetworkPool allows the segment of a network that is Ready
// any more, after it has written that into the status.
func (f *function) recheckPools(ctx context.Context, nn *v1alpha2.NetworkNamespace) (excluded bool, err error) {
	pools, err := networkpool.Of(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil {
		return false, err
	}
	return f.writeExcluded(ctx, nn, pools)
}

func (f *function) writeExcluded(ctx context.Context, nn *v1alpha2.NetworkNamespace, pools networkpool.Pools) (excluded bool, err error) {
	problem := checkPools(pools, nn, knownSegment(nn))
	if problem == nil {
		return false, nil
	}
	before := nn.DeepCopy()
	outcome := setResult(nn, provider.Segment{}, problem, f.now())
	_, err = reconcile.PatchStatus(ctx, f.kube, before, nn, nn.Status.Phase, outcome)
	return true, err
}

// poolChange is what a change of NetworkPools means for a network.
type poolChange int

const (
	poolUnchanged poolChange = iota
	// poolAdmits ends the wait of a network that was not in a pool.
	poolAdmits
	// poolExcludes leaves a network that is Ready without a pool.
	poolExcludes
)

// decidePoolChange returns what a change of NetworkPools means for a network:
//
//	network                allowed now  change
//	being deleted          any          unchanged
//	not Ready, NotInPool   yes          admits
//	Ready                  no           excludes
//	otherwise                           unchanged
func decidePoolChange(nn *v1alpha2.NetworkNamespace, allowed bool) poolChange {
	c := readyCondition(nn)
	switch {
	case nn.DeletionTimestamp != nil:
		return poolUnchanged
	case allowed && c.Status == metav1.ConditionFalse && c.Reason == reasonNotInPool:
		return poolAdmits
	case !allowed && c.Status == metav1.ConditionTrue && isReady(nn):
		return poolExcludes
	default:
		return poolUnchanged
	}
}

// reconcilePools has the networks that wait for a NetworkPool reconciled, and writes into
// the status of Ready networks that they are no longer in a pool. A waiting network is
// reconciled by the event of its status, so that each has a delivery of its own.
func (f *function) reconcilePools(ctx context.Context) error {
	networks, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	pools, err := kube.ListShared[v1alpha1.NetworkPoolList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	byNamespace := map[string]networkpool.Pools{}
	var problems []error
	for i := range networks.Items {
		nn := networks.Items[i].DeepCopy()
		selected, known := byNamespace[nn.Namespace]
		if !known {
			if selected, err = networkpool.Select(pools.Items, nn.Namespace, f.kube.LabelsOf(ctx, nn.Namespace), f.optionalPools); err != nil {
				return err
			}
			byNamespace[nn.Namespace] = selected
		}
		switch decidePoolChange(nn, selected.Check(knownSegment(nn)) == "") {
		case poolAdmits:
			err = f.clearNextCheck(ctx, nn)
		case poolExcludes:
			_, err = f.writeExcluded(ctx, nn, selected)
		default:
			err = nil
		}
		if err != nil && !kube.NotFound(err) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// retryIfAdmitted ends the wait of a network for a NetworkPool that was created after the
// decision about known and before its write: the event of that pool did not find the network
// waiting.
func (f *function) retryIfAdmitted(ctx context.Context, nn *v1alpha2.NetworkNamespace, known networkpool.Segment) error {
	if readyCondition(nn).Reason != reasonNotInPool {
		return nil
	}
	pools, err := networkpool.Of(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil || pools.Check(known) != "" {
		return err
	}
	return f.clearNextCheck(ctx, nn)
}

// clearNextCheck removes status.nextCheckTime. The event of that change has the network
// reconciled at once.
func (f *function) clearNextCheck(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	before := nn.DeepCopy()
	nn.Status.NextCheckTime = nil
	_, err := f.kube.PatchStatus(ctx, before, nn)
	return err
}

package main

import (
	"context"
	"errors"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/networkpool"
)

const (
	kindPool        = "NetworkPool"
	reasonNotInPool = "NotInPool"
)

// inPool returns a final fault where no NetworkPool allows a network all that is known of its
// segment. A network that machines may use keeps its segment.
func inPool(pools networkpool.Pools, nn *v1alpha2.NetworkNamespace, known networkpool.Segment) error {
	why := pools.Check(known)
	if why == "" {
		return nil
	}
	if holds(nn) {
		why += "; the network keeps its segment until it is deleted, because machines may use it"
	}
	return final(reasonNotInPool, "%s", why)
}

// requestedSegment is what is known of a segment before the source is asked: the provider, and
// for manual all of it.
func requestedSegment(nn *v1alpha2.NetworkNamespace) networkpool.Segment {
	provider, _ := providerOf(nn.Spec)
	if provider == v1alpha2.ProviderManual {
		if seg, err := manualSegment(nn); err == nil {
			return provisionedSegment(nn, seg)
		}
	}
	return networkpool.Segment{Provider: provider}
}

// provisionedSegment is what NetworkPools see of a segment that a source has provided.
func provisionedSegment(nn *v1alpha2.NetworkNamespace, seg segment) networkpool.Segment {
	provider, _ := providerOf(nn.Spec)
	s := networkpool.Segment{Provider: provider, VLAN: &seg.vlan}
	for _, prefix := range []netip.Prefix{seg.ipv4, seg.ipv6} {
		if prefix.IsValid() {
			s.Prefixes = append(s.Prefixes, prefix)
		}
	}
	return s
}

// knownSegment is what is known of the segment of a network: what it has given out, or else what
// it requests.
func knownSegment(nn *v1alpha2.NetworkNamespace) networkpool.Segment {
	if seg, err := held(nn); err == nil && holds(nn) {
		return provisionedSegment(nn, seg)
	}
	return requestedSegment(nn)
}

// recheckPool tells a network that is Ready that no NetworkPool allows its segment any more, and
// reports whether it did.
func (f *function) recheckPool(ctx context.Context, nn *v1alpha2.NetworkNamespace) (bool, error) {
	pools, err := networkpool.Of(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil {
		return false, err
	}
	return f.leavesPool(ctx, nn, pools)
}

func (f *function) leavesPool(ctx context.Context, nn *v1alpha2.NetworkNamespace, pools networkpool.Pools) (bool, error) {
	err := inPool(pools, nn, knownSegment(nn))
	if err == nil {
		return false, nil
	}
	before := nn.DeepCopy()
	told := decide(nn, segment{}, err, f.now())
	return true, f.write(ctx, before, nn, told)
}

// poolStep is what a change of NetworkPools means to a network.
type poolStep int

const (
	poolKeeps poolStep = iota
	// poolAdmits ends the wait of a network that was not in a pool.
	poolAdmits
	// poolLeaves tells a network that is Ready that it is in no pool any more.
	poolLeaves
)

// poolStepOf decides what a change of NetworkPools means to a network:
//
//	network                 allowed now  step
//	being deleted           any          keeps
//	not Ready, NotInPool    yes          admits
//	Ready                   no           leaves
//	otherwise                            keeps
func poolStepOf(nn *v1alpha2.NetworkNamespace, allowed bool) poolStep {
	c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case nn.DeletionTimestamp != nil || c == nil:
		return poolKeeps
	case allowed && c.Status != metav1.ConditionTrue && c.Reason == reasonNotInPool:
		return poolAdmits
	case !allowed && c.Status == metav1.ConditionTrue && isReady(nn):
		return poolLeaves
	default:
		return poolKeeps
	}
}

// poolsChanged wakes the networks that wait for a NetworkPool, and tells those that are in none
// any more. A network that waits is woken by its own status, whose change is an event, so that
// each is looked at in a delivery of its own.
func (f *function) poolsChanged(ctx context.Context) error {
	networks, err := kube.View[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	pools, err := kube.View[v1alpha1.NetworkPoolList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	byNamespace := map[string]networkpool.Pools{}
	var problems []error
	for i := range networks.Items {
		nn := networks.Items[i].DeepCopy()
		of, known := byNamespace[nn.Namespace]
		if !known {
			if of, err = networkpool.Select(pools.Items, nn.Namespace, f.kube.LabelsOf(ctx, nn.Namespace), f.optionalPools); err != nil {
				return err
			}
			byNamespace[nn.Namespace] = of
		}
		switch poolStepOf(nn, of.Check(knownSegment(nn)) == "") {
		case poolAdmits:
			err = f.endWait(ctx, nn)
		case poolLeaves:
			_, err = f.leavesPool(ctx, nn, of)
		default:
			err = nil
		}
		if err != nil && !kube.NotFound(err) {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// endMissedWait ends the wait of a network for a NetworkPool that was created between the decision
// and its write: the event of that pool did not find the network waiting. known is what the
// decision was about.
func (f *function) endMissedWait(ctx context.Context, nn *v1alpha2.NetworkNamespace, known networkpool.Segment) error {
	if c := meta.FindStatusCondition(nn.Status.Conditions, v1alpha1.ConditionReady); c == nil || c.Reason != reasonNotInPool {
		return nil
	}
	pools, err := networkpool.Of(ctx, f.kube, nn.Namespace, f.optionalPools)
	if err != nil || pools.Check(known) != "" {
		return err
	}
	return f.endWait(ctx, nn)
}

// endWait has a network looked at again before status.nextCheckTime.
func (f *function) endWait(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	before := nn.DeepCopy()
	nn.Status.NextCheckTime = nil
	_, err := f.kube.PatchStatus(ctx, before, nn)
	return err
}

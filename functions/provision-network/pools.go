package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

const kindPool = "NetworkPool"

// checkPools returns a permanent Error if no NetworkPool allows what is known of the segment
// of a network. A network that machines may use keeps its segment.
func checkPools(pools plan.Pools, nn *v1alpha2.NetworkNamespace, known plan.KnownSegment) error {
	if problem := pools.CheckNetwork(nn, known); problem != "" {
		return provider.PermanentError(plan.ReasonNotInPool, "%s", problem)
	}
	return nil
}

// admission applies changes of NetworkPools to networks.
type admission struct {
	kube *kube.Client
	now  func() time.Time
	// optional is whether a namespace that may use no NetworkPool may have any network.
	optional bool
}

func (f *function) admission() admission { return admission{f.kube, f.now, f.optionalPools} }

// recheck reports whether no NetworkPool allows the segment of a network that is Ready
// any more, after it has written that into the status.
func (a admission) recheck(ctx context.Context, nn *v1alpha2.NetworkNamespace) (excluded bool, err error) {
	pools, err := network.Pools(ctx, a.kube, nn.Namespace, a.optional)
	if err != nil {
		return false, err
	}
	return a.writeExcluded(ctx, nn, pools)
}

func (a admission) writeExcluded(ctx context.Context, nn *v1alpha2.NetworkNamespace, pools plan.Pools) (excluded bool, err error) {
	problem := checkPools(pools, nn, plan.KnownSegmentOf(nn))
	if problem == nil {
		return false, nil
	}
	before := nn.DeepCopy()
	outcome := setSegmentResult(nn, segment.Segment{}, problem, a.now())
	_, err = reconcile.PatchStatus(ctx, a.kube, before, nn, nn.Status.Phase, outcome)
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
	case allowed && c.Status == metav1.ConditionFalse && c.Reason == plan.ReasonNotInPool:
		return poolAdmits
	case !allowed && c.Status == metav1.ConditionTrue && isReady(nn):
		return poolExcludes
	default:
		return poolUnchanged
	}
}

// recheckAll has the networks that wait for a NetworkPool reconciled, and writes into
// the status of Ready networks that they are no longer in a pool. A waiting network is
// reconciled by the event of its status, so that each has a delivery of its own.
func (a admission) recheckAll(ctx context.Context) error {
	networks, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, a.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	pools, err := kube.ListShared[v1alpha1.NetworkPoolList](ctx, a.kube, "", metav1.ListOptions{})
	if err != nil {
		return err
	}
	byNamespace := map[string]plan.Pools{}
	var problems []error
	for i := range networks.Items {
		nn := networks.Items[i].DeepCopy()
		selected, known := byNamespace[nn.Namespace]
		if !known {
			if selected, err = plan.SelectPools(pools.Items, nn.Namespace, a.kube.LabelsOf(ctx, nn.Namespace), a.optional); err != nil {
				return err
			}
			byNamespace[nn.Namespace] = selected
		}
		switch decidePoolChange(nn, selected.Check(plan.KnownSegmentOf(nn)) == "") {
		case poolAdmits:
			err = a.clearNextCheck(ctx, nn)
		case poolExcludes:
			_, err = a.writeExcluded(ctx, nn, selected)
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
func (a admission) retryIfAdmitted(ctx context.Context, nn *v1alpha2.NetworkNamespace, known plan.KnownSegment) error {
	if readyCondition(nn).Reason != plan.ReasonNotInPool {
		return nil
	}
	pools, err := network.Pools(ctx, a.kube, nn.Namespace, a.optional)
	if err != nil || pools.Check(known) != "" {
		return err
	}
	return a.clearNextCheck(ctx, nn)
}

// clearNextCheck removes status.nextCheckTime. The event of that change has the network
// reconciled at once.
func (a admission) clearNextCheck(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	before := nn.DeepCopy()
	nn.Status.NextCheckTime = nil
	_, err := a.kube.PatchStatus(ctx, before, nn)
	return err
}

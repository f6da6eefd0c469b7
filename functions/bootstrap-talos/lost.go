package main

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

const reasonEtcdLost = "EtcdLost"

// checkLost finds out whether an API does not answer because there is no etcd any
// more, and otherwise returns what the cluster waits for. It is lost when every control
// plane that has a configuration says that it has no data. One that does not say may
// have it, and the one that etcd was to begin on may be beginning until the cluster
// has run.
func (f *function) checkLost(ctx context.Context, c *cluster, late error) error {
	if !c.bootstrapped || (c.Status.Version == "" && !c.beginning().lost) {
		return late
	}
	addresses := c.controlPlanes()
	for name, m := range c.machines {
		if poolOf(m) == controlPlanePool && installed(m) && addresses[name] == "" {
			return late
		}
	}
	for _, address := range addresses {
		if empty, err := etcdEmpty(ctx, address, c.access); err != nil || !empty {
			return late
		}
	}
	if len(addresses) == 0 {
		return late
	}
	return fault{reasonEtcdLost, "no control plane has the data of etcd any more: restore a snapshot as functions/etcd-backup/README.md says, or delete the cluster and create it anew"}
}

// describeUnanswered writes the conditions that are asked of nodes, where nobody has
// answered for as long as a delivery may wait.
func describeUnanswered(c *cluster, err error) {
	describeUnknown(c, v1alpha1.ConditionNodesReady)
	var flt fault
	if errors.As(err, &flt) && flt.reason == reasonEtcdLost {
		kube.SetCondition(&c.Status.Conditions, c.Generation, v1alpha1.ConditionEtcdHealthy, false, flt.reason, flt.message)
		return
	}
	describeUnknown(c, v1alpha1.ConditionEtcdHealthy)
}

// describeUnknown keeps what a condition has said last. One that has said nothing yet
// is left out.
func describeUnknown(c *cluster, kind string) {
	last := meta.FindStatusCondition(c.Status.Conditions, kind)
	if last == nil {
		return
	}
	const seen = "last seen: "
	meta.SetStatusCondition(&c.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionUnknown, ObservedGeneration: c.Generation,
		Reason: "StatusUnknown", Message: seen + strings.TrimPrefix(last.Message, seen),
	})
}

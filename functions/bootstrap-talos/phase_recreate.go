package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// recreateUnstarted deletes the Machines that have never run and are not what their pools would create now, so that other ones are
// created. So a correction of the template, the provider, the Talos version or the schematic reaches machines that could not be created,
// although the cluster is not Ready. While spec.upgrade.paused is true it deletes none.
func (r *replacer) recreateUnstarted(ctx context.Context, c *cluster) error {
	hasOtherImage := func(m *v1alpha1.Machine) bool {
		return m.Spec.OS != nil && r.machines.images.IsOtherDisk(c.KubernetesCluster, c.plan.Talos, m.Spec.OS.ImageID)
	}
	outdated := c.plan.UnstartedOutdated(c.KubernetesCluster, c.observed.machines, hasOtherImage)
	if len(outdated) == 0 || plan.IsUpgradePaused(c.KubernetesCluster) {
		return nil
	}
	if err := r.kube.CheckSpecCurrent(ctx, c.KubernetesCluster); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(outdated)) {
		m := c.observed.machines[name]
		if err := refusedDeletion(r.kube.DeleteExactly(ctx, m)); err != nil {
			return err
		}
		r.kube.RecordEvent(ctx, c.KubernetesCluster, false, "ReplacingMachines", fmt.Sprintf(
			"replacing Machine %s of pool %s, which has never run: it has %s", name, plan.PoolOf(m), outdated[name]))
	}
	if err := r.machines.read(ctx, c); err != nil {
		return err
	}
	return r.planner.makePlan(ctx, c)
}

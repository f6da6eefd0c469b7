package plan

import (
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsUpgradePaused reports whether no upgrade, replacement or resize begins.
func IsUpgradePaused(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Spec.Upgrade != nil && kc.Spec.Upgrade.Paused
}

// IsUpgrading reports whether any node is being upgraded, or its upgrade has failed.
func IsUpgrading(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Upgrade != nil && len(kc.Status.Upgrade.Nodes) > 0
}

// IsUpgradeActive reports whether any node is being upgraded whose upgrade has not failed. After a failure the upgrade
// waits for a user, for any length of time.
func IsUpgradeActive(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Upgrade != nil && slices.ContainsFunc(kc.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step != v1alpha1.UpgradeFailed })
}

// IsUpgradeRequested reports whether the upgrade of any node is requested, so that the node may restart.
func IsUpgradeRequested(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Upgrade != nil && slices.ContainsFunc(kc.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Step == v1alpha1.UpgradeRequested })
}

// IsNodeUpgrading reports whether a node is being upgraded, and so may be unreachable.
func IsNodeUpgrading(kc *v1alpha1.KubernetesCluster, node string) bool {
	return kc.Status.Upgrade != nil && slices.ContainsFunc(kc.Status.Upgrade.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Name == node })
}

// FailedKubernetesUpgrade returns the upgrade of Kubernetes on a node that has failed, or nil.
func FailedKubernetesUpgrade(kc *v1alpha1.KubernetesCluster, node string) *v1alpha1.NodeUpgrade {
	s := kc.Status.Upgrade
	if s == nil || s.Kind == v1alpha1.UpgradeTalos {
		return nil
	}
	i := slices.IndexFunc(s.Nodes, func(u v1alpha1.NodeUpgrade) bool { return u.Name == node && u.Step == v1alpha1.UpgradeFailed })
	if i < 0 {
		return nil
	}
	return &s.Nodes[i]
}

// IsNodeResizing reports whether the machine of a node is being resized, so that the node may be unreachable.
func IsNodeResizing(kc *v1alpha1.KubernetesCluster, node string) bool {
	return slices.ContainsFunc(kc.Status.Resizes, func(r v1alpha1.MachineResize) bool { return r.Name == node })
}

// IsResizeActive reports whether any machine is being resized whose resize has not failed. After a failure the
// rollout waits for a user, for any length of time.
func IsResizeActive(kc *v1alpha1.KubernetesCluster) bool {
	return slices.ContainsFunc(kc.Status.Resizes, func(r v1alpha1.MachineResize) bool { return r.Step != v1alpha1.ResizeFailed })
}

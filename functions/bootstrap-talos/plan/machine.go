package plan

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsInstalled tells whether the node of a machine has its configuration on its disk.
func IsInstalled(m *v1alpha1.Machine) bool { return m.Installed() }

// IsRunning tells whether a machine is up and has an address.
func IsRunning(m *v1alpha1.Machine) bool {
	return HasAddress(m) && m.Status.Phase == v1alpha1.MachineRunning
}

// HasAddress tells whether a machine has its addresses, which it has before it is made.
func HasAddress(m *v1alpha1.Machine) bool {
	return m != nil && len(m.Status.IPAddresses) > 0 && m.DeletionTimestamp == nil
}

// Address is the first address of a machine, at which its node is reached.
func Address(m *v1alpha1.Machine) string { return m.Status.IPAddresses[0] }

// IsHeldByEtcd reports whether a user has deleted a control plane that waits to leave etcd.
func IsHeldByEtcd(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && HasEtcdFinalizer(m) && m.Annotations[v1alpha1.AnnotationRemoving] == ""
}

// NeedsConfig tells whether a machine alone is to be looked at: its configuration has to be
// provided, or its node may have started with it.
func NeedsConfig(m *v1alpha1.Machine) bool {
	return HasAddress(m) && !IsInstalled(m) && (IsRunning(m) || !HasMachineConfig(m))
}

// IsProgressing tells whether a new machine goes from step to step by itself, so that
// its cluster has nothing to do and nothing to tell.
func IsProgressing(m *v1alpha1.Machine) bool {
	if IsInstalled(m) || IsRunning(m) || m.DeletionTimestamp != nil {
		return false
	}
	switch ReadyReason(m) {
	case "", "WaitingForAddress", "Provisioning", "Starting":
		return true
	case ReasonWaitingForMachineConfig:
		return HasMachineConfig(m)
	default:
		return false
	}
}

// ReadyReason is the reason of a machine's condition Ready, or empty.
func ReadyReason(m *v1alpha1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// ReasonWaitingForMachineConfig is the reason of Ready of a Machine that has its addresses,
// and is made as soon as create-vm finds its configuration.
const ReasonWaitingForMachineConfig = "WaitingForMachineConfig"

// HasMachineConfig tells whether the configuration of a machine's node is in its Secret.
func HasMachineConfig(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationMachineConfig] != ""
}

// HasEtcdFinalizer reports whether a Machine is kept until etcd has a majority without it.
func HasEtcdFinalizer(m *v1alpha1.Machine) bool {
	return slices.Contains(m.Finalizers, v1alpha1.FinalizerEtcd)
}

// PoolOf is the pool of a machine, cp for the control plane.
func PoolOf(m *v1alpha1.Machine) string {
	if m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane {
		return ControlPlanePool
	}
	return m.Labels[v1alpha1.LabelWorkerGroup]
}

// IsLeaving tells whether a machine has been told to go.
func IsLeaving(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationRemoving] != ""
}

// MayHaveJoinedEtcd tells whether a control plane may be a member of etcd: its node has its
// configuration, or its virtual machine was made with it.
func MayHaveJoinedEtcd(m *v1alpha1.Machine) bool {
	return IsInstalled(m) || (PoolOf(m) == ControlPlanePool && HasMachineConfig(m) && m.Status.VMName != "")
}

func FirstAddress(m *v1alpha1.Machine) string {
	if len(m.Status.IPAddresses) == 0 {
		return ""
	}
	return Address(m)
}

// WhyNotReady is what a machine itself says about what it waits for.
func WhyNotReady(m *v1alpha1.Machine) string {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	return ": " + c.Message
}

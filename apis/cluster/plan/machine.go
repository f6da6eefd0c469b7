package plan

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// IsInstalled reports whether the node of a Machine has been seen with its configuration.
func IsInstalled(m *v1alpha1.Machine) bool { return m.Installed() }

// IsRunning reports whether a Machine runs, has an address and is not being deleted.
func IsRunning(m *v1alpha1.Machine) bool {
	return HasAddress(m) && m.Status.Phase == v1alpha1.MachineRunning
}

// HasAddress reports whether a Machine has its addresses and is not being deleted. It has them
// before its virtual machine is created.
func HasAddress(m *v1alpha1.Machine) bool {
	return m != nil && len(m.Status.IPAddresses) > 0 && m.DeletionTimestamp == nil
}

// Address returns the first address of a Machine, at which its node is reached, or an empty
// string.
func Address(m *v1alpha1.Machine) string {
	if len(m.Status.IPAddresses) == 0 {
		return ""
	}
	return m.Status.IPAddresses[0]
}

// IsHeldByEtcd reports whether a control plane that a user has deleted waits to leave etcd.
func IsHeldByEtcd(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil && HasEtcdFinalizer(m) && m.Annotations[v1alpha1.AnnotationRemoving] == ""
}

// NeedsConfig reports whether the configuration of a Machine has to be provided, or its node may
// have started with it.
func NeedsConfig(m *v1alpha1.Machine) bool {
	return HasAddress(m) && !IsInstalled(m) && (IsRunning(m) || !HasMachineConfig(m))
}

// IsProgressing reports whether a new Machine continues without the function, so that its
// cluster needs no reconcile.
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

// ReadyReason returns the reason of a Machine's condition Ready, or an empty string.
func ReadyReason(m *v1alpha1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// readySince returns when a Machine's condition Ready changed last, or the zero time.
func readySince(m *v1alpha1.Machine) time.Time {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// ReasonWaitingForMachineConfig is the reason of Ready of a Machine that has its addresses and
// waits for its configuration before create-vm creates it.
const ReasonWaitingForMachineConfig = "WaitingForMachineConfig"

// HasMachineConfig reports whether the configuration of a Machine's node is in its Secret.
func HasMachineConfig(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationMachineConfig] != ""
}

// HasEtcdFinalizer reports whether a Machine is kept until etcd has a majority without it.
func HasEtcdFinalizer(m *v1alpha1.Machine) bool {
	return slices.Contains(m.Finalizers, v1alpha1.FinalizerEtcd)
}

// PoolOf returns the pool of a Machine, v1alpha1.ControlPlanePool for a control plane.
func PoolOf(m *v1alpha1.Machine) string {
	if m.Labels[v1alpha1.LabelClusterRole] == v1alpha1.RoleControlPlane {
		return v1alpha1.ControlPlanePool
	}
	return m.Labels[v1alpha1.LabelWorkerGroup]
}

// IsLeaving reports whether the removal of a Machine has begun.
func IsLeaving(m *v1alpha1.Machine) bool {
	return m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationRemoving] != ""
}

// IsMarked reports whether another machine takes the place of a Machine: a user has marked it, or its
// cluster replaces it.
func IsMarked(m *v1alpha1.Machine) bool {
	return m.Annotations[v1alpha1.AnnotationRemove] == "true" || m.Annotations[v1alpha1.AnnotationReplace] != ""
}

// MayHaveJoined reports whether the node of a Machine may have joined its cluster: it has been seen
// with its configuration, or its virtual machine was created with it.
func MayHaveJoined(m *v1alpha1.Machine) bool {
	return IsInstalled(m) || (HasMachineConfig(m) && m.Status.VMName != "")
}

// MayHaveJoinedEtcd reports whether a control plane may be a member of etcd. A worker that has been
// seen with its configuration is drained like one.
func MayHaveJoinedEtcd(m *v1alpha1.Machine) bool {
	return IsInstalled(m) || (PoolOf(m) == v1alpha1.ControlPlanePool && MayHaveJoined(m))
}

// NotReadySuffix returns the reason and the message of the condition Ready of a Machine after ": ",
// or an empty string for a Machine that is Ready.
func NotReadySuffix(m *v1alpha1.Machine) string {
	if cause := v1alpha1.WhyNotReady(m.Status.Conditions); cause != "" {
		return ": " + cause
	}
	return ""
}

package kubevirt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonProvisioning is the reason of a virtual machine that waits for its disks.
const reasonProvisioning = "Provisioning"

// vmState returns what the status of a VirtualMachine means for its Machine, which was in phase before:
//
//	printableStatus                            phase                    reason
//	Running, Migrating                         Running                  -
//	Paused                                     Running                  Paused
//	Stopped, power off wanted                  Stopped                  Stopped
//	Stopping, Terminating                      before                   Stopping
//	ErrorUnschedulable, disk without volume    Creating, or before      Provisioning
//	ErrorUnschedulable                         Creating, or before      InsufficientResources
//	ErrorPvcNotFound                           Creating, or before      DiskNotFound
//	DataVolumeError                            Creating, or before      ImageImportFailed
//	ErrImagePull, ImagePullBackOff             Creating, or before      ImagePullFailed
//	CrashLoopBackOff                           Creating, or before      CrashLoop
//	none yet, Provisioning, and the like       Creating, or before      Provisioning
//	Stopped, power on wanted, and all others   Creating, or before      Starting
//
// "Creating, or before" is Running for a machine that has been Running, because it is not new.
func vmState(vm *kubevirtv1.VirtualMachine, before v1alpha1.MachinePhase, power v1alpha1.PowerState) hypervisor.State {
	s := hypervisor.State{VMName: vm.Name, Phase: v1alpha1.MachineCreating, RestartRequired: restartRequired(vm)}
	if before == v1alpha1.MachineRunning || (before == v1alpha1.MachineStopped && power == v1alpha1.PowerStopped) {
		s.Phase = before
	}
	switch status := vm.Status.PrintableStatus; status {
	case kubevirtv1.VirtualMachineStatusRunning, kubevirtv1.VirtualMachineStatusMigrating:
		s.Phase = v1alpha1.MachineRunning
	case kubevirtv1.VirtualMachineStatusPaused:
		s.Phase = v1alpha1.MachineRunning
		s.Reason, s.Message = "Paused", "the virtual machine is paused: unpause it at its hypervisor"
	case kubevirtv1.VirtualMachineStatusStopped:
		if power == v1alpha1.PowerStopped {
			s.Phase = v1alpha1.MachineStopped
			s.Reason, s.Message = hypervisor.ReasonStopped, hypervisor.MessageStopped
			break
		}
		s.Reason, s.Message = "Starting", "waiting for the virtual machine to start"
	case kubevirtv1.VirtualMachineStatusStopping, kubevirtv1.VirtualMachineStatusTerminating:
		s.Reason, s.Message = "Stopping", "waiting for the virtual machine to stop"
	default:
		s.Reason, s.Message = notRunningReason(vm)
		s.Failed = s.Reason != reasonProvisioning && s.Reason != "Starting"
	}
	return s
}

// restartRequired returns what KubeVirt reports about a change that waits for a restart.
func restartRequired(vm *kubevirtv1.VirtualMachine) string {
	for _, c := range vm.Status.Conditions {
		if c.Type == kubevirtv1.VirtualMachineRestartRequired && c.Status == corev1.ConditionTrue {
			return "a change waits for the next restart: write a new value into spec.restartToken (" + c.Message + ")"
		}
	}
	return ""
}

// notRunningReason returns why a virtual machine does not run.
func notRunningReason(vm *kubevirtv1.VirtualMachine) (reason, message string) {
	detail := conditionMessage(vm)
	switch status := vm.Status.PrintableStatus; status {
	case kubevirtv1.VirtualMachineStatusUnschedulable:
		if strings.Contains(detail, "unbound immediate PersistentVolumeClaims") {
			return reasonProvisioning, "waiting for the disks" + detail
		}
		return "InsufficientResources", "no host has room for the machine: add hosts, or ask for less CPU or memory" + detail
	case kubevirtv1.VirtualMachineStatusPvcNotFound:
		return "DiskNotFound", "a disk of the machine is gone: restore its PersistentVolumeClaim, or delete the machine" + detail
	case kubevirtv1.VirtualMachineStatusDataVolumeError:
		return "ImageImportFailed", "the image cannot be copied to the disk: make its URL answer, or delete the machine and create it with another one in spec.os" + detail
	case kubevirtv1.VirtualMachineStatusErrImagePull, kubevirtv1.VirtualMachineStatusImagePullBackOff:
		return "ImagePullFailed", "KubeVirt cannot pull an image: check its registry" + detail
	case kubevirtv1.VirtualMachineStatusCrashLoopBackOff:
		return "CrashLoop", "the virtual machine starts and fails again and again: look at its console" + detail
	case "", kubevirtv1.VirtualMachineStatusProvisioning, kubevirtv1.VirtualMachineStatusWaitingForVolumeBinding:
		return reasonProvisioning, "waiting for the disks" + detail
	default:
		return "Starting", "waiting for the virtual machine to start" + detail
	}
}

// conditionMessage returns what KubeVirt reports about a virtual machine that does not run.
func conditionMessage(vm *kubevirtv1.VirtualMachine) string {
	for _, c := range vm.Status.Conditions {
		failure := c.Type == kubevirtv1.VirtualMachineFailure && c.Status == corev1.ConditionTrue
		unscheduled := string(c.Type) == string(corev1.PodScheduled) && c.Status == corev1.ConditionFalse
		unable := string(c.Type) == string(kubevirtv1.VirtualMachineInstanceSynchronized) && c.Status == corev1.ConditionFalse
		if (failure || unscheduled || unable) && c.Message != "" {
			return fmt.Sprintf(" (%s)", c.Message)
		}
	}
	return ""
}

// addInstanceState adds what the running instance reports.
func addInstanceState(s *hypervisor.State, vmi *kubevirtv1.VirtualMachineInstance) {
	s.VMIName, s.NodeName = vmi.Name, vmi.Status.NodeName
	for _, i := range vmi.Status.Interfaces {
		for _, text := range i.IPs {
			if a, err := netip.ParseAddr(text); err == nil && !a.IsLinkLocalUnicast() {
				s.GuestAddresses = append(s.GuestAddresses, a.String())
			}
		}
	}
	slices.Sort(s.GuestAddresses)
}

// pendingSize says which sockets and memory of a virtual machine its guest does not have yet, and what to do if KubeVirt does not start the live
// migration that they wait for. It is empty if the guest has them, or the migration is under way. KubeVirt has no condition of the virtual machine for that.
func pendingSize(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) string {
	if vm.Spec.Template == nil || isMigrating(vmi) {
		return ""
	}
	want, is := vm.Spec.Template.Spec.Domain, vmi.Status
	var waits []string
	if want.CPU != nil && is.CurrentCPUTopology != nil && want.CPU.Sockets != is.CurrentCPUTopology.Sockets {
		waits = append(waits, fmt.Sprintf("%d sockets instead of %d", want.CPU.Sockets, is.CurrentCPUTopology.Sockets))
	}
	if want.Memory != nil && want.Memory.Guest != nil && is.Memory != nil && is.Memory.GuestRequested != nil && !want.Memory.Guest.Equal(*is.Memory.GuestRequested) {
		waits = append(waits, fmt.Sprintf("%s of memory instead of %s", want.Memory.Guest, is.Memory.GuestRequested))
	}
	if len(waits) == 0 {
		return ""
	}
	return fmt.Sprintf("the machine gets %s by a live migration or at its next restart: if KubeVirt does not migrate it within a minute, write a new value into spec.restartToken, "+
		"or add LiveMigrate to spec.workloadUpdateStrategy.workloadUpdateMethods of KubeVirt, which migrates a machine with disks of access mode ReadWriteMany", strings.Join(waits, " and "))
}

// isMigrating reports whether a live migration of an instance is under way.
func isMigrating(vmi *kubevirtv1.VirtualMachineInstance) bool {
	return vmi.Status.MigrationState != nil && !vmi.Status.MigrationState.Completed
}

// unpluggedDisks says which disks of a running virtual machine are not plugged in yet, and
// what to do if KubeVirt does not plug them in. It is empty if all are.
func unpluggedDisks(vm *kubevirtv1.VirtualMachine, vmi *kubevirtv1.VirtualMachineInstance) string {
	if vm.Spec.Template == nil {
		return ""
	}
	var missing []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		if v.PersistentVolumeClaim == nil || !v.PersistentVolumeClaim.Hotpluggable {
			continue
		}
		plugged := slices.ContainsFunc(vmi.Status.VolumeStatus, func(s kubevirtv1.VolumeStatus) bool {
			return s.Name == v.Name && (s.HotplugVolume == nil || s.Phase == kubevirtv1.VolumeReady)
		})
		if !plugged {
			missing = append(missing, v.Name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("waiting for KubeVirt to plug in disk %s: if it does not within a minute, write a new value into spec.restartToken, or enable KubeVirt's feature gate DeclarativeHotplugVolumes", strings.Join(missing, ", "))
}

// withMissing adds the claims to some of a virtual machine that CDI has not created yet.
func withMissing(claims []corev1.PersistentVolumeClaim, vm *kubevirtv1.VirtualMachine) []corev1.PersistentVolumeClaim {
	all := slices.Clone(claims)
	for _, t := range vm.Spec.DataVolumeTemplates {
		if !slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == t.Name }) {
			all = append(all, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: t.Name}})
		}
	}
	return all
}

// pendingClaims says what disks wait for, and nothing if all are bound and as large as requested.
func pendingClaims(claims []corev1.PersistentVolumeClaim) string {
	var unbound, small []string
	for _, c := range claims {
		is := c.Status.Capacity[corev1.ResourceStorage]
		switch {
		case c.Status.Phase != corev1.ClaimBound:
			unbound = append(unbound, c.Name)
		case is.Cmp(*c.Spec.Resources.Requests.Storage()) < 0:
			small = append(small, c.Name)
		}
	}
	slices.Sort(unbound)
	slices.Sort(small)
	var waits []string
	if len(unbound) > 0 {
		waits = append(waits, "waiting for a volume for "+strings.Join(unbound, ", "))
	}
	if len(small) > 0 {
		waits = append(waits, "waiting for the volume to grow of "+strings.Join(small, ", "))
	}
	return strings.Join(waits, "; ")
}

// isDefaultClass marks the StorageClass that stands for no class.
const isDefaultClass = "storageclass.kubernetes.io/is-default-class"

// resolveClass returns the StorageClass of a disk: its own, the provider's default, or the
// cluster's. It returns a UserError if that does not exist.
func resolveClass(classes []storagev1.StorageClass, disk, provider string) (string, error) {
	exists := func(name string) bool {
		return slices.ContainsFunc(classes, func(c storagev1.StorageClass) bool { return c.Name == name })
	}
	name := disk
	if disk == "" || (disk == hypervisor.DefaultClass && !exists(hypervisor.DefaultClass)) {
		name = provider
	}
	if name != "" {
		if exists(name) {
			return name, nil
		}
		return "", reconcile.UserError{Reason: "StorageClassNotFound", Message: fmt.Sprintf("StorageClass %s does not exist: create it%s", name, otherClasses(classes))}
	}
	for _, c := range classes {
		if c.Annotations[isDefaultClass] == "true" {
			return c.Name, nil
		}
	}
	if len(classes) == 0 {
		return "", reconcile.UserError{Reason: "StorageClassNotFound", Message: fmt.Sprintf(
			"the cluster of KubeVirt has no StorageClass: create one with the annotation %s=true", isDefaultClass)}
	}
	return "", reconcile.UserError{Reason: "StorageClassNotFound", Message: fmt.Sprintf(
		"no StorageClass is the cluster's default: mark one with the annotation %s=true%s in the disk", isDefaultClass, otherClasses(classes))}
}

// otherClasses returns the part of a message that offers the existing StorageClasses, which is empty
// if there are none.
func otherClasses(classes []storagev1.StorageClass) string {
	if len(classes) == 0 {
		return ""
	}
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	slices.Sort(names)
	return ", or name one of " + strings.Join(names, ", ")
}

package kubevirt

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	virtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/tests/sim/kubevirt/admission"
)

// liveUpdate applies the machine's changes to its running instance as far as possible, and returns why
// a restart is required, or an empty string.
func (v *visit) liveUpdate(ctx context.Context) string {
	if v.vmi == nil || v.vmi.DeletionTimestamp != nil || v.vmi.IsFinal() {
		return ""
	}
	next := v.vmi.DeepCopy()
	why := applyLive(newInstance(v.vm, v.now), next, v.options, metav1.NewTime(v.now))
	written, err := v.api.vmis.patch(ctx, v.vmi, next)
	if err != nil {
		v.lookAgain(retryFirst)
		return why
	}
	v.vmi = written
	return why
}

// applyLive compares the instance that the machine would start now with the running one, and hotplugs
// sockets and memory. It returns KubeVirt's message about a change that it cannot apply.
func applyLive(wanted, running *virtv1.VirtualMachineInstance, o Options, now metav1.Time) string {
	plugVolumes(wanted, running, !o.NoVolumeHotplug)
	if !equality.Semantic.DeepEqual(neutral(wanted, running), running.Spec) {
		return "a non-live-updatable field was changed in the template spec"
	}
	if why := plugCPU(wanted.Spec.Domain.CPU, running, o.LiveMigrate, now); why != "" {
		return why
	}
	return plugMemory(wanted, running, o.LiveMigrate, now)
}

// neutral returns the wanted spec with the running instance's values for all that can change without a
// restart.
func neutral(wanted, running *virtv1.VirtualMachineInstance) virtv1.VirtualMachineInstanceSpec {
	spec := *wanted.Spec.DeepCopy()
	is := &running.Spec
	spec.NodeSelector, spec.Affinity, spec.Tolerations = is.NodeSelector, is.Affinity, is.Tolerations
	spec.StartStrategy = is.StartStrategy
	if spec.Domain.CPU != nil && is.Domain.CPU != nil {
		spec.Domain.CPU.Sockets, spec.Domain.CPU.MaxSockets = is.Domain.CPU.Sockets, is.Domain.CPU.MaxSockets
	}
	if spec.Domain.Memory != nil && is.Domain.Memory != nil {
		spec.Domain.Memory.Guest, spec.Domain.Memory.MaxGuest = is.Domain.Memory.Guest, is.Domain.Memory.MaxGuest
	}
	if spec.Domain.Firmware != nil && is.Domain.Firmware != nil {
		spec.Domain.Firmware.UUID = is.Domain.Firmware.UUID
	}
	return spec
}

// plugVolumes attaches and detaches volumes that are declared as hotpluggable, unless other volumes or
// disks changed as well. Without hotplug it changes nothing.
func plugVolumes(wanted, running *virtv1.VirtualMachineInstance, hotplug bool) {
	pluggable := map[string]bool{}
	for _, v := range append(slices.Clone(wanted.Spec.Volumes), running.Spec.Volumes...) {
		pluggable[v.Name] = pluggable[v.Name] || (v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.Hotpluggable) ||
			(v.DataVolume != nil && v.DataVolume.Hotpluggable)
	}
	fixedVolumes, fixedDisks := fixed(&wanted.Spec, pluggable)
	runningVolumes, runningDisks := fixed(&running.Spec, pluggable)
	if !equality.Semantic.DeepEqual(fixedVolumes, runningVolumes) || !equality.Semantic.DeepEqual(fixedDisks, runningDisks) {
		return
	}
	if !hotplug {
		wanted.Spec.Volumes, wanted.Spec.Domain.Devices.Disks = running.Spec.Volumes, running.Spec.Domain.Devices.Disks
		return
	}
	running.Spec.Volumes = wanted.Spec.Volumes
	running.Spec.Domain.Devices.Disks = wanted.Spec.Domain.Devices.Disks
}

// fixed returns the volumes and disks that are not hotpluggable.
func fixed(spec *virtv1.VirtualMachineInstanceSpec, pluggable map[string]bool) (volumes []virtv1.Volume, disks []virtv1.Disk) {
	for _, v := range spec.Volumes {
		if !pluggable[v.Name] {
			volumes = append(volumes, v)
		}
	}
	for _, d := range spec.Domain.Devices.Disks {
		if !pluggable[d.Name] {
			disks = append(disks, d)
		}
	}
	return volumes, disks
}

// plugCPU adds sockets. virt-controller writes them into the spec of the instance, and the guest gets them by a live migration: they remain
// pending if KubeVirt does not start one, and on an instance that cannot migrate (watch/vm/vm.go, handleCPUChangeRequest; watch/vmi/lifecycle.go,
// requireCPUHotplug; watch/workload-updater). Another change waits for the end of the first.
func plugCPU(wanted *virtv1.CPU, running *virtv1.VirtualMachineInstance, liveMigrate bool, now metav1.Time) string {
	is := running.Spec.Domain.CPU
	switch {
	case wanted == nil || is == nil || wanted.Sockets == is.Sockets, condition(running, virtv1.VirtualMachineInstanceVCPUChange) != nil:
		return ""
	case wanted.Sockets > is.MaxSockets:
		return "CPU sockets updated in template spec to a value higher than what's available"
	case wanted.Sockets < is.Sockets:
		return "Reduction of CPU socket count requires a restart"
	}
	is.Sockets = wanted.Sockets
	if !liveMigrate || !isMigratable(running) {
		setCondition(running, virtv1.VirtualMachineInstanceCondition{
			Type: virtv1.VirtualMachineInstanceVCPUChange, Status: corev1.ConditionTrue,
		}, now)
		return ""
	}
	running.Status.CurrentCPUTopology = &virtv1.CPUTopology{Sockets: is.Sockets, Cores: is.Cores, Threads: is.Threads}
	return ""
}

// plugMemory changes the guest's memory between its initial value and its maximum. It remains pending like sockets
// (watch/vm/vm.go, handleMemoryHotplugRequest; virt-handler/migration-target.go).
func plugMemory(wanted, running *virtv1.VirtualMachineInstance, liveMigrate bool, now metav1.Time) string {
	memory, status := wanted.Spec.Domain.Memory, running.Status.Memory
	is := running.Spec.Domain.Memory
	if memory == nil || memory.Guest == nil || is == nil || is.Guest == nil || status == nil || memory.Guest.Equal(*is.Guest) {
		return ""
	}
	switch {
	case !isMigratable(running):
		return "memory updated in template spec. Memory-hotplug is only available for migratable VMs"
	case is.MaxGuest == nil:
		return "memory updated in template spec. Memory-hotplug is not available for this VM configuration"
	case memory.Guest.Cmp(*is.MaxGuest) > 0:
		return "memory hotplug not supported, Guest memory is greater than the configured maxGuest memory"
	case admission.MemoryHotplugObstacle(&wanted.Spec, is.MaxGuest) != "":
		return "memory hotplug not supported, " + admission.MemoryHotplugObstacle(&wanted.Spec, is.MaxGuest)
	case status.GuestAtBoot != nil && memory.Guest.Cmp(*status.GuestAtBoot) < 0:
		return "memory updated in template spec to a value lower than what the VM started with"
	}
	if condition(running, virtv1.VirtualMachineInstanceMemoryChange) != nil {
		return ""
	}
	is.Guest = memory.Guest
	if !liveMigrate {
		setCondition(running, virtv1.VirtualMachineInstanceCondition{
			Type: virtv1.VirtualMachineInstanceMemoryChange, Status: corev1.ConditionTrue,
		}, now)
		return ""
	}
	status.GuestCurrent, status.GuestRequested = memory.Guest, memory.Guest
	return ""
}

func isMigratable(vmi *virtv1.VirtualMachineInstance) bool {
	c := condition(vmi, virtv1.VirtualMachineInstanceIsMigratable)
	return c != nil && c.Status == corev1.ConditionTrue
}

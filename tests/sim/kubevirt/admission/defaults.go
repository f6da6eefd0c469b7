// Package admission does what the webhooks of virt-api and CDI do to VirtualMachines, their instances
// and DataVolumes: it sets defaults, and rejects what the CustomResourceDefinitions accept, with the
// same messages.
//
// It follows KubeVirt 1.9.0 and CDI 1.65.0 on amd64 without feature gates. All functions are pure.
package admission

import (
	"strings"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	architecture = "amd64"
	machineType  = "q35"

	// hotplugRatio is how many times its initial CPU and memory a running machine can get.
	hotplugRatio = 4
	// maxHotplugCPUs limits the virtual CPUs that follow from the ratio.
	maxHotplugCPUs = 512

	// launcherUser is the user of a machine's process.
	launcherUser = 107
)

// DefaultMachine sets the defaults that virt-api adds to a machine when it is created, or updated if
// created is false. A second call changes nothing.
func DefaultMachine(vm *virtv1.VirtualMachine, created bool) {
	if vm.Spec.Template == nil {
		return // ValidateMachine rejects it
	}
	spec := &vm.Spec.Template.Spec
	if created {
		defaultFirmware(spec)
	}
	if spec.Architecture == "" {
		spec.Architecture = architecture
	}
	defaultMachineType(spec)
	if created && pcieHotplug(spec) {
		defaultTopologyVersion(&vm.Spec.Template.ObjectMeta)
	}
}

// DefaultInstance sets the defaults that virt-api adds to a new instance.
func DefaultInstance(vmi *virtv1.VirtualMachineInstance) {
	spec := &vmi.Spec
	defaultInstanceSpec(spec)
	virtv1.SetObjectDefaults_VirtualMachineInstance(vmi)
	defaultDiskBuses(spec)
	if spec.Domain.CPU.Model == "" {
		spec.Domain.CPU.Model = virtv1.DefaultCPUModel
	}
	if spec.EvictionStrategy == nil {
		spec.EvictionStrategy = new(virtv1.EvictionStrategyNone)
	}
	cpu := spec.Domain.CPU
	if memory := spec.Domain.Memory; memory != nil && memory.Guest != nil {
		vmi.Status.Memory = &virtv1.MemoryStatus{
			GuestAtBoot: memory.Guest, GuestCurrent: memory.Guest, GuestRequested: memory.Guest,
		}
	}
	vmi.Status.CurrentCPUTopology = &virtv1.CPUTopology{Sockets: cpu.Sockets, Cores: cpu.Cores, Threads: cpu.Threads}
	defaultHotplug(spec)
	if pcieHotplug(spec) {
		defaultTopologyVersion(&vmi.ObjectMeta)
	}
	vmi.Status.RuntimeUser = launcherUser
}

// defaultInstanceSpec sets the defaults with which a machine's template is validated.
func defaultInstanceSpec(spec *virtv1.VirtualMachineInstanceSpec) {
	if spec.Architecture == "" {
		spec.Architecture = architecture
	}
	defaultMachineType(spec)
	resources := &spec.Domain.Resources
	if !resources.Limits.Cpu().IsZero() && resources.Requests.Cpu().IsZero() {
		if resources.Requests == nil {
			resources.Requests = corev1.ResourceList{}
		}
		resources.Requests[corev1.ResourceCPU] = resources.Limits[corev1.ResourceCPU]
	}
	defaultGuestMemory(spec)
	defaultTopology(spec)
	defaultPullPolicies(spec)
	defaultNetwork(spec)
	defaultVolumeDisks(spec)
}

func defaultFirmware(spec *virtv1.VirtualMachineInstanceSpec) {
	if spec.Domain.Firmware == nil {
		spec.Domain.Firmware = &virtv1.Firmware{}
	}
	if spec.Domain.Firmware.UUID == "" {
		spec.Domain.Firmware.UUID = types.UID(uuid.NewString())
	}
	if spec.Domain.Firmware.Serial == "" {
		spec.Domain.Firmware.Serial = uuid.NewString()
	}
}

func defaultMachineType(spec *virtv1.VirtualMachineInstanceSpec) {
	if spec.Domain.Machine == nil {
		spec.Domain.Machine = &virtv1.Machine{}
	}
	if spec.Domain.Machine.Type == "" {
		spec.Domain.Machine.Type = machineType
	}
}

func pcieHotplug(spec *virtv1.VirtualMachineInstanceSpec) bool {
	return spec.Domain.Machine == nil || strings.Contains(spec.Domain.Machine.Type, "q35")
}

func defaultTopologyVersion(meta *metav1.ObjectMeta) {
	if _, ok := meta.Annotations[virtv1.PciTopologyVersionAnnotation]; ok {
		return
	}
	if meta.Annotations == nil {
		meta.Annotations = map[string]string{}
	}
	meta.Annotations[virtv1.PciTopologyVersionAnnotation] = virtv1.PciTopologyVersionV3
}

func defaultGuestMemory(spec *virtv1.VirtualMachineInstanceSpec) {
	if spec.Domain.Memory == nil {
		spec.Domain.Memory = &virtv1.Memory{}
	}
	if spec.Domain.Memory.Guest != nil {
		return
	}
	switch {
	case !spec.Domain.Resources.Requests.Memory().IsZero():
		spec.Domain.Memory.Guest = spec.Domain.Resources.Requests.Memory()
	case !spec.Domain.Resources.Limits.Memory().IsZero():
		spec.Domain.Memory.Guest = spec.Domain.Resources.Limits.Memory()
	case spec.Domain.Memory.Hugepages != nil:
		if size, err := resource.ParseQuantity(spec.Domain.Memory.Hugepages.PageSize); err == nil {
			spec.Domain.Memory.Guest = &size
		}
	}
}

// defaultTopology converts a CPU limit or request into sockets if there is no topology.
func defaultTopology(spec *virtv1.VirtualMachineInstanceSpec) {
	if spec.Domain.CPU == nil {
		spec.Domain.CPU = &virtv1.CPU{}
	}
	cpu := spec.Domain.CPU
	if cpu.Cores != 0 || cpu.Sockets != 0 || cpu.Threads != 0 {
		return
	}
	cpu.Sockets, cpu.Cores, cpu.Threads = 1, 1, 1
	if limit, ok := spec.Domain.Resources.Limits[corev1.ResourceCPU]; ok {
		cpu.Sockets = uint32(limit.Value())
	} else if request, ok := spec.Domain.Resources.Requests[corev1.ResourceCPU]; ok {
		cpu.Sockets = uint32(request.Value())
	}
}

func defaultPullPolicies(spec *virtv1.VirtualMachineInstanceSpec) {
	for _, v := range spec.Volumes {
		disk := v.ContainerDisk
		if disk == nil || disk.ImagePullPolicy != "" {
			continue
		}
		disk.ImagePullPolicy = corev1.PullIfNotPresent
		if strings.HasSuffix(disk.Image, ":latest") || !strings.ContainsAny(disk.Image, ":@") {
			disk.ImagePullPolicy = corev1.PullAlways
		}
	}
}

// defaultNetwork attaches the pod network to an instance without networks.
func defaultNetwork(spec *virtv1.VirtualMachineInstanceSpec) {
	auto := spec.Domain.Devices.AutoattachPodInterface
	if (auto != nil && !*auto) || len(spec.Networks) != 0 || len(spec.Domain.Devices.Interfaces) != 0 {
		return
	}
	spec.Domain.Devices.Interfaces = []virtv1.Interface{*virtv1.DefaultMasqueradeNetworkInterface()}
	spec.Networks = []virtv1.Network{*virtv1.DefaultPodNetwork()}
}

// defaultVolumeDisks adds a disk for each volume without a disk or file system.
func defaultVolumeDisks(spec *virtv1.VirtualMachineInstanceSpec) {
	used := map[string]bool{}
	for _, d := range spec.Domain.Devices.Disks {
		used[d.Name] = true
	}
	for _, f := range spec.Domain.Devices.Filesystems {
		used[f.Name] = true
	}
	for _, v := range spec.Volumes {
		if !used[v.Name] {
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks, virtv1.Disk{Name: v.Name})
		}
	}
}

func defaultDiskBuses(spec *virtv1.VirtualMachineInstanceSpec) {
	for i := range spec.Domain.Devices.Disks {
		d := &spec.Domain.Devices.Disks[i].DiskDevice
		switch {
		case d.Disk != nil && d.Disk.Bus == "":
			d.Disk.Bus = virtv1.DiskBusSATA
		case d.CDRom != nil && d.CDRom.Bus == "":
			d.CDRom.Bus = virtv1.DiskBusSATA
		case d.LUN != nil && d.LUN.Bus == "":
			d.LUN.Bus = virtv1.DiskBusSATA
		}
	}
}

// defaultHotplug sets the maximum CPU and memory of a running instance.
func defaultHotplug(spec *virtv1.VirtualMachineInstanceSpec) {
	cpu := spec.Domain.CPU
	if cpu.MaxSockets == 0 {
		cpu.MaxSockets = cpu.Sockets * hotplugRatio
		if perSocket := cpu.Cores * cpu.Threads; cpu.MaxSockets*perSocket > maxHotplugCPUs {
			cpu.MaxSockets = max(maxHotplugCPUs/perSocket, cpu.Sockets)
		}
	}
	memory := spec.Domain.Memory
	if memory == nil || memory.MaxGuest != nil || memory.Guest == nil {
		return
	}
	most := resource.NewQuantity(memory.Guest.Value()*hotplugRatio, resource.BinarySI)
	if MemoryHotplugObstacle(spec, most) == "" {
		memory.MaxGuest = most
	}
}

// MemoryHotplugObstacle returns why the memory of a running instance cannot grow to most, or an empty
// string if it can.
func MemoryHotplugObstacle(spec *virtv1.VirtualMachineInstanceSpec, most *resource.Quantity) string {
	const block, least = 2 << 20, 1 << 30
	domain := &spec.Domain
	alignment := int64(block)
	if domain.Memory != nil && domain.Memory.Hugepages != nil && domain.Memory.Hugepages.PageSize == "1Gi" {
		alignment = 1 << 30
	}
	aligned := resource.NewQuantity(alignment, resource.BinarySI)
	switch {
	case domain.CPU != nil && domain.CPU.Realtime != nil:
		return "Memory hotplug is not compatible with realtime VMs"
	case domain.CPU != nil && domain.CPU.NUMA != nil && domain.CPU.NUMA.GuestMappingPassthrough != nil:
		return "Memory hotplug is not compatible with guest mapping passthrough"
	case domain.LaunchSecurity != nil:
		return "Memory hotplug is not compatible with encrypted VMs"
	case domain.Memory == nil || domain.Memory.Guest == nil:
		return "Guest memory must be configured when memory hotplug is enabled"
	case most == nil:
		return "Max guest memory must be configured when memory hotplug is enabled"
	case domain.Memory.Guest.Cmp(*most) > 0:
		return "Guest memory is greater than the configured maxGuest memory"
	case domain.Memory.Guest.Value()%alignment != 0:
		return "Guest memory must be " + aligned.String() + " aligned"
	case most.Value()%alignment != 0:
		return "MaxGuest must be " + aligned.String() + " aligned"
	case spec.Architecture != architecture:
		return "Memory hotplug is only available for x86_64 VMs"
	case domain.Memory.Guest.Value() < least:
		return "Memory hotplug is only available for VMs with at least 1Gi of guest memory"
	}
	return ""
}

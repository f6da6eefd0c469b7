package admission

import (
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	notNegative = "%s '%s': must be greater than or equal to 0."
	notFound    = "%s '%s' not found."
)

// machineTypes are the patterns of the allowed machine types on amd64.
var machineTypes = []string{"q35*", "pc-q35*"}

func names(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	if spec.Hostname != "" {
		if wrong := validation.IsDNS1123Label(spec.Hostname); len(wrong) > 0 {
			c.invalid(at.Child("hostname"), "%s does not conform to the kubernetes DNS_LABEL rules : %s",
				at.Child("hostname"), strings.Join(wrong, ", "))
		}
	}
	if spec.Subdomain != "" {
		if wrong := validation.IsDNS1123Subdomain(spec.Subdomain); len(wrong) > 0 {
			c.invalid(at.Child("subdomain"), "%s does not conform to the kubernetes DNS_SUBDOMAIN rules : %s",
				at.Child("subdomain"), strings.Join(wrong, ", "))
		}
	}
	return c
}

func memory(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	request, limit := spec.Domain.Resources.Requests.Memory(), spec.Domain.Resources.Limits.Memory()
	atRequest := at.Child("domain", "resources", "requests", "memory")
	atLimit := at.Child("domain", "resources", "limits", "memory")
	switch {
	case request.Value() < 0:
		c.invalid(atRequest, notNegative, atRequest, request)
	case request.Value() > 0 && request.Cmp(resource.MustParse("1M")) < 0:
		c.invalid(atRequest, "%s '%s': must be greater than or equal to 1M.", atRequest, request)
	}
	if limit.Value() < 0 {
		c.invalid(atLimit, notNegative, atLimit, limit)
	}
	if limit.Value() > 0 && request.Value() > limit.Value() {
		c.invalid(atRequest, "%s '%s' is greater than %s '%s'", atRequest, request, atLimit, limit)
	}
	return c
}

func hugepages(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	if spec.Domain.Memory == nil || spec.Domain.Memory.Hugepages == nil {
		return nil
	}
	atSize := at.Child("domain", "memory", "hugepages", "pageSize")
	atRequest := at.Child("domain", "resources", "requests", "memory")
	text := spec.Domain.Memory.Hugepages.PageSize
	size, err := resource.ParseQuantity(text)
	if err != nil {
		c.invalid(atSize, "%s '%s': %s", atSize, text, resource.ErrFormatWrong)
		return c
	}
	request := spec.Domain.Resources.Requests.Memory()
	have := request.Value()
	if have == 0 {
		have = spec.Domain.Memory.Guest.Value()
	}
	if have == 0 {
		have = spec.Domain.Resources.Limits.Memory().Value()
	}
	switch {
	case have != 0 && have < size.Value():
		c.invalid(atRequest, "%s '%s' must be equal to or larger than page size %s '%s'", atRequest, request, atSize, text)
	case size.Value() != 0 && have%size.Value() != 0:
		c.invalid(atRequest, "%s '%s' is not a multiple of the page size %s '%s'", atRequest, request, atSize, text)
	}
	return c
}

// memoryGiven checks that an instance has memory. The template of a machine may omit it.
func memoryGiven(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	m := spec.Domain.Memory
	if spec.Domain.Resources.Requests.Memory().Value() != 0 || (m != nil && (m.Guest != nil || m.Hugepages != nil)) {
		return nil
	}
	c.required(nil, "no memory requested, at least one of '%s', '%s' or '%s' must be set",
		at.Child("domain", "memory", "guest"), at.Child("domain", "memory", "hugepages", "pageSize"),
		at.Child("domain", "resources", "requests", "memory"))
	return c
}

func emulatedMachine(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	machine := spec.Domain.Machine
	if machine == nil || machine.Type == "" {
		return nil
	}
	allowed := func(pattern string) bool {
		ok, _ := filepath.Match(pattern, machine.Type)
		return ok
	}
	if !slices.ContainsFunc(machineTypes, allowed) {
		atType := at.Child("domain", "machine", "type")
		c.invalid(atType, "%s is not supported: %s (allowed values: %v)", atType, machine.Type, machineTypes)
	}
	return c
}

func acpiTables(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	if spec.Domain.Firmware == nil || spec.Domain.Firmware.ACPI == nil {
		return nil
	}
	at = at.Child("acpi")
	acpi := spec.Domain.Firmware.ACPI
	if acpi.SlicNameRef == "" && acpi.MsdmNameRef == "" {
		c.invalid(at, "ACPI was set but no SLIC nor MSDM volume reference was set")
		return c
	}
	for _, ref := range []struct{ name, field string }{{acpi.SlicNameRef, "slicNameRef"}, {acpi.MsdmNameRef, "msdmNameRef"}} {
		if ref.name == "" {
			continue
		}
		i := slices.IndexFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.Name == ref.name })
		switch {
		case i < 0:
			c.invalid(at.Child(ref.field), "%s does not have a matching Volume.", at)
		case spec.Volumes[i].Secret == nil:
			c.invalid(at.Child(ref.field), "%s refers to Volume of unsupported type.", at)
		}
	}
	return c
}

func cpuResources(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	request, limit := spec.Domain.Resources.Requests.Cpu(), spec.Domain.Resources.Limits.Cpu()
	atRequest := at.Child("domain", "resources", "requests", "cpu")
	atLimit := at.Child("domain", "resources", "limits", "cpu")
	if request.MilliValue() < 0 {
		c.invalid(atRequest, notNegative, atRequest, request)
	}
	if limit.MilliValue() < 0 {
		c.invalid(atLimit, notNegative, atLimit, limit)
	}
	if limit.MilliValue() > 0 && request.MilliValue() > limit.MilliValue() {
		c.invalid(atRequest, "%s '%s' is greater than %s '%s'", atRequest, request, atLimit, limit)
	}
	return c
}

func cpuPinning(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	cpu := spec.Domain.CPU
	if cpu == nil || !cpu.DedicatedCPUPlacement {
		return nil
	}
	r := spec.Domain.Resources
	resources, atDedicated := at.Child("domain", "resources"), at.Child("domain", "cpu", "dedicatedCpuPlacement")
	for _, side := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", r.Requests}, {"limits", r.Limits}} {
		if v := side.list.Cpu(); v.Value() > 0 && v.Value()*1000 != v.MilliValue() {
			c.invalid(resources.Child(side.name, "cpu"), "provided resources CPU %s must be an interger", side.name)
		}
	}
	if rq, l := r.Requests.Memory().Value(), r.Limits.Memory().Value(); rq > 0 && l > 0 && rq != l {
		c.invalid(resources.Child("requests", "memory"), "%s must be equal to %s",
			resources.Child("requests", "memory"), resources.Child("limits", "memory"))
	}
	if rq, l := r.Requests.Cpu().Value(), r.Limits.Cpu().Value(); rq > 0 && l > 0 && rq != l {
		c.invalid(atDedicated, "%s or %s must be equal when DedicatedCPUPlacement is true ",
			resources.Child("requests", "cpu"), resources.Child("limits", "cpu"))
	}
	if cpu.Threads > 2 {
		c.invalid(atDedicated, "Not more than two threads must be provided at %v (got %v) when DedicatedCPUPlacement is true",
			at.Child("domain", "cpu", "threads"), cpu.Threads)
	}
	return c
}

func numa(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	cpu := spec.Domain.CPU
	if cpu == nil {
		return nil
	}
	at = at.Child("domain")
	mapping := at.Child("cpu", "numa", "guestMappingPassthrough")
	if cpu.NUMA != nil && cpu.NUMA.GuestMappingPassthrough != nil {
		if !cpu.DedicatedCPUPlacement {
			c.invalid(mapping, "%s must be set to true when NUMA topology strategy is set in %s",
				at.Child("cpu", "dedicatedCpuPlacement"), mapping)
		}
		if spec.Domain.Memory == nil || spec.Domain.Memory.Hugepages == nil {
			c.invalid(mapping, "%s must be requested when NUMA topology strategy is set in %s",
				at.Child("memory", "hugepages"), mapping)
		}
	}
	if cpu.Realtime == nil {
		return c
	}
	if !cpu.DedicatedCPUPlacement {
		c.required(at.Child("cpu", "dedicatedCpuPlacement"), "%s must be set to true when %s is used",
			at.Child("cpu", "dedicatedCpuPlacement"), at.Child("cpu", "realtime"))
	}
	if cpu.NUMA == nil || cpu.NUMA.GuestMappingPassthrough == nil {
		c.required(mapping, "%s must be defined when %s is used", mapping, at.Child("cpu", "realtime"))
	}
	return c
}

func cpuTopology(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	cpu := spec.Domain.CPU
	if cpu == nil {
		return nil
	}
	at = at.Child("domain", "cpu")
	if cpu.IsolateEmulatorThread && !cpu.DedicatedCPUPlacement {
		c.invalid(at.Child("isolateEmulatorThread"), "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement")
	}
	policies := []string{"", "force", "require", "optional", "disable", "forbid"}
	for i, f := range cpu.Features {
		if !slices.Contains(policies, f.Policy) {
			c.unsupported(at.Child("features").Index(i).Child("policy"), "CPU feature %s uses policy %s that is not supported.", f.Name, f.Policy)
		}
	}
	if cpu.MaxSockets != 0 && cpu.Sockets > cpu.MaxSockets {
		c.invalid(at.Child("sockets"), "Number of sockets in CPU topology is greater than the maximum sockets allowed")
	}
	return c
}

// domain checks disks and firmware.
func domain(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	at = at.Child("domain")
	d := &spec.Domain
	c := disks(at.Child("devices", "disks"), d.Devices.Disks)
	c = append(c, firmware(at.Child("firmware"), d.Firmware)...)
	encrypted := d.LaunchSecurity != nil && d.LaunchSecurity.TDX != nil
	if secureBoot(d.Firmware) && !systemManagement(d.Features) && !encrypted {
		c.invalid(at, "%s has EFI SecureBoot enabled. SecureBoot requires SMM, which is currently disabled.", at)
	}
	return c
}

// secureBoot reports whether secure boot is on. It is the default with EFI.
func secureBoot(f *virtv1.Firmware) bool {
	if f == nil || f.Bootloader == nil || f.Bootloader.EFI == nil {
		return false
	}
	return f.Bootloader.EFI.SecureBoot == nil || *f.Bootloader.EFI.SecureBoot
}

func systemManagement(f *virtv1.Features) bool {
	return f != nil && f.SMM != nil && (f.SMM.Enabled == nil || *f.SMM.Enabled)
}

func firmware(at *field.Path, f *virtv1.Firmware) Causes {
	var c Causes
	if f == nil {
		return nil
	}
	if b := f.Bootloader; b != nil && b.EFI != nil && b.BIOS != nil {
		c.invalid(at.Child("bootloader"), "%s has both EFI and BIOS configured, but they are mutually exclusive.", at.Child("bootloader"))
	}
	return append(c, kernelBoot(at.Child("kernelBoot"), f.KernelBoot)...)
}

func kernelBoot(at *field.Path, k *virtv1.KernelBoot) Causes {
	var c Causes
	if k == nil {
		return nil
	}
	if k.Container == nil {
		if k.KernelArgs != "" {
			c.invalid(at.Child("kernelArgs"), "kernel arguments cannot be provided without an external kernel")
		}
		return c
	}
	at = at.Child("container")
	if k.Container.Image == "" {
		c.required(at.Child("image"), "%s must be defined with an image", at)
	}
	if k.Container.InitrdPath == "" && k.Container.KernelPath == "" {
		c.required(at, "%s must be defined with at least one of the following: kernelPath, initrdPath", at)
	}
	for name, path := range map[string]string{"kernelPath": k.Container.KernelPath, "initrdPath": k.Container.InitrdPath} {
		if path != "" {
			c = append(c, absolutePath(at.Child(name), path)...)
		}
	}
	return c
}

func startStrategy(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	if spec.StartStrategy == nil {
		return nil
	}
	at, live := at.Child("startStrategy"), at.Child("livenessProbe")
	switch {
	case *spec.StartStrategy != virtv1.StartStrategyPaused:
		c.invalid(at, "%s is set with an unrecognized option: %s", at, *spec.StartStrategy)
	case spec.LivenessProbe != nil:
		c.invalid(at, "either %s or %s should be provided.Pausing VMI with LivenessProbe is not supported", at, live)
	}
	return c
}

func perArchitecture(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	switch spec.Architecture {
	case architecture:
	case "arm64", "s390x":
		return nil
	default:
		c.invalid(at.Child("architecture"), "unsupported architecture: %s", spec.Architecture)
		return c
	}
	at = at.Child("domain", "devices")
	if w := spec.Domain.Devices.Watchdog; w != nil && (w.I6300ESB == nil || w.Diag288 != nil) {
		c.unsupported(at.Child("watchdog"), "amd64 only supports I6300ESB watchdog device")
	}
	if v := spec.Domain.Devices.Video; v != nil && !slices.Contains([]string{"vga", "cirrus", "virtio", "ramfb", "bochs"}, v.Type) {
		c.unsupported(at.Child("video", "type"), "video model '%s' is not supported on amd64 architecture", v.Type)
	}
	return c
}

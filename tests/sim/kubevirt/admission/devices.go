package admission

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	maxSerial    = 256
	minBlockSize = 512
	maxBlockSize = 2 << 20
)

var (
	serialPattern = regexp.MustCompile(`^[A-Za-z0-9_.+-]+$`)
	pciPattern    = regexp.MustCompile(`^([\da-fA-F]{4}):([\da-fA-F]{2}):([\da-fA-F]{2})\.([0-7]{1})$`)

	diskBuses = []virtv1.DiskBus{virtv1.DiskBusVirtio, virtv1.DiskBusSCSI, virtv1.DiskBusSATA, virtv1.DiskBusUSB}
)

// bootOrder checks that disks have volumes, and that no two devices have the same boot order.
func bootOrder(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	const taken = "Boot order for %s already set for a different device."
	used := map[uint]bool{}
	for i, d := range spec.Domain.Devices.Disks {
		here := at.Child("domain", "devices", "disks").Index(i)
		v := slices.IndexFunc(spec.Volumes, func(v virtv1.Volume) bool { return v.Name == d.Name })
		if v < 0 && d.CDRom == nil { // a CD drive may be empty
			c.invalid(here.Child("name"), notFound, here.Child("Name"), d.Name)
		}
		if d.LUN != nil && v >= 0 && spec.Volumes[v].PersistentVolumeClaim == nil && spec.Volumes[v].DataVolume == nil {
			c.invalid(here.Child("lun"), "%s can only be mapped to a DataVolume or PersistentVolumeClaim volume.", here.Child("lun"))
		}
		if d.BootOrder == nil {
			continue
		}
		if used[*d.BootOrder] {
			c.invalid(here.Child("bootOrder"), taken, here.Child("bootOrder"))
		}
		used[*d.BootOrder] = true
	}
	for i, n := range spec.Domain.Devices.Interfaces {
		if n.BootOrder == nil {
			continue
		}
		here := at.Child("domain", "devices", "interfaces").Index(i).Child("bootOrder")
		if *n.BootOrder < 1 {
			c.invalid(at.Index(i).Child("bootOrder"), "%s must have a boot order > 0, if supplied", at.Index(i))
			continue
		}
		if used[*n.BootOrder] {
			c.invalid(here, taken, here)
		}
		used[*n.BootOrder] = true
	}
	return c
}

func disks(at *field.Path, all []virtv1.Disk) Causes {
	var c Causes
	for i := range all {
		c = append(c, disk(at, i, all)...)
	}
	return c
}

func disk(at *field.Path, i int, all []virtv1.Disk) Causes {
	var c Causes
	d, here := all[i], at.Index(i)
	for other := range i {
		if all[other].Name == d.Name {
			c.invalid(here.Child("name"), "%s and %s must not have the same Name.", here, at.Index(other))
		}
	}
	targets := 0
	for _, set := range []bool{d.Disk != nil, d.LUN != nil, d.CDRom != nil} {
		if set {
			targets++
		}
	}
	if targets > 1 {
		c.invalid(here, "%s can only have a single target type defined", here)
	}
	c = append(c, diskAddress(at, i, d)...)
	if d.BootOrder != nil && *d.BootOrder < 1 {
		c.invalid(here.Child("bootOrder"), "%s must have a boot order > 0, if supplied", here)
	}
	c = append(c, diskBus(at, i, d)...)
	if d.Serial != "" && !serialPattern.MatchString(d.Serial) {
		c.invalid(here.Child("serial"), "%s must be made up of the following characters [A-Za-z0-9_.+-], if specified", here)
	}
	if len([]rune(d.Serial)) > maxSerial {
		c.invalid(here.Child("serial"), "%s must be less than or equal to %d in length, if specified", here, maxSerial)
	}
	if !slices.Contains([]virtv1.DriverCache{"", virtv1.CacheNone, virtv1.CacheWriteThrough, virtv1.CacheWriteBack}, d.Cache) {
		c.invalid(here.Child("cache"), "%s has invalid value %s", here.Child("cache"), d.Cache)
	}
	inDevices := at.Child("domain", "devices", "disks").Index(i) // virt-api repeats the path here
	if !slices.Contains([]virtv1.DriverIO{"", virtv1.IONative, virtv1.IOThreads}, d.IO) {
		c.unsupported(inDevices.Child("io"), "Disk IO mode for %s is not supported. Supported modes are: native, threads.", at)
	}
	policies := []virtv1.DiskErrorPolicy{
		virtv1.DiskErrorPolicyStop, virtv1.DiskErrorPolicyIgnore, virtv1.DiskErrorPolicyReport, virtv1.DiskErrorPolicyEnospace,
	}
	if d.ErrorPolicy != nil && !slices.Contains(policies, *d.ErrorPolicy) {
		c.invalid(here.Child("errorPolicy"), "%s has invalid value \"%s\"", here.Child("errorPolicy"), *d.ErrorPolicy)
	}
	for _, wrong := range validation.IsDNS1123Label(d.Name) {
		c.invalid(inDevices.Child("name"), "%s", wrong)
	}
	return append(c, blockSize(here, d)...)
}

func diskAddress(at *field.Path, i int, d virtv1.Disk) Causes {
	var c Causes
	if d.Disk == nil || d.Disk.PciAddress == "" {
		return nil
	}
	here := at.Child("domain", "devices", "disks", "disk").Index(i)
	if d.Disk.Bus != virtv1.DiskBusVirtio {
		c.invalid(here.Child("pciAddress"), "disk %s - setting a PCI address is only possible with bus type virtio.", here.Child("name"))
	}
	if !pciPattern.MatchString(d.Disk.PciAddress) {
		c.invalid(here.Child("pciAddress"), "disk %s has malformed PCI address (%s).", here.Child("name"), d.Disk.PciAddress)
	}
	return c
}

func diskBus(at *field.Path, i int, d virtv1.Disk) Causes {
	var c Causes
	var bus virtv1.DiskBus
	kind := ""
	switch {
	case d.Disk != nil:
		bus, kind = d.Disk.Bus, "disk"
	case d.LUN != nil:
		bus, kind = d.LUN.Bus, "lun"
	case d.CDRom != nil:
		bus, kind = d.CDRom.Bus, "cdrom"
	}
	here := at.Index(i)
	switch {
	case bus == "":
		return nil
	case bus == "ide":
		c.invalid(here.Child(kind, "bus"), "IDE bus is not supported")
	case bus == virtv1.DiskBusVirtio && kind == "cdrom":
		c.invalid(here.Child("cdrom", "bus"), "Bus type %s is invalid for CD-ROM device", bus)
	case bus == virtv1.DiskBusSATA && d.Disk != nil && d.Disk.ReadOnly:
		c.invalid(here.Child("disk", "bus"), "%s hard-disks do not support read-only.", bus)
	case !slices.Contains(diskBuses, bus):
		c.invalid(here.Child(kind, "bus"), "%s is set with an unrecognized bus %s, must be one of: %v", here, bus, diskBuses)
	}
	if d.DedicatedIOThread != nil && *d.DedicatedIOThread && bus != virtv1.DiskBusVirtio {
		c.unsupported(at.Child("domain", "devices", "disks").Index(i), "IOThreads are not supported for disks on a %s bus", bus)
	}
	return c
}

func blockSize(here *field.Path, d virtv1.Disk) Causes {
	var c Causes
	if d.BlockSize == nil || d.BlockSize.Custom == nil {
		return nil
	}
	here = here.Child("blockSize")
	if m := d.BlockSize.MatchVolume; m != nil && (m.Enabled == nil || *m.Enabled) {
		c.invalid(here, "Block size matching can't be enabled together with a custom value")
		return c
	}
	here, custom := here.Child("custom"), d.BlockSize.Custom
	if custom.Logical > custom.Physical {
		c.invalid(here.Child("logical"), "Logical size %d must be the same or less than the physical size of %d", custom.Logical, custom.Physical)
		return c
	}
	for name, size := range map[string]uint{"logical": custom.Logical, "physical": custom.Physical} {
		switch {
		case size < minBlockSize:
			c.invalid(here.Child(name), "Provided size of %d is less than the supported minimum size of %d", size, minBlockSize)
		case size > maxBlockSize:
			c.invalid(here.Child(name), "Provided size of %d is greater than the supported maximum size of %d", size, maxBlockSize)
		case size&(size-1) != 0:
			c.invalid(here.Child(name), "Provided size of %d is not a power of 2", size)
		}
	}
	return c
}

func inputs(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	for i, input := range spec.Domain.Devices.Inputs {
		here := at.Child("domain", "devices", "inputs").Index(i)
		if !slices.Contains([]virtv1.InputBus{"", virtv1.InputBusVirtio, virtv1.InputBusUSB}, input.Bus) {
			c.invalid(here.Child("bus"), "Input device can have only virtio or usb bus.")
		}
		if input.Type != virtv1.InputTypeTablet {
			c.invalid(here.Child("type"), "Input device can have only tablet type.")
		}
	}
	return c
}

func ioThreads(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	policy := spec.Domain.IOThreadsPolicy
	if policy == nil {
		return nil
	}
	known := []virtv1.IOThreadsPolicy{virtv1.IOThreadsPolicyShared, virtv1.IOThreadsPolicyAuto, virtv1.IOThreadsPolicySupplementalPool}
	if !slices.Contains(known, *policy) {
		c.invalid(at.Child("domain", "ioThreadsPolicy"), "Invalid IOThreadsPolicy (%s)", *policy)
	}
	threads := spec.Domain.IOThreads
	if *policy == virtv1.IOThreadsPolicySupplementalPool &&
		(threads == nil || threads.SupplementalPoolThreadCount == nil || *threads.SupplementalPoolThreadCount < 1) {
		c.invalid(at.Child("domain", "ioThreads", "count"), "the number of iothreads needs to be set and positive for the dedicated policy")
	}
	return c
}

// gatedDevices rejects devices whose feature gates are off by default.
func gatedDevices(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	devices := spec.Domain.Devices
	if devices.HostDevices != nil {
		c.invalid(at.Child("HostDevices"), "Host Devices feature gate is not enabled in kubevirt-config")
	}
	if vsock := devices.AutoattachVSOCK; vsock != nil && *vsock {
		c.invalid(at.Child("domain", "devices", "autoattachVSOCK"), "VSOCK feature gate is not enabled in kubevirt-config")
	}
	if devices.DownwardMetrics != nil {
		c.invalid(at.Child("domain", "devices", "downwardMetrics"),
			"downwardMetrics virtio serial is not allowed: DownwardMetrics feature gate is not enabled")
	}
	for _, fs := range devices.Filesystems {
		for _, v := range spec.Volumes {
			if v.Name == fs.Name && (v.PersistentVolumeClaim != nil || v.DataVolume != nil) {
				c.invalid(at.Child("domain", "devices", "filesystems"), "virtiofs is not allowed: virtiofs feature gate is not enabled for PVC")
			}
		}
	}
	if m := spec.Domain.Memory; m != nil && m.ReservedOverhead != nil {
		c.invalid(at.Child("domain", "memory", "reservedOverhead"), "Reserved overhead memlock feature gate is not enabled in kubevirt-config")
	}
	return c
}

func soundAndVideo(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	devices := spec.Domain.Devices
	if s := devices.Sound; s != nil {
		if !slices.Contains([]string{"", "ich9", "ac97"}, s.Model) {
			c.invalid(at.Child("Sound"), "Sound device type is not supported. Options: 'ich9' or 'ac97'")
		}
		if s.Name == "" {
			c.invalid(at.Child("Sound"), "Sound device requires a name field.")
		}
	}
	if graphics := devices.AutoattachGraphicsDevice; devices.Video != nil && graphics != nil && !*graphics {
		c.invalid(at.Child("video"), "Video configuration is not allowed when autoattachGraphicsDevice is set to false")
	}
	return c
}

func panicDevices(at *field.Path, spec *virtv1.VirtualMachineInstanceSpec) Causes {
	var c Causes
	known := []virtv1.PanicDeviceModel{virtv1.Hyperv, virtv1.Isa, virtv1.Pvpanic}
	for i, d := range spec.Domain.Devices.PanicDevices {
		if d.Model != nil && !slices.Contains(known, *d.Model) {
			c.invalid(at.Child("domain", "devices", "panicDevices").Index(i).Child("model"), "invalid PanicDeviceModel(%s)", *d.Model)
		}
	}
	return c
}

func absolutePath(at *field.Path, path string) Causes {
	var c Causes
	switch {
	case path == "/":
		c.invalid(at, "%s must not point to root", at)
	case filepath.Join("/", path) != strings.TrimSuffix(path, "/"):
		c.invalid(at, "%s must be an absolute path to a file without relative components", at)
	}
	return c
}

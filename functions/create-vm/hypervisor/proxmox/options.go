package proxmox

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// megabytes returns the memory of a machine in MiB, rounded up.
func megabytes(want hypervisor.Desired) int64 {
	return ceilUnits(want.Memory.Value(), 1<<20)
}

// gigabytes returns the size of a disk in GiB, rounded up, because Proxmox VE creates disks of whole GiB.
func gigabytes(d hypervisor.Disk) int64 {
	return ceilUnits(d.Size.Value(), 1<<30)
}

// ceilUnits divides a positive value by a unit, and rounds up.
func ceilUnits(value, unit int64) int64 { return (value-1)/unit + 1 }

const (
	cdrom      = "ide0"
	cloudDrive = "ide2"
)

// updatableOptions returns the options that follow the spec of a machine.
func updatableOptions(m *v1alpha1.Machine, want hypervisor.Desired) map[string]string {
	return map[string]string{
		"cores": strconv.Itoa(int(want.Cores * want.Threads)), "sockets": strconv.Itoa(int(want.Sockets)), "memory": strconv.FormatInt(megabytes(want), 10),
		"protection": formatValue(m.Spec.Protected), "tags": machineTags(m), "description": machineDescription(m),
		"onboot": formatValue(m.Spec.PowerState != v1alpha1.PowerStopped),
	}
}

// creationOptions returns the options that do not change after the creation. Threads count as cores,
// because Proxmox VE has no threads.
func (s settings) creationOptions(m *v1alpha1.Machine, want hypervisor.Desired, cd firstBootConfig) map[string]string {
	o := map[string]string{
		"name": hostname(m), "cpu": cmp.Or(s.options.CPUType, "x86-64-v2-AES"), "numa": "0", "balloon": "0", "agent": "enabled=1", "scsihw": "virtio-scsi-single", "ostype": "l26",
		"machine": "q35", "bios": "seabios", "serial0": "socket",
	}
	if d := m.Spec.Domain; d != nil {
		if d.Machine != nil && d.Machine.Type == "pc-i440fx" {
			o["machine"] = "pc"
		}
		if f := d.Features; f != nil && f.HyperV != nil && *f.HyperV {
			o["ostype"] = "win11"
		}
		if f := d.Features; f != nil && f.ACPI != nil && !*f.ACPI {
			o["acpi"] = "0"
		}
		if d.Firmware != nil && d.Firmware.Bootloader.EFI {
			o["bios"] = "ovmf"
		}
	}
	for i, n := range want.NICs {
		o["net"+strconv.Itoa(i)] = s.networkOption(n)
	}
	for key, value := range cd.options {
		o[key] = value
	}
	if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" {
		o[cdrom] = m.Spec.OS.ISOURI + ",media=cdrom"
	}
	o["boot"] = "order=" + strings.Join(bootDevices(m, want), ";")
	return o
}

// networkOption returns the option of a network interface.
func (s settings) networkOption(n hypervisor.NIC) string {
	model := cmp.Or(string(n.Model), "virtio")
	value := fmt.Sprintf("%s=%s,bridge=%s", model, strings.ToUpper(n.MAC), s.bridgeName(n))
	if n.VLAN != 0 {
		value += fmt.Sprintf(",tag=%d", n.VLAN)
	}
	value += ",firewall=1"
	if n.MTU != 0 && model == "virtio" {
		value += fmt.Sprintf(",mtu=%d", n.MTU)
	}
	return value
}

// bootDevices returns the devices to boot from. Without an order the disk comes before the CD, so an
// installer runs only while the disk is empty.
func bootDevices(m *v1alpha1.Machine, want hypervisor.Desired) []string {
	order := m.Spec.BootOrder
	if len(order) == 0 {
		order = []v1alpha1.BootDevice{v1alpha1.BootDisk, v1alpha1.BootCDROM}
	}
	var devices []string
	for _, kind := range order {
		switch kind {
		case v1alpha1.BootDisk:
			for i := range want.Disks {
				devices = append(devices, "scsi"+strconv.Itoa(i))
			}
		case v1alpha1.BootNetwork:
			for i := range want.NICs {
				devices = append(devices, "net"+strconv.Itoa(i))
			}
		case v1alpha1.BootCDROM:
			if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" {
				devices = append(devices, cdrom)
			}
		}
	}
	return devices
}

// newDiskOptions returns the options of the disks of a new machine. image is the volume that the first
// disk is copied from, or empty.
func newDiskOptions(m *v1alpha1.Machine, want hypervisor.Desired, storages []string, image string) map[string]string {
	o := map[string]string{}
	for i, d := range want.Disks {
		value := newDiskOption(d, storages[i])
		if i == 0 && image != "" {
			value = fmt.Sprintf("%s:0,import-from=%s%s", storages[0], image, diskSuffix(d))
		}
		o["scsi"+strconv.Itoa(i)] = value
	}
	if d := m.Spec.Domain; d != nil && d.Firmware != nil && d.Firmware.Bootloader.EFI {
		o["efidisk0"] = storages[0] + ":1,efitype=4m,pre-enrolled-keys=" + formatValue(d.Firmware.Bootloader.SecureBoot)
	}
	return o
}

// newDiskOption returns the option of a new disk on a storage.
func newDiskOption(d hypervisor.Disk, storage string) string {
	return fmt.Sprintf("%s:%d%s", storage, gigabytes(d), diskSuffix(d))
}

// diskSuffix returns the properties of a disk. Its serial number identifies the disk later.
func diskSuffix(d hypervisor.Disk) string {
	return ",serial=" + diskSerial(d.Name) + ",discard=on,iothread=1"
}

// diskSerial returns the serial number of a disk with a name: the name, or its beginning and a hash if QEMU would not start a disk
// with so long a serial number.
func diskSerial(name string) string {
	const longest = 20
	if len(name) <= longest {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := fmt.Sprintf("-%x", sum[:4])
	return name[:longest-len(hash)] + hash
}

// ipConfigOption returns the addresses of an interface for cloud-init: of each family the first
// address and the first gateway.
func ipConfigOption(n hypervisor.NIC) string {
	if !n.Static {
		return "ip=dhcp"
	}
	first := map[string]string{}
	for _, a := range slices.Backward(n.Addresses) {
		first["ip"+familySuffix(a.Addr())] = a.String()
	}
	for _, g := range slices.Backward(n.Gateways) {
		first["gw"+familySuffix(g)] = g.String()
	}
	var parts []string
	for _, key := range []string{"ip", "ip6", "gw", "gw6"} {
		if first[key] != "" {
			parts = append(parts, key+"="+first[key])
		}
	}
	return strings.Join(parts, ",")
}

// familySuffix is 6 for an IPv6 address, and empty for an IPv4 address.
func familySuffix(a netip.Addr) string {
	if a.Is6() {
		return "6"
	}
	return ""
}

// bridgeName returns the bridge of an interface.
func (s settings) bridgeName(n hypervisor.NIC) string {
	return cmp.Or(n.Bridge, s.defaults.Bridge, "vmbr0")
}

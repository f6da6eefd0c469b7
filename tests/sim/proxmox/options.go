package proxmox

// The maximum numbers of devices of a virtual machine.
const (
	maxIDE, maxSATA, maxSCSI, maxVirtIO = 4, 6, 31, 16
	maxNICs, maxUnused                  = 32, 256
)

// nicModels are the models of network cards.
var nicModels = []string{
	"e1000", "e1000-82540em", "e1000-82544gc", "e1000-82545em", "e1000e", "i82551", "i82557b", "i82559er",
	"ne2k_isa", "ne2k_pci", "pcnet", "rtl8139", "virtio", "vmxnet3",
}

// nicFormat is the property string of net0 and its like.
var nicFormat = func() schema {
	s := schema{
		"bridge": text().with(isBridge), "firewall": boolean(), "link_down": boolean(), "macaddr": text().with(isMAC),
		"model": text().oneOf(nicModels...).byDefault().must(), "mtu": integer().from(1).to(65520),
		"queues": integer().from(0).to(64), "rate": number().from(0), "tag": integer().from(1).to(4094),
		"trunks": text().like(`\d+(?:-\d+)?(?:;\d+(?:-\d+)?)*`),
	}
	for _, model := range nicModels {
		s[model] = rule{alias: "macaddr", keyAlias: "model"}
	}
	return s
}()

// diskFormat is the property string of a drive.
var diskFormat = func() schema {
	s := schema{
		"file": text().byDefault().must(), "volume": {alias: "file"},
		"aio": text().oneOf("native", "threads", "io_uring"), "backup": boolean(),
		"cache":         text().oneOf("none", "writethrough", "writeback", "unsafe", "directsync"),
		"detect_zeroes": boolean(), "discard": text().oneOf("ignore", "on"),
		"format": text().oneOf("raw", "qcow", "qed", "qcow2", "vmdk", "cloop"), "import-from": text(),
		"media": text().oneOf("cdrom", "disk"), "replicate": boolean(), "rerror": text().oneOf("ignore", "report", "stop"),
		"werror": text().oneOf("enospc", "ignore", "report", "stop"), "serial": text().atMost(60).with(isURLEncoded),
		"shared": boolean(), "size": text().with(isDiskSize), "snapshot": boolean(), "trans": text().oneOf("none", "lba", "auto"),
	}
	for _, limit := range []string{"bps", "bps_rd", "bps_wr", "iops", "iops_max", "iops_rd", "iops_rd_max", "iops_wr", "iops_wr_max"} {
		s[limit] = integer()
	}
	for _, limit := range []string{"bps_max_length", "bps_rd_max_length", "bps_wr_max_length", "iops_max_length", "iops_rd_max_length", "iops_wr_max_length"} {
		s[limit] = integer().from(1)
	}
	for _, limit := range []string{"mbps", "mbps_max", "mbps_rd", "mbps_rd_max", "mbps_wr", "mbps_wr_max"} {
		s[limit] = number()
	}
	return s
}()

var (
	modelled   = schema{"model": text().atMost(120).with(isURLEncoded), "ssd": boolean(), "wwn": text().like(`0x[0-9a-fA-F]{16}`)}
	threaded   = schema{"iothread": boolean(), "ro": boolean()}
	ideFormat  = merge(diskFormat, modelled)
	sataFormat = merge(diskFormat, modelled)
	scsiFormat = merge(diskFormat, threaded, schema{
		"product": text().like(`[A-Za-z0-9\-_\s]{0,16}`), "queues": integer().from(2), "scsiblock": boolean(), "ssd": boolean(),
		"vendor": text().like(`[A-Za-z0-9\-_\s]{0,8}`), "wwn": text().like(`0x[0-9a-fA-F]{16}`),
	})
	virtioFormat = merge(diskFormat, threaded)
	efiFormat    = schema{
		"file": text().byDefault().must(), "volume": {alias: "file"}, "efitype": text().oneOf("2m", "4m"),
		"format": text().oneOf("raw", "qcow", "qed", "qcow2", "vmdk", "cloop"), "import-from": text(),
		"ms-cert": text().oneOf("2011", "2023", "2023w", "2023k"), "pre-enrolled-keys": boolean(), "size": text().with(isDiskSize),
	}
	tpmFormat = schema{
		"file": text().byDefault().must(), "volume": {alias: "file"}, "format": text().oneOf("raw", "qcow2", "vmdk"),
		"import-from": text(), "size": text().with(isDiskSize), "version": text().oneOf("v1.2", "v2.0"),
	}
	agentFormat = schema{
		"enabled": boolean().byDefault().must(), "freeze-fs": boolean(), "freeze-fs-on-backup": {alias: "freeze-fs"},
		"guest-fsfreeze": {alias: "freeze-fs"}, "fstrim_cloned_disks": boolean(), "type": text().oneOf("virtio", "isa"),
	}
	memoryFormat  = schema{"current": integer().from(16).byDefault()}
	machineFormat = schema{
		"type":    text().atMost(40).byDefault().like(`(pc|pc(-i440fx)?-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|q35|pc-q35-\d+(\.\d+)+(\+pve\d+)?(\.pxe)?|virt(?:-\d+(\.\d+)+)?(\+pve\d+)?)`),
		"aw-bits": number().from(32).to(64), "enable-s3": boolean(), "enable-s4": boolean(), "viommu": text().oneOf("intel", "virtio"),
	}
	ipFormat = schema{
		"ip": text().with(isIPv4Config), "gw": text().with(isIPv4), "ip6": text().with(isIPv6Config), "gw6": text().with(isIPv6),
	}
	customFormat = schema{"meta": text(), "network": text(), "user": text(), "vendor": text()}
	cpuFormat    = schema{
		"cputype": text().byDefault(), "flags": text(), "hidden": boolean(), "hv-vendor-id": text(), "phys-bits": text(),
		"reported-model": text(), "guest-phys-bits": integer().from(32).to(64), "level": integer().from(0).to(30),
	}
	bootFormat   = schema{"order": text().with(isBootDevices), "legacy": text().byDefault().like(`[acdn]{1,4}`)}
	smbiosFormat = schema{
		"base64": boolean(), "family": text(), "manufacturer": text(), "product": text(), "serial": text(), "sku": text(),
		"uuid": text().like(`[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}`), "version": text(),
	}
)

// machineOptions are the options of a virtual machine's configuration.
var machineOptions = merge(
	schema{
		"acpi": boolean(), "affinity": text(), "agent": text().of(agentFormat), "allow-ksm": boolean(), "amd-sev": text(),
		"arch": text().oneOf("x86_64", "aarch64"), "args": text(), "audio0": text(), "autostart": boolean(),
		"balloon": integer().from(0), "bios": text().oneOf("seabios", "ovmf"), "boot": text().of(bootFormat),
		"bootdisk": text().like(`(ide|sata|scsi|virtio)\d+`), "cdrom": text().of(ideFormat), "cicustom": text().of(customFormat),
		"cipassword": text(), "citype": text().oneOf("configdrive2", "nocloud", "opennebula"), "ciupgrade": boolean(), "ciuser": text(),
		"cores": integer().from(1), "cpu": text().of(cpuFormat), "cpulimit": number().from(0).to(128), "cpuunits": integer().from(1).to(262144),
		"description": text().atMost(8192), "efidisk0": text().of(efiFormat), "freeze": boolean(), "hookscript": text(), "hotplug": text(),
		"hugepages": text().oneOf("any", "2", "1024"), "intel-tdx": text(), "ivshmem": text(), "keephugepages": boolean(),
		"keyboard": text(), "kvm": boolean(), "localtime": boolean(),
		"lock":    text().oneOf("backup", "clone", "create", "migrate", "rollback", "snapshot", "snapshot-delete", "suspending", "suspended"),
		"machine": text().of(machineFormat), "memory": text().of(memoryFormat), "migrate_downtime": number().from(0), "migrate_speed": integer().from(0),
		"name": dnsName(), "nameserver": text().with(isAddressList), "numa": boolean(), "onboot": boolean(),
		"ostype":     text().oneOf("other", "wxp", "w2k", "w2k3", "w2k8", "wvista", "win7", "win8", "win10", "win11", "l24", "l26", "solaris"),
		"protection": boolean(), "reboot": boolean(), "rng0": text(),
		"scsihw":       text().oneOf("lsi", "lsi53c810", "virtio-scsi-pci", "virtio-scsi-single", "megasas", "pvscsi"),
		"searchdomain": text(), "shares": integer().from(0).to(50000), "smbios1": text().atMost(512).of(smbiosFormat), "smp": integer().from(1),
		"sockets": integer().from(1), "spice_enhancements": text(), "sshkeys": text().with(isURLEncoded),
		"startdate": text().like(`(now|\d{4}-\d{1,2}-\d{1,2}(T\d{1,2}:\d{1,2}:\d{1,2})?)`), "startup": text(), "tablet": boolean(),
		"tags": text().with(isTags), "tdf": boolean(), "template": boolean(), "tpmstate0": text().of(tpmFormat), "vcpus": integer().from(1),
		"vga": text(), "vmgenid": text().like(`(?:[a-fA-F0-9]{8}(?:-[a-fA-F0-9]{4}){3}-[a-fA-F0-9]{12}|[01])`), "vmstatestorage": storage(), "watchdog": text(),
	},
	numbered("net", maxNICs, text().of(nicFormat)), numbered("ipconfig", maxNICs, text().of(ipFormat)),
	numbered("ide", maxIDE, text().of(ideFormat)), numbered("sata", maxSATA, text().of(sataFormat)),
	numbered("scsi", maxSCSI, text().of(scsiFormat)), numbered("virtio", maxVirtIO, text().of(virtioFormat)),
	numbered("unused", maxUnused, text()), numbered("serial", 4, text().like(`(/dev/.+|socket)`)),
	numbered("hostpci", 16, text()), numbered("usb", 14, text()), numbered("numa", 8, text()), numbered("parallel", 3, text()),
	numbered("virtiofs", 10, text()),
)

// driveFormats are the property strings of drives by prefix.
var driveFormats = map[string]schema{
	"ide": ideFormat, "sata": sataFormat, "scsi": scsiFormat, "virtio": virtioFormat, "efidisk": efiFormat, "tpmstate": tpmFormat,
}

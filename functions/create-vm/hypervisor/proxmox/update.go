package proxmox

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pve "github.com/luthermonson/go-proxmox"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// changes changes virtual machines that exist.
type changes struct {
	api
	settings
	cds cds
}

// apply writes the options that differ into the configuration of a virtual machine, creates
// missing disks and grows disks that are too small. It returns after the first task that it has
// started, or nil once nothing else differs. refused is the UserError of a disk that holds up nothing else, because the machine has run;
// if failed is not nil, it is that of the last task, and no disk is tried. If the Machine has been written since it was read, apply changes nothing and returns an error for
// which kube.Conflict is true: another delivery may have applied a changed spec.
func (c changes) apply(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, failed error) (t *v1alpha1.ProviderTask, refused, err error) {
	change := differingOptions(m, want, vm)
	if vm.isNewClone(m) {
		if t, err := c.configureClone(ctx, m, want, vm, change); err != nil || t != nil {
			return t, nil, err
		}
		maps.DeleteFunc(change, func(key, value string) bool { return isUpToDate(key, vm.config[key], value) })
	}
	if len(change) > 0 {
		if err := c.cds.home.CheckUnchanged(ctx, m); err != nil { // after the configuration was read: configure notices a later write
			return nil, nil, err
		}
		if err := c.configure(ctx, vm, change); err != nil {
			return nil, nil, err
		}
	}
	if t, err := c.handOverMachineConfig(ctx, m, want, vm); err != nil || t != nil {
		return t, nil, err
	}
	if failed != nil {
		return nil, failed, nil
	}
	t, err = c.ensureDisks(ctx, m, want, vm)
	if _, isUserError := reconcile.AsUserError(err); isUserError && hasStarted(m) {
		return nil, err, nil
	}
	return t, nil, err
}

// hasStarted reports whether the virtual machine of a machine has been observed after its first start.
func hasStarted(m *v1alpha1.Machine) bool {
	return m.Status.Phase == v1alpha1.MachineRunning || m.Status.Phase == v1alpha1.MachineStopped
}

// handOverMachineConfig gives or takes the machine configuration of a node: as a CD in its drive.
// It returns the task that it has started, or nil if it is done.
func (c changes) handOverMachineConfig(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (*v1alpha1.ProviderTask, error) {
	volume, _, _ := strings.Cut(vm.config[cloudDrive], ",")
	switch {
	case want.Handover == hypervisor.HandoverRemove:
		t, err := c.removeCDs(ctx, m, vm)
		if err != nil || t == nil {
			return nil, err
		}
		return taskOf(actionDeleteCD, t), nil
	case want.Handover == hypervisor.HandoverProvide && !strings.HasSuffix(volume, ":iso/"+cdName(m, decideFirstBoot(m, want))):
		cd, t, err := c.ensureCDOption(ctx, m, want, vm)
		if err != nil || t != nil {
			return t, err
		}
		return nil, c.configure(ctx, vm, map[string]string{cloudDrive: cd})
	default:
		return nil, nil
	}
}

// removeCDs deletes the CD in the drive of a virtual machine, and then every copy. It returns the task, or nil if there is no CD.
func (c changes) removeCDs(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) (*pve.Task, error) {
	if t, err := c.cds.delete(ctx, m, vm); err != nil || t != nil {
		return t, err
	}
	all, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	return c.cds.deleteCopies(ctx, m, all)
}

// ensureCDOption brings the CD with the first configuration of a machine to the host of its virtual
// machine. It returns the option of the drive, or the task that brings the CD.
func (c changes) ensureCDOption(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (string, *v1alpha1.ProviderTask, error) {
	first := decideFirstBoot(m, want)
	if !first.iso() { // user data of a Secret that was a CD may be simpler by now
		first = firstBootConfig{userData: cmp.Or(want.UserData, hypervisor.EmptyUserData), networkData: want.NetworkData}
	}
	all, err := c.readInventory(ctx)
	if err == nil {
		all, err = c.cds.restrictStorages(ctx, all, first)
	}
	if err != nil {
		return "", nil, err
	}
	volume, t, err := c.cds.ensure(ctx, m, all, vm.node, first)
	if err != nil || t == nil {
		return volume + ",media=cdrom", nil, err
	}
	return "", taskOf(actionUpload, t), nil
}

// differingOptions returns the options of a virtual machine that differ from the spec, also after a change at the hypervisor.
func differingOptions(m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) map[string]string {
	change := updatableOptions(m, want)
	if vm.config["protection"] == "1" && change["protection"] == "0" && !strings.Contains(vm.config["description"], protectedLine) {
		delete(change, "protection") // an administrator has set it
	}
	maps.DeleteFunc(change, func(key, value string) bool { return isUpToDate(key, vm.config[key], value) })
	return change
}

// isUpToDate reports whether the option key has a value already.
func isUpToDate(key, has, value string) bool {
	switch key {
	case "description":
		return strings.TrimSpace(has) == strings.TrimSpace(value)
	case "protection", "onboot":
		return (has == "1") == (value == "1")
	case "tags":
		for _, tag := range splitTags(value) {
			if !slices.Contains(splitTags(has), tag) {
				return false
			}
		}
		return true
	default:
		return strings.TrimPrefix(has, "current=") == value
	}
}

// isNewClone reports whether a virtual machine is a clone that still has the options of its template. A change that fails leaves a part of its options
// pending, also the tags.
func (vm *virtualMachine) isNewClone(m *v1alpha1.Machine) bool {
	return isClone(m) && !slices.Contains(splitTags(vm.current["tags"]), uidTag(m))
}

// configureClone adds to a change what a new clone lacks. It returns the task that uploads the CD of the
// clone, or nil.
func (c changes) configureClone(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine, change map[string]string) (*v1alpha1.ProviderTask, error) {
	if want.UserDataError != nil {
		return nil, want.UserDataError
	}
	first := decideFirstBoot(m, want)
	if first.iso() {
		drive, t, err := c.ensureCDOption(ctx, m, want, vm)
		if err != nil || t != nil {
			return t, err
		}
		first.options = map[string]string{cloudDrive: drive}
	}
	if err := c.unprotectClone(ctx, vm); err != nil {
		return nil, err
	}
	change["protection"] = formatValue(m.Spec.Protected)
	for key, value := range c.creationOptions(m, want, first) {
		switch key {
		case "scsihw", "bios", "machine", "ostype", "boot", "numa":
			// What the template's system was installed with stays. With numa and memory in
			// its option hotplug it takes on more memory while it runs.
		default:
			change[key] = value
		}
	}
	if files := customFiles(vm.config["cicustom"], change["cicustom"], strings.TrimSpace(want.UserData) != ""); files != "" && !first.iso() {
		change["cicustom"] = files
	}
	removed := overriddenOptions(vm, change)
	switch drive := cloudInitDrive(vm); {
	case drive == "" && !first.iso():
		addCloudInitDrive(vm, change)
	case drive != "" && drive != cloudDrive && first.iso() && change[drive] == "":
		removed = append(removed, drive) // cloud-init reads one of two first configurations
	}
	if len(removed) > 0 {
		change["delete"] = strings.Join(removed, ",")
	}
	return nil, nil
}

// unprotectClone takes the protection of its template off a new clone, because no drive can be removed before.
func (c changes) unprotectClone(ctx context.Context, vm *virtualMachine) error {
	if vm.config["protection"] != "1" {
		return nil
	}
	return c.configure(ctx, vm, map[string]string{"protection": "0"})
}

// addCloudInitDrive adds Proxmox VE's cloud-init drive to a change, on the storage of the root disk.
func addCloudInitDrive(vm *virtualMachine, change map[string]string) {
	if storage, _, _ := strings.Cut(vm.config[diskSlot(vm, 0, hypervisor.Disk{Name: v1alpha1.RootDisk})], ":"); storage != "" {
		change[cloudDrive] = storage + ":cloudinit"
	}
}

// overriddenOptions returns the options that a new clone has from its template and that contradict the machine, whose options are own: further
// interfaces, another number of CPUs, files that replace the first configuration, and the password and the keys of the template's user if the
// machine has a user of its own.
func overriddenOptions(vm *virtualMachine, own map[string]string) (names []string) {
	for name := range vm.config {
		isUser := name == "cipassword" || name == "sshkeys"
		if own[name] == "" && (strings.HasPrefix(name, "net") || name == "vcpus" || name == "cicustom" || (isUser && own["ciuser"] != "")) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// customFiles returns the option cicustom of a clone: its own files, and those of its template that do not replace the addresses of the machine, or the
// user data that it has.
func customFiles(template, own string, hasUserData bool) string {
	var files []string
	for file := range strings.SplitSeq(template, ",") {
		kind, _, _ := strings.Cut(file, "=")
		if kind == "meta" || kind == "vendor" || (kind == "user" && !hasUserData) {
			files = append(files, file)
		}
	}
	if own != "" {
		files = append(files, own)
	}
	return strings.Join(files, ",")
}

// cloudInitFile matches the volume of Proxmox VE's cloud-init drive (QemuServer/Drive.pm, drive_is_cloudinit).
var cloudInitFile = regexp.MustCompile(`[:/](?:vm-[0-9]+-)?cloudinit(?:\.[a-z0-9]+)?(?:,|$)`)

// cloudInitDrive returns the option of a virtual machine's cloud-init drive, or nothing. A template may have it on any bus, and Proxmox VE accepts no second
// one (API2/Qemu.pm, create_disks).
func cloudInitDrive(vm *virtualMachine) string {
	for key, value := range vm.config {
		if diskOption.MatchString(key) && cloudInitFile.MatchString(value) {
			return key
		}
	}
	return ""
}

// ensureDisks creates the first missing disk, or grows the first disk that is too small, and returns the
// task. Once none is left, it returns the UserError of a disk that is refused: because it is too large, or has no place.
func (c changes) ensureDisks(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, vm *virtualMachine) (*v1alpha1.ProviderTask, error) {
	var refused error
	for i, d := range want.Disks {
		t, err := c.ensureDisk(ctx, m, vm, d, diskSlot(vm, i, d))
		if _, isUserError := reconcile.AsUserError(err); isUserError {
			refused = cmp.Or(refused, err)
			continue
		}
		if err != nil || t != nil {
			return t, err
		}
	}
	return nil, refused
}

// ensureDisk creates a disk that has no slot, or grows one that is too small, and returns the task.
func (c changes) ensureDisk(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine, d hypervisor.Disk, slot string) (*v1alpha1.ProviderTask, error) {
	if slot == "" {
		if err := c.cds.home.CheckUnchanged(ctx, m); err != nil {
			return nil, err
		}
		t, err := c.addDisk(ctx, vm, d)
		if err == nil {
			m.Status.Disks = slices.Sorted(slices.Values(append(m.Status.Disks, d.Name)))
		}
		return t, err
	}
	if vm.current[slot] == "" {
		return nil, nil // Proxmox VE resizes a disk only once it is attached
	}
	has := parseSize(parseProperties(vm.config[slot]))
	if has > gigabytes(d)<<30 {
		return nil, reconcile.UserError{Reason: "DiskCannotShrink", Message: fmt.Sprintf("disk %s has %s, which would be lost in part: write at least that into spec.disks",
			d.Name, resource.NewQuantity(has, resource.BinarySI))}
	}
	if has == 0 || has >= d.Size.Value() {
		return nil, nil
	}
	if err := c.cds.home.CheckUnchanged(ctx, m); err != nil {
		return nil, err
	}
	t, err := c.vmClient(vm).ResizeDisk(ctx, slot, fmt.Sprintf("%dG", gigabytes(d)))
	return taskOf(actionResize, t), err
}

// diskSlot returns the option of a disk of a virtual machine, or nothing. Disks of earlier releases have their whole names as serial
// numbers. The first disk of a template has none: it is the one that boots.
func diskSlot(vm *virtualMachine, index int, d hypervisor.Disk) string {
	for key, value := range vm.config {
		serial := parseProperties(value)["serial"]
		if strings.HasPrefix(key, "scsi") && (serial == d.Name || serial == diskSerial(d.Name)) {
			return key
		}
	}
	if index > 0 {
		return ""
	}
	return bootDisk(vm)
}

// bootDrives are the buses of disks to boot from, in the order in which Proxmox VE takes the first disk, with their number of drives
// (QemuServer/Drive.pm, valid_drive_names_for_boot).
var bootDrives = []struct {
	bus    string
	drives int
}{{"ide", 4}, {"scsi", 31}, {"virtio", 16}, {"sata", 6}}

// bootDisk returns the option of the disk that a virtual machine boots from: the first disk of its boot order, or else the option bootdisk, which templates from
// before Proxmox VE 6.3 have, or else its first disk. A CD or an interface may be before the disk. It returns scsi0 for a virtual machine without disks.
func bootDisk(vm *virtualMachine) string {
	options := append(strings.Split(parseProperties(vm.config["boot"])["order"], ";"), vm.config["bootdisk"])
	for _, b := range bootDrives {
		for i := range b.drives {
			options = append(options, b.bus+strconv.Itoa(i))
		}
	}
	for _, option := range options {
		if value := vm.config[option]; value != "" && diskOption.MatchString(option) && !strings.Contains(value, "media=cdrom") {
			return option
		}
	}
	return "scsi0"
}

// addDisk creates a disk in the first free slot, and returns the task.
func (c changes) addDisk(ctx context.Context, vm *virtualMachine, d hypervisor.Disk) (*v1alpha1.ProviderTask, error) {
	all, err := c.readInventory(ctx)
	if err != nil {
		return nil, err
	}
	needs := demand{disks: []hypervisor.Disk{d}, storage: c.defaults.StorageClass}
	if err := all.checkNamed(needs); err != nil {
		return nil, err
	}
	storages, refusal := all.findStorages(vm.node, needs)
	if refusal != "" {
		return nil, reconcile.UserError{Reason: reasonInsufficient, Message: fmt.Sprintf(
			"node %s cannot take disk %s: %s: write another storageClass or a smaller size, or remove the disk from spec.disks", vm.node, d.Name, refusal)}
	}
	const slots = 31
	for i := range slots {
		slot := "scsi" + strconv.Itoa(i)
		if vm.config[slot] != "" {
			continue
		}
		t, err := c.vmClient(vm).Config(ctx, pve.VirtualMachineOption{Name: slot, Value: newDiskOption(d, storages[0])},
			pve.VirtualMachineOption{Name: "digest", Value: vm.config["digest"]})
		if isModified(err) {
			return nil, errConflict
		}
		return taskOf(actionConfigure, t), err
	}
	return nil, reconcile.UserError{Reason: "TooManyDisks", Message: fmt.Sprintf("disk %s cannot be attached: Proxmox VE supports %d disks: remove it from spec.disks", d.Name, slots)}
}

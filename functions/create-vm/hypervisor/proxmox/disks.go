package proxmox

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// diskName matches the names of disks, which the API server accepts.
var diskName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// readDisks returns the names of the disks that a virtual machine has: those of the spec, and those whose serial number is the name
// of a disk. A clone may have such disks from its template: of them, only those that the status has.
func readDisks(m *v1alpha1.Machine, vm *virtualMachine, want []hypervisor.Disk) []string {
	var names []string
	wanted := map[string]bool{} // by the option of the disk
	for i, d := range want {
		if slot := diskSlot(vm, i, d); vm.config[slot] != "" {
			wanted[slot] = true
			names = append(names, d.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(vm.config)) {
		name := parseProperties(vm.config[key])["serial"]
		if i := slices.IndexFunc(m.Status.Disks, func(known string) bool { return diskSerial(known) == name }); i >= 0 {
			name = m.Status.Disks[i]
		} else if isClone(m) {
			continue
		}
		if wanted[key] || !strings.HasPrefix(key, "scsi") || !diskName.MatchString(name) {
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

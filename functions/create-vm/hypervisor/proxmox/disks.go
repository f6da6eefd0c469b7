package proxmox

import (
	"regexp"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// diskName matches the names of disks, which the API server accepts.
var diskName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// readDisks returns the names of the disks that a virtual machine has: those of the spec, and those whose serial number is the name
// of a disk. Disks that a clone has from its template may have such serial numbers too: only those that the status lists already count.
func readDisks(m *v1alpha1.Machine, vm *virtualMachine, want []hypervisor.Disk) []string {
	var names []string
	wanted := map[string]bool{} // by the option of the disk
	for i, d := range want {
		if slot := diskSlot(vm, i, d); vm.config[slot] != "" {
			wanted[slot] = true
			names = append(names, d.Name)
		}
	}
	for key, value := range vm.config {
		if wanted[key] || !strings.HasPrefix(key, "scsi") {
			continue
		}
		name := parseProperties(value)["serial"]
		if i := slices.IndexFunc(m.Status.Disks, func(known string) bool { return diskSerial(known) == name }); i >= 0 {
			name = m.Status.Disks[i]
		} else if isClone(m) {
			continue
		}
		if diskName.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

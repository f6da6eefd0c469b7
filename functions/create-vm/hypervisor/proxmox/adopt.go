package proxmox

import (
	"context"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// isUnmarked reports whether a virtual machine has a machine's name and the mark of no Machine, as the proxmox-operator
// leaves it.
func (vm *virtualMachine) isUnmarked(m *v1alpha1.Machine) bool {
	return ownerUID(append(splitTags(vm.config["tags"]), tagManaged)) == "" && !strings.Contains(vm.config["description"], "uid: ") && vm.config["name"] == hostname(m)
}

// adopt marks a virtual machine of a former UID with the machine's UID. Of two machines that try, one gets
// errConflict, because Proxmox VE compares the digest of the configuration. One at the place in the machine's status without a mark
// is adopted too, if an administrator has allowed that. A second call writes nothing.
func (f finder) adopt(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) error {
	unmarked := v1alpha1.AdoptsUnmarked(m) && vm.isUnmarked(m)
	if !unmarked && !isAdoptable(m, splitTags(vm.config["tags"]), vm.config["description"]) {
		return nil
	}
	return f.configure(ctx, vm, map[string]string{"tags": machineTags(m), "description": machineDescription(m)})
}

package proxmox

import (
	"context"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// formerTag returns the tag of a virtual machine that was adopted from a Machine with a UID. It keeps that
// Machine's deletion from deleting the CD, whose name has the UID.
func formerTag(uid string) string { return tag("former", uid) }

// hasFormerTag reports whether another Machine has adopted a virtual machine of a machine.
func (c inventory) hasFormerTag(m *v1alpha1.Machine) bool {
	return slices.ContainsFunc(c, func(r inventoryItem) bool { return r.isVM() && slices.Contains(r.tags(), formerTag(string(m.UID))) })
}

// isAdoptable reports whether tags or a description have a former UID of a machine, and not its own.
func isAdoptable(m *v1alpha1.Machine, tags []string, description string) bool {
	if slices.Contains(tags, uidTag(m)) || strings.Contains(description, uidLine(m)) {
		return false
	}
	return slices.ContainsFunc(v1alpha1.FormerUIDs(m), func(uid string) bool {
		return v1alpha1.HadUID(m, uid) && (slices.Contains(tags, tag("uid", uid)) || strings.Contains(description, "uid: "+uid))
	})
}

// isUnmarked reports whether a virtual machine has a machine's name and the mark of no Machine, as the proxmox-operator
// leaves it.
func (vm *virtualMachine) isUnmarked(m *v1alpha1.Machine) bool {
	return ownerUID(append(splitTags(vm.config["tags"]), tagManaged)) == "" && !strings.Contains(vm.config["description"], "uid: ") && vm.config["name"] == hostname(m)
}

// adopt marks a virtual machine of a former UID with the machine's UID. Of two machines that try, one gets
// errConflict, because Proxmox VE compares the digest of the configuration. One at the place in the machine's status without a mark
// is adopted too, if an administrator has allowed that. A second call writes nothing.
func (x *Hypervisor) adopt(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) error {
	unmarked := v1alpha1.AdoptsUnmarked(m) && vm.isUnmarked(m)
	if !unmarked && !isAdoptable(m, splitTags(vm.config["tags"]), vm.config["description"]) {
		return nil
	}
	return x.configure(ctx, vm, map[string]string{"tags": machineTags(m), "description": machineDescription(m)})
}

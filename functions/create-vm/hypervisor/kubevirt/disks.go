package kubevirt

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// readDisks returns the names of the disks that a virtual machine has: those of the spec, and those with a claim of the machine. A volume
// that an administrator has added has another claim, and is none of them.
func readDisks(m *v1alpha1.Machine, vm *kubevirtv1.VirtualMachine, want []hypervisor.Disk, claims []corev1.PersistentVolumeClaim) []string {
	if vm.Spec.Template == nil {
		return m.Status.Disks
	}
	var names []string
	for _, v := range vm.Spec.Template.Spec.Volumes {
		isWanted := slices.ContainsFunc(want, func(d hypervisor.Disk) bool { return d.Name == v.Name })
		hasClaim := slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool { return c.Name == claimOf(v) })
		if isWanted || hasClaim && v.Name != installerDisk {
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return names
}

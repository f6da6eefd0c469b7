package kubevirt

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestBootOrder(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason           string
		order            []v1alpha1.BootDevice
		disk, nic, cdrom []uint
	}{
		"None":      {reason: "the hypervisor has a default order"},
		"DiskFirst": {reason: "numbers are unique over disks and interfaces", order: []v1alpha1.BootDevice{"disk", "network"}, disk: []uint{1, 2}, nic: []uint{3}},
		"NetFirst":  {reason: "the order is the one in the spec", order: []v1alpha1.BootDevice{"network", "cdrom", "disk"}, nic: []uint{1}, cdrom: []uint{2}, disk: []uint{3, 4}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, nic, cdrom := bootOrder(tc.order, 2, 1, 1)
			if !cmp.Equal(disk, tc.disk) || !cmp.Equal(nic, tc.nic) || !cmp.Equal(cdrom, tc.cdrom) {
				t.Errorf("%s: got disks %v, interfaces %v, CD drives %v", tc.reason, disk, nic, cdrom)
			}
		})
	}
}

// TestImageWithoutRoot puts the image on the first disk of a machine that has no disk called root.
func TestImageWithoutRoot(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{OS: &v1alpha1.MachineOS{ImageID: "https://images.example.com/a.raw"}}}
	for reason, tc := range map[string]struct {
		disks []hypervisor.Disk
		want  string
	}{
		"the disk root, wherever it is":         {[]hypervisor.Disk{{Name: "data"}, {Name: "root"}}, "root"},
		"the first one, where none is the root": {[]hypervisor.Disk{{Name: "system"}, {Name: "data"}}, "system"},
	} {
		for _, d := range tc.disks {
			if filled := diskImage(m, tc.disks, d) != ""; filled != (d.Name == tc.want) {
				t.Errorf("%s: disk %s is filled: %t", reason, d.Name, filled)
			}
		}
	}
}

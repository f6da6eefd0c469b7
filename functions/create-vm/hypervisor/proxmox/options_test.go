package proxmox

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestHostnameOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"web": "web", "web.example.com": "web-example-com"} {
		if got := hostname(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	long := hostname(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("a.", 100) + "a"}})
	if len(long) != 63 || strings.Contains(long, ".") {
		t.Errorf("a long name is shortened to a DNS label: %s", long)
	}
}

func TestDiskSerial(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 21)
	for name, want := range map[string]string{"root": "root", long[1:]: long[1:], long: "aaaaaaaaaaa-7df8e299"} {
		if got := diskSerial(name); got != want || len(got) > 20 {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
		for _, serial := range []string{name, diskSerial(name)} {
			vm := &virtualMachine{config: map[string]string{"scsi0": "lvm:vm-1-disk-0,serial=root0", "scsi3": "lvm:vm-1-disk-1,serial=" + serial + ",size=1G"}}
			if slot := diskSlot(vm, 1, hypervisor.Disk{Name: name}); slot != "scsi3" {
				t.Errorf("disk %s with serial number %s is not found, but %q", name, serial, slot)
			}
		}
	}
}

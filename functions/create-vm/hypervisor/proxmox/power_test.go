package proxmox

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

func TestHaltMessage(t *testing.T) {
	t.Parallel()
	vm := &virtualMachine{id: 101, node: "pve1", config: map[string]string{
		"scsi0": "thin:vm-101-disk-0,size=20G", "scsi1": "ceph:vm-101-disk-1", "efidisk0": "thin:vm-101-disk-2", "ide2": "local:iso/cd.iso,media=cdrom",
	}}
	for state, tc := range map[string]struct {
		reason, want string
		failed       bool
	}{
		"running":        {"QEMU executes the guest", "", false},
		"":               {"the virtual machine is off", "", false},
		"finish-migrate": {"QEMU continues by itself", "", false},
		"paused":         {"a user has paused it", "qm resume 101 on node pve1", false},
		"prelaunch":      {"it has been started without its guest", "qm resume 101 on node pve1", false},
		"suspended":      {"the guest sleeps", "qm resume 101 on node pve1", false},
		"io-error":       {"a storage is full", "free space on storage ceph, thin, then run qm resume 101 on node pve1", true},
		"internal-error": {"KVM cannot continue", "write a new value into spec.restartToken", true},
		"guest-panicked": {"the kernel of the guest has panicked", "write a new value into spec.restartToken", true},
	} {
		got, failed := haltMessage(vm, state)
		if !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") || failed != tc.failed {
			t.Errorf("%s: got %q and %t, because %s", state, got, failed, tc.reason)
		}
	}
}

func TestPendingChanges(t *testing.T) {
	t.Parallel()
	want := hypervisor.Desired{Size: hypervisor.Size{Cores: 2, Threads: 1, Sockets: 1, Memory: resource.MustParse("2Gi"), Disks: []hypervisor.Disk{
		{Name: "root", Size: resource.MustParse("20Gi")}, {Name: "data", Size: resource.MustParse("1Gi")},
	}}}
	const root, data = "lvm:vm-1-disk-0,serial=root", "lvm:vm-1-disk-1,serial=data"
	for name, tc := range map[string]struct {
		reason           string
		config, current  map[string]string
		cpus             int32
		restart, storage string
	}{
		"None":     {"everything is in effect", map[string]string{"scsi0": root, "scsi1": data, "cores": "2", "sockets": "1"}, map[string]string{"scsi0": root, "scsi1": data, "cores": "2", "sockets": "1"}, 2, "", ""},
		"CPUs":     {"it runs with fewer CPUs", map[string]string{"scsi0": root, "scsi1": data, "cores": "2"}, map[string]string{"scsi0": root, "scsi1": data, "cores": "1"}, 1, "it gets 2 and 2Gi at its next restart", ""},
		"Topology": {"as many CPUs have another topology", map[string]string{"scsi0": root, "scsi1": data, "cores": "2", "sockets": "1"}, map[string]string{"scsi0": root, "scsi1": data, "cores": "1", "sockets": "2"}, 2, "runs with 2 sockets of 1 cores; it gets 1 of 2", ""},
		"Disk":     {"the bus takes no disk while it runs", map[string]string{"scsi0": root, "scsi1": data}, map[string]string{"scsi0": root}, 2, "disk data is attached at the next restart", "disk data is attached at the next restart"},
		"Option":   {"an administrator has changed an option of a disk, which is attached", map[string]string{"scsi0": root, "scsi1": data + ",cache=none"}, map[string]string{"scsi0": root, "scsi1": data}, 2, "", ""},
	} {
		vm := &virtualMachine{config: tc.config, current: tc.current}
		restart, storage := pendingChanges(want, vm, powerState{MaxMem: 2 << 30, CPUs: tc.cpus})
		if !strings.Contains(restart, tc.restart) || (tc.restart == "") != (restart == "") || !strings.Contains(storage, tc.storage) || (tc.storage == "") != (storage == "") {
			t.Errorf("%s: got %q and %q, because %s", name, restart, storage, tc.reason)
		}
	}
}

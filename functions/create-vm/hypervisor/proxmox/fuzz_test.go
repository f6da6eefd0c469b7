package proxmox

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
)

// FuzzProperties parses the options of a virtual machine in any form that Proxmox VE may return.
func FuzzProperties(f *testing.F) {
	for _, text := range []string{"local-lvm:vm-100-disk-0,size=20G,serial=root", "virtio=02:00:00:00:00:01,bridge=vmbr0,tag=7", "size=", "size=9999999999T", "size=G", ",,=,", "size=-1K"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if n := parseSize(parseProperties(text)); n < 0 && !strings.Contains(text, "-") && !strings.ContainsAny(text, "KMGT") {
			t.Errorf("%q has %d bytes", text, n)
		}
		_ = splitTags(text)
	})
}

// FuzzSize parses the sizes of a machine. An accepted size consists of whole units and is at least the
// requested one.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"20Gi", "1.5Gi", "1e3", "1e-9", "9223372036854775807", "1E", "100m", "-1Gi", "0", "1Ki", "99999999999Ei", "1e-999999999", "9E999999999"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := v1alpha1.Size(text).Quantity()
		if err != nil || q.Sign() <= 0 {
			return
		}
		memory, disk := megabytes(hypervisor.Desired{Size: hypervisor.Size{Memory: q}}), gigabytes(hypervisor.Disk{Size: q})
		if memory <= 0 || disk <= 0 || disk > memory {
			t.Errorf("%q is %d MiB and %d GiB", text, memory, disk)
		}
	})
}

// FuzzInstaller checks that only volumes of installers are accepted.
func FuzzInstaller(f *testing.F) {
	for _, text := range []string{"local:iso/talos.iso", "local:iso/vitistack-u.iso", "local:iso/a.iso,b", "/dev/sda", "local:iso/../a.iso"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if isInstaller(text) && (strings.ContainsAny(text, ",= \n\x00;") || strings.Count(text, "/") != 1 || strings.Contains(text, "iso/.")) {
			t.Errorf("%q is accepted as an installer", text)
		}
	})
}

package kubevirt

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// qemuUser is the user and group that runs QEMU in virt-launcher.
const qemuUser = 107

// prepareDisk creates a PersistentVolume with a copy of the guest's disk, as CDI does for a DataVolume.
func (e *env) prepareDisk(name string) {
	e.T.Helper()
	path := e.Path("disks", name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		e.T.Fatal(err)
	}
	disk := filepath.Join(path, "disk.img")
	e.Must(5*time.Minute, "cp", "--dereference", "--sparse=always", filepath.Join(folder(), "guest.img"), disk)
	for _, file := range []string{path, disk} {
		if err := os.Chown(file, qemuUser, qemuUser); err != nil {
			e.T.Fatal(err)
		}
	}
	e.Apply(fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %s}, spec: {storageClassName: prepared, capacity: {storage: 2Gi},
 accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: %q}}}`, name, path))
}

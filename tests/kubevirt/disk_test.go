package kubevirt

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/resource"
)

// qemuUser is the user and group that runs QEMU in virt-launcher.
const qemuUser = 107

// createDisk creates a PersistentVolume of the class prepared. Its disk has a size and the content of an image in the folder of build.sh, as CDI
// does for a DataVolume. A second call with the same name writes the disk again.
func (e *env) createDisk(ctx context.Context, name, image string, size resource.Quantity) error {
	path := e.Path("disks", name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	disk := filepath.Join(path, "disk.img")
	if _, err := e.Run(ctx, "", "cp", "--dereference", "--sparse=always", filepath.Join(folder(), image), disk); err != nil {
		return err
	}
	if err := os.Truncate(disk, size.Value()); err != nil {
		return err
	}
	for _, file := range []string{path, disk} {
		if err := os.Chown(file, qemuUser, qemuUser); err != nil {
			return err
		}
	}
	volume := fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolume, metadata: {name: %[1]s}, spec: {storageClassName: prepared, capacity: {storage: %[2]q},
 accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: %[3]q}}}`, name, &size, path)
	_, err := e.Run(ctx, volume, "kubectl", "apply", "--server-side", "-f", "-")
	return err
}

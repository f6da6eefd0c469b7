package talos

import (
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Defaults of the environment variables IMAGE_FACTORY and TALOS_SCHEMATIC. The schematic is the
// image factory's for the one extension qemu-guest-agent, which reports a guest's addresses to
// its hypervisor.
const (
	DefaultFactory   = "https://factory.talos.dev"
	DefaultSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

// Images names the images of an image factory. The disk image and the installer of a cluster
// have the same schematic, and so the same extensions.
type Images struct {
	// Factory is the URL of the image factory, without a slash at its end, and Schematic the
	// schematic of clusters that name none.
	Factory, Schematic string
}

// diskFile is the end of the URLs of disk images.
const diskFile = "/nocloud-amd64.raw.xz"

// Disk returns the URL of the disk image that a Machine of the cluster boots. version has no v.
func (i Images) Disk(kc *v1alpha1.KubernetesCluster, version string) string {
	return fmt.Sprintf("%s/image/%s/v%s%s", i.Factory, i.schematicOf(kc), version, diskFile)
}

// IsOtherDisk reports whether a URL is that of a disk image of an image factory, and not the one of Disk for a version. Any other image
// is one that a user has written into a Machine.
func (i Images) IsOtherDisk(kc *v1alpha1.KubernetesCluster, version, url string) bool {
	return strings.Contains(url, "/image/") && strings.HasSuffix(url, diskFile) && url != i.Disk(kc, version)
}

// Installer returns the reference of the image that installs or upgrades Talos. version has no
// v.
func (i Images) Installer(kc *v1alpha1.KubernetesCluster, version string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(i.Factory, "https://"), "http://")
	return fmt.Sprintf("%s/nocloud-installer/%s:v%s", host, i.schematicOf(kc), version)
}

func (i Images) schematicOf(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Talos != nil && kc.Spec.Talos.Schematic != "" {
		return kc.Spec.Talos.Schematic
	}
	return i.Schematic
}

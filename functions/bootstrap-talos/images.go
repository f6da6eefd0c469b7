package main

import (
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

const functionName = "bootstrap-talos"

const defaultTalos = "1.13.9"

// Defaults of the environment variables IMAGE_FACTORY and TALOS_SCHEMATIC. The schematic is the
// image factory's for the one extension qemu-guest-agent, which reports a guest's addresses to
// its hypervisor.
const (
	defaultFactory   = "https://factory.talos.dev"
	defaultSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

// images names the images of an image factory. The disk image and the installer of a cluster
// have the same schematic, and so the same extensions.
type images struct {
	// factory is the URL of the image factory, without a slash at its end, and schematic the
	// one of clusters that name none.
	factory, schematic string
}

// disk returns the URL of the disk image that a Machine of the cluster boots. version has no v.
func (i images) disk(kc *v1alpha1.KubernetesCluster, version string) string {
	return fmt.Sprintf("%s/image/%s/v%s/nocloud-amd64.raw.xz", i.factory, i.schematicOf(kc), version)
}

// installer returns the reference of the image that installs or upgrades Talos. version has no v.
func (i images) installer(kc *v1alpha1.KubernetesCluster, version string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(i.factory, "https://"), "http://")
	return fmt.Sprintf("%s/nocloud-installer/%s:v%s", host, i.schematicOf(kc), version)
}

func (i images) schematicOf(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Talos != nil && kc.Spec.Talos.Schematic != "" {
		return kc.Spec.Talos.Schematic
	}
	return i.schematic
}

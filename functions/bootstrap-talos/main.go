// Bootstrap-talos turns each KubernetesCluster into machines that run Talos Linux,
// and those into a Kubernetes cluster: layer 4 of the stack.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const functionName = "bootstrap-talos"

// Defaults of the environment variables TALOS_VERSION, IMAGE_FACTORY and
// TALOS_SCHEMATIC. The schematic is the image factory's for the one extension
// qemu-guest-agent, by which a hypervisor learns its guests' addresses.
const (
	defaultTalos     = "1.13.9"
	defaultFactory   = "https://factory.talos.dev"
	defaultSchematic = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"
)

func main() {
	events.Run(functionName, func() (events.Handler, error) {
		client, err := kube.Connect(functionName, v1alpha1.AddToScheme, v1alpha2.AddToScheme, core)
		if err != nil {
			return nil, err
		}
		f := &function{
			kube:      client,
			results:   &results{kube: client, dir: os.Getenv("RESULTS_PATH")},
			talos:     env("TALOS_VERSION", defaultTalos),
			factory:   strings.TrimSuffix(env("IMAGE_FACTORY", defaultFactory), "/"),
			schematic: env("TALOS_SCHEMATIC", defaultSchematic),
			now:       time.Now,
		}
		return f.handle, nil
	})
}

var core = kube.Kinds(corev1.SchemeGroupVersion, &corev1.Event{}, &corev1.Secret{}, &corev1.ConfigMap{}, &corev1.ConfigMapList{}, &corev1.Namespace{})

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// image is the disk image that a cluster's machines boot, and installer the image
// that upgrades them. Both come from the image factory, so that they have the same
// extensions.
func (f *function) image(c *cluster) string {
	return fmt.Sprintf("%s/image/%s/v%s/nocloud-amd64.raw.xz", f.factory, f.schematicOf(c), c.plan.talos)
}

func (f *function) installer(c *cluster) string {
	return f.installerOf(c, c.plan.talos)
}

// installerOf is the installer of any version of Talos, with the cluster's
// extensions.
func (f *function) installerOf(c *cluster, version string) string {
	host := strings.TrimPrefix(strings.TrimPrefix(f.factory, "https://"), "http://")
	return fmt.Sprintf("%s/nocloud-installer/%s:v%s", host, f.schematicOf(c), version)
}

func (f *function) schematicOf(c *cluster) string {
	if c.Spec.Talos != nil && c.Spec.Talos.Schematic != "" {
		return c.Spec.Talos.Schematic
	}
	return f.schematic
}

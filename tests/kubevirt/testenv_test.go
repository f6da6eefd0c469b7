package kubevirt

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/lab"
	"github.com/vitistack/stack/tests/stand/registry"
)

// system is the namespace of KubeVirt.
const system = "kubevirt"

// folder returns the folder of build.sh, or an empty string if the suite was not requested.
func folder() string { return os.Getenv("VITI_KUBEVIRT") }

func TestMain(m *testing.M) { os.Exit(lab.KubeVirt(folder()).Main(m)) }

// env is a node in a lab, on which KubeVirt runs.
type env struct {
	*kubernetes.Cluster
}

// newEnv returns a node whose programs are in the folder of build.sh, and in others.
func newEnv(t *testing.T, programs ...string) *env {
	t.Helper()
	e := &env{kubernetes.New(t, lab.KubeVirt(folder()), append([]string{filepath.Join(folder(), "bin")}, programs...)...)}
	if err := e.configureMultus(); err != nil {
		t.Fatal(err)
	}
	return e
}

// in returns the fixture of a subtest.
func (e *env) in(t *testing.T) *env {
	copied := &env{}
	t.Cleanup(func() {
		if t.Failed() {
			copied.printMachines()
		}
	})
	copied.Cluster = e.In(t)
	return copied
}

// printMachines prints what KubeVirt reports about virtual machines, and the logs of the parts that run them.
func (e *env) printMachines() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e.Show(ctx, "kubectl", "get", "vm,vmi,pvc,pv,network-attachment-definitions", "-A", "-o", "wide")
	e.Show(ctx, "kubectl", "get", "vmi", "-A", "-o", "jsonpath={range .items[*]}{.status}{'\\n'}{end}")
	e.Show(ctx, "kubectl", "logs", "-n", system, "daemonset/virt-handler", "--tail=30")
	e.Show(ctx, "kubectl", "logs", "-n", "default", "-l", "kubevirt.io=virt-launcher", "--all-containers", "--tail=60")
}

// images returns the images of images.sh.
func images() (all []registry.Image) {
	for name, in := range map[string]string{
		"pause": "pause", "coredns": "coredns", "virt-operator": "virt-operator", "virt-api": "virt-api", "virt-controller": "virt-controller",
		"virt-handler": "virt-launcher", "virt-launcher": "virt-launcher",
		"cdi-operator": "cdi-operator", "cdi-apiserver": "cdi-apiserver", "cdi-uploadproxy": "cdi-uploadproxy",
		"cdi-controller": "virt-launcher", "cdi-importer": "virt-launcher",
	} {
		image := registry.Image{Name: name, Folder: filepath.Join(folder(), "images", in), Entrypoint: []string{"/usr/bin/" + name}}
		switch name {
		case "virt-operator", "virt-api", "virt-controller":
			image.User = "1001:1001" // as in the release
		case "cdi-operator", "cdi-apiserver", "cdi-controller", "cdi-uploadproxy", "cdi-importer":
			image.User = "1001"
		}
		all = append(all, image)
	}
	return all
}

// talosImages returns the images of tests/talos/rootfs.sh that only nodes of Talos pull.
func talosImages() (all []registry.Image) {
	folders, _ := filepath.Glob(filepath.Join(talosFolder(), "images", "*"))
	for _, path := range folders {
		if name := filepath.Base(path); name != "pause" && name != "coredns" {
			all = append(all, registry.Image{Name: name, Folder: path})
		}
	}
	return all
}

// Package kubevirt runs virtual machines of the stack with the real KubeVirt and QEMU. README.md says what is real.
package kubevirt

import (
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/registry"
)

//go:embed manifests/kubevirt.yaml
var kubevirtManifest string

// TestKubeVirt creates a machine on KubeVirt, restarts, stops and deletes it. The steps depend on each other.
func TestKubeVirt(t *testing.T) {
	if folder() == "" {
		t.Skip("run make test-kubevirt as root")
	}
	e := newEnv(t)
	handler, err := registry.New(images()...)
	if err != nil {
		t.Fatalf("read the images of images.sh: %v; run make test-kubevirt", err)
	}
	e.ServeRegistry(handler)
	e.serveImages(map[string]string{"/guest.img": "guest.img"})
	_ = e.startHypervisor(t) && e.run(t, "Machine", (*env).runMachine)
}

// run runs a step as a subtest, and reports whether it has passed.
func (e *env) run(t *testing.T, name string, step func(*env)) bool {
	return t.Run(name, func(t *testing.T) { step(e.in(t)) })
}

// startHypervisor runs the steps that lead to a node with CDI and KubeVirt, and reports whether they have passed. Volumes are provisioned until t ends.
func (e *env) startHypervisor(t *testing.T) bool {
	if !e.run(t, "Node", (*env).startNode) {
		return false
	}
	e.provisionVolumes()
	return e.run(t, "CDI", (*env).installCDI) && e.run(t, "KubeVirt", (*env).installKubeVirt)
}

// ignore takes the time of a step, which the log has too.
func ignore(string, time.Duration) {}

// startNode starts the control plane and the node. virt-operator runs on nodes of the control plane only.
func (e *env) startNode() {
	e.Boot(ignore)
	e.Kubectl("label", "node", kubernetes.NodeName, "node-role.kubernetes.io/control-plane=")
	if err := createBridge(); err != nil {
		e.T.Fatal(err)
	}
}

// installKubeVirt applies the manifests of KubeVirt's release, and those of what KubeVirt takes from others.
func (e *env) installKubeVirt() {
	operator, err := os.ReadFile(filepath.Join(folder(), "manifests", "operator.yaml"))
	if err != nil {
		e.T.Fatal(err)
	}
	e.Kubectl("apply", "--server-side", "-f", "tests/sim/kubevirt/crds/network-attachment-definitions.k8s.cni.cncf.io.yaml")
	e.Apply(kubernetes.WithAddresses(string(operator)))
	e.Kubectl("scale", "-n", system, "deployment/virt-operator", "--replicas=1")
	e.Kubectl("wait", "-n", system, "deployment/virt-operator", "--for=condition=Available", "--timeout=240s")
	e.Step("virt-operator is available")
	e.Apply(kubevirtManifest)
	e.Await("KubeVirt is available", 10*time.Minute, func(ctx context.Context) error {
		return e.RequireReady(ctx, "Available", "kubevirt", "-n", system)
	})
	e.Step("KubeVirt is available")
	e.Await("the node takes virtual machines", 2*time.Minute, func(ctx context.Context) error {
		_, err := e.Run(ctx, "", "kubectl", "wait", "node/"+kubernetes.NodeName, "--for=jsonpath={.metadata.labels.kubevirt\\.io/schedulable}=true", "--timeout=5s")
		return err
	})
	e.Step("the node takes virtual machines")
}

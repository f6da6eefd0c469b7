package kubevirt

import (
	"context"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/kubernetes"
)

//go:embed manifests/cluster.yaml
var clusterManifest string

const (
	clusterName = "real"
	// kubernetesVersion is the version of the programs of tests/talos/build.sh.
	kubernetesVersion = "1.35.6"
)

// eventsPort is the port of the gateway for events of nodes.
const eventsPort = "9993"

// clusterTimeout is the longest time until an emulated machine has booted Talos and Kubernetes.
const clusterTimeout = 25 * time.Minute

// talosFolder returns the folder of tests/talos/build.sh, or an empty string if the test was not requested.
func talosFolder() string { return os.Getenv("VITI_TALOS") }

// TestCluster creates a cluster of Talos in a virtual machine of KubeVirt, and deletes it. No part of the path from the cluster's YAML to
// its Node is a simulator, except that the test imports the image in the place of CDI.
func TestCluster(t *testing.T) {
	if talosFolder() == "" {
		t.Skip("run make test-kubevirt-talos as root")
	}
	e := newEnv(t)
	if !t.Run("Node", func(t *testing.T) { e.in(t).startNode() }) {
		return
	}
	e.installImporter()
	if t.Run("KubeVirt", func(t *testing.T) { e.in(t).installKubeVirt() }) {
		t.Run("Cluster", func(t *testing.T) { e.in(t).runCluster() })
	}
}

// runCluster creates a cluster by the stack on the KubeVirt of the node.
func (e *env) runCluster() {
	// The simulator would run guests by this program. It has none, and functions connect to nodes without its proxy.
	e.T.Setenv("VITI_GUESTS", "/bin/false")
	sink := net.JoinHostPort(guestGateway, eventsPort)
	m := &machine{env: e, home: engine.Start(e.T, "--config", "NODE_EVENTS_ADDRESS="+sink, "--config", "NODE_EVENTS_ENDPOINT="+sink).Kubeconfig()}
	e.Step("the stack runs on the local engine")
	m.inStack("", "create", "secret", "generic", "real", "-n", "vitistack-system", "--from-literal=kubeconfig="+e.Kubectl("config", "view", "--flatten", "--minify"))
	m.inStack(strings.NewReplacer("NETWORK", guestNetwork, "GATEWAY", guestGateway, "FIRST", guestFirst, "LAST", guestLast, "CLUSTER", clusterName,
		"VERSION", kubernetesVersion, "REGISTRY", kubernetes.Registry).Replace(clusterManifest), "apply", "--server-side", "-f", "-")
	m.awaitCluster()
	m.requireEmulation()
	m.requireNode()

	m.inStack("", "delete", "kubernetescluster", clusterName, "--timeout=300s")
	e.Await("everything of the cluster is deleted", 2*time.Minute, func(ctx context.Context) error {
		out, err := e.Run(ctx, "", "kubectl", "get", "vm,vmi,dv,pvc,pods,secrets", "-n", "default", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = fmt.Errorf("these are left: %s", out)
		}
		return errors.Join(err, requireGuests(0))
	})
	e.Step("the cluster is deleted with everything that was created for it")
}

// awaitCluster waits until the cluster is Running, and prints each message on the way.
func (m *machine) awaitCluster() {
	m.T.Helper()
	last := ""
	m.Await("the cluster is Running", clusterTimeout, func(ctx context.Context) error {
		var cluster struct{ Status status }
		out, err := m.Run(ctx, "", "kubectl", "--kubeconfig", m.home, "get", "kubernetescluster", clusterName, "-o", "json")
		if err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(out), &cluster); err != nil {
			return err
		}
		ready := ""
		for _, c := range cluster.Status.Conditions {
			if c.Type == "Ready" {
				ready = c.Reason + ": " + c.Message
			}
		}
		if ready != last {
			m.Step("%s: %s", cluster.Status.Phase, ready)
			last = ready
		}
		if cluster.Status.Phase != "Running" {
			return fmt.Errorf("it is %s: %s", cluster.Status.Phase, ready)
		}
		return nil
	})
	m.Step("the cluster is Running")
}

// requireNode fails the test unless the cluster's own API, with the kubeconfig of its requester, has one Node that is Ready, with the kernel of
// the image.
func (m *machine) requireNode() {
	m.T.Helper()
	secret, err := m.Run(m.T.Context(), "", "kubectl", "--kubeconfig", m.home, "get", "secret", clusterName+"-kubeconfig", "-o", "jsonpath={.data.kubeconfig}")
	if err != nil {
		m.T.Fatal(err)
	}
	kubeconfig, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		m.T.Fatal(err)
	}
	path := filepath.Join(m.T.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, kubeconfig, 0o600); err != nil {
		m.T.Fatal(err)
	}
	out := m.Must(time.Minute, "kubectl", "--kubeconfig", path, "get", "nodes", "-o",
		`jsonpath={range .items[*]}{.status.nodeInfo.osImage}, Linux {.status.nodeInfo.kernelVersion}, {.status.nodeInfo.kubeletVersion}: Ready {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	if want := "Talos"; strings.Count(out, "Ready True") != 1 || !strings.HasPrefix(out, want) || !strings.Contains(out, "v"+kubernetesVersion) {
		m.T.Fatalf("the cluster has the nodes %q, want one of Talos with v%s", out, kubernetesVersion)
	}
	m.Step("the cluster's API has the Node: %s", strings.TrimSpace(out))
}

// Package node runs the stack on a real node, with Knative and the stack as pods. README.md says what is real.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/results"
)

// TestNode runs a cluster of one node from an empty machine to the uninstallation of the stack. The steps depend on each
// other.
func TestNode(t *testing.T) {
	e := newEnv(t)
	t.Cleanup(func() { e.results.Write(t, e.Root) })
	for _, step := range []struct {
		name string
		run  func(*env)
	}{
		{"Node", (*env).startNode},
		{"Knative", (*env).installKnative},
		{"Install", (*env).install},
		{"Tour", (*env).tour},
		{"Retries", (*env).retries},
		{"Borders", (*env).borders},
		{"ScaleFromZero", (*env).scaleFromZero},
		{"Faults", (*env).faults},
		{"Upgrade", (*env).upgrade},
		{"Uninstall", (*env).uninstall},
	} {
		if !t.Run(step.name, func(t *testing.T) { step.run(e.in(t)) }) {
			return
		}
	}
}

// startNode starts the control plane and the node, and waits until pods resolve names.
func (e *env) startNode() {
	table := e.nodeTable()
	e.Boot(table.Row)
	e.EnforcePolicies()
}

func (e *env) installKnative() { e.Install(e.nodeTable().Row) }

// nodeTable is the table of the steps startNode and installKnative.
func (e *env) nodeTable() *results.Section {
	return e.results.Table("Node and Knative", "from an empty machine")
}

func (e *env) install() {
	e.Kubectl("apply", "--server-side", "-f", "tests/sim/kubevirt/crds")
	e.InstallStack("gateway: {env: {AUTH_TOKENREVIEW: \"true\"}}\n"+ // the simulated IPAM answers with a token of its ServiceAccount
		"networkPolicy: {"+simulatorPorts()+"}\n", // their URLs are in Secrets, which the chart cannot read
		e.results.Table("Installation", "step").Row)
}

// example returns a manifest of apis/examples. Its loopback network becomes one that pods reach through the proxy of the
// simulators.
func (e *env) example(name string) string {
	e.T.Helper()
	text, err := os.ReadFile(filepath.Join(e.Root, "apis/examples", name))
	if err != nil {
		e.T.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "127.64.", "10.64.")
}

// simulators are the ports of the simulated backends, by their values of networkPolicy in the chart.
var simulators = map[string]int{"kea": 8000, "nam": 8001, "netbox": 8002, "proxy": 1080}

// simulatorPorts returns the values of networkPolicy with these ports.
func simulatorPorts() string {
	var all []string
	for name, port := range simulators {
		all = append(all, fmt.Sprintf("%s: {ports: [%d]}", name, port))
	}
	return strings.Join(all, ", ")
}

// assignPorts writes the files from which the simulators take the addresses at which they listen.
func (e *env) assignPorts() error {
	errs := []error{os.MkdirAll(e.Path("sim"), 0o700)}
	for name, port := range simulators {
		if name == "proxy" {
			name = "gateway" // into the simulated networks
		}
		errs = append(errs, os.WriteFile(e.Path("sim", name+".address"), []byte(kubernetes.Address+":"+strconv.Itoa(port)), 0o600))
	}
	return errors.Join(errs...)
}

// startSimulators starts the simulators of all backends as a process of the node.
func (e *env) startSimulators() {
	e.T.Helper()
	if err := e.assignPorts(); err != nil {
		e.T.Fatal(err)
	}
	var gateway struct{ Spec struct{ ClusterIP string } }
	if err := json.Unmarshal([]byte(e.Kubectl("get", "service", "gateway", "-n", knative.System, "-o", "json")), &gateway); err != nil {
		e.T.Fatal(err)
	}
	if err := e.StartService("sim", "env", "GATEWAY_URL=http://"+gateway.Spec.ClusterIP+":9991", e.Program("sim"), "--state", e.Path("sim"),
		"--listen", kubernetes.Address); err != nil {
		e.T.Fatal(err)
	}
	e.Await("the simulated KubeVirt has its hypervisors", time.Minute, func(ctx context.Context) error {
		_, err := e.Run(ctx, "", "kubectl", "get", "node", "hypervisor-3")
		return err
	})
	if err := sendHeartbeats(e.suite, e.Kubeconfig(), "hypervisor-1", "hypervisor-2", "hypervisor-3"); err != nil {
		e.T.Fatal(err)
	}
}

// tour makes the network and the cluster of the README's tour.
func (e *env) tour() {
	e.startSimulators()
	e.Step("the simulators run")
	// A function reads the Secrets of the simulators when its pod starts.
	e.AwaitZero()
	e.Step("no function has a pod")
	e.Apply(e.example("machineprovider-kubevirt.yaml"))
	e.Apply(e.example("networkpool-tour.yaml"))
	start := time.Now()
	e.Apply(e.example("tour-network.yaml"))
	e.Kubectl("wait", "networknamespace/tour-network", "--for=jsonpath={.status.provisioningPhase}=Ready", "--timeout=180s")
	e.zeroTable().Row("to a Ready network, provision-network has no pod", time.Since(start))
	e.Step("the network is Ready")
	e.Apply(e.example("simple-kubernetescluster.yaml"))
	e.Kubectl("wait", "kubernetescluster/simple-cluster", "--for=jsonpath={.status.phase}=Running", "--timeout=280s")
	e.Step("the cluster is Running")
	e.requireWorkloadNodes(3)
	e.Step("the cluster answers with the kubeconfig of the requester")
	e.Apply(e.example("basic-vm.yaml"))
	e.Kubectl("wait", "machine/basic-vm", "--for=jsonpath={.status.phase}=Running", "--timeout=180s")
	e.Kubectl("delete", "machine", "basic-vm", "--timeout=180s")
	e.Step("a machine was Running, and is deleted")
	for _, name := range []string{"tour-networks.yaml", "tour-dhcp.yaml"} {
		e.Apply(e.example(name))
	}
	e.Await("the networks of all providers are Ready", 4*time.Minute, func(ctx context.Context) error {
		return e.RequireReady(ctx, "Ready", "networknamespaces,networkconfigurations", "-A")
	})
	e.Step("the networks of NAM, NetBox and an external IPAM, and a reservation in Kea are Ready")
	e.RequireNoneRefused()
}

// requireWorkloadNodes lists the nodes of the created cluster as its requester does, through the proxy into the simulated
// networks.
func (e *env) requireWorkloadNodes(count int) {
	e.T.Helper()
	proxy, err := os.ReadFile(e.Path("sim", "gateway.address"))
	if err != nil {
		e.T.Fatal(err)
	}
	file := e.Path("simple-cluster.kubeconfig")
	e.Must(time.Minute, "sh", "-c", "kubectl get secret simple-cluster-kubeconfig -o jsonpath={.data.kubeconfig} | base64 -d > "+file)
	out := e.Must(time.Minute, "env", "HTTPS_PROXY=socks5://"+string(proxy), "kubectl", "--kubeconfig", file, "get", "nodes", "-o", "name")
	if names := strings.Fields(out); len(names) != count {
		e.T.Errorf("the cluster has the nodes %v, want %d", names, count)
	}
}

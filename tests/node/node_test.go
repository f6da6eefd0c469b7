package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/kubernetes"
	"github.com/vitistack/stack/tests/stand/results"
)

// functions are the Knative Services of the stack.
var functions = []string{"allocate-ip", "bootstrap-talos", "create-vm", "etcd-backup", "kea-reserve", "provision-network", "resync"}

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
	e.Apply(networkManifest)
	if err := e.Start(kubernetes.NetworkPolicies); err != nil {
		e.T.Fatal(err)
	}
}

// installKnative applies the manifests of Knative's release, as its documentation says.
func (e *env) installKnative() {
	deployments := func(namespace string) {
		e.T.Helper()
		e.Kubectl("wait", "-n", namespace, "deployment", "--all", "--for=condition=Available", "--timeout=280s")
	}
	for _, name := range []string{"serving-crds", "serving", "eventing-crds", "eventing"} {
		text, err := manifest(folder(), name)
		if err != nil {
			e.T.Fatal(err)
		}
		e.Apply(text)
		if strings.HasSuffix(name, "-crds") {
			e.Await("the CRDs are served", time.Minute, func(ctx context.Context) error { return e.RequireReady(ctx, "Established", "crd") })
		}
	}
	e.Apply(kubernetes.WithAddresses(ingressManifest))
	deployments("knative-serving")
	e.Await("the ingress class is set", time.Minute, func(ctx context.Context) error {
		_, err := e.Run(ctx, "", "kubectl", "patch", "configmap", "config-network", "-n", "knative-serving", "--type=merge",
			"-p", `{"data":{"ingress-class":"kourier.ingress.networking.knative.dev"}}`)
		return err
	})
	text, err := manifest(folder(), "serving-objects")
	if err != nil {
		e.T.Fatal(err)
	}
	e.Apply(text)
	deployments("kourier-system")
	table := e.nodeTable()
	table.Row("Knative Serving available", e.Step("Knative Serving is available"))
	deployments("knative-eventing")
	table.Row("Knative Eventing available, after Serving", e.Step("Knative Eventing is available"))
}

// nodeTable is the table of the steps startNode and installKnative.
func (e *env) nodeTable() *results.Section {
	return e.results.Table("Node and Knative", "from an empty machine")
}

var digest = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]+)$`)

// install builds images and chart as a release does, and installs them by digest as a user does.
func (e *env) install() {
	e.Kubectl("apply", "--server-side", "-f", "tests/sim/kubevirt/crds")
	var pins []string
	for line := range strings.Lines(e.Must(30*time.Minute, "make", "--silent", "images", "IMG="+repository+":v1", "VERSION=v1", "PLATFORMS=linux/"+runtime.GOARCH)) {
		if name, sum, ok := strings.Cut(strings.TrimSpace(line), "@"); ok {
			pins = append(pins, name+": "+sum)
		}
	}
	if len(pins) <= len(functions) {
		e.T.Fatalf("make images printed the digests of %d images: %v", len(pins), pins)
	}
	table := e.results.Table("Installation", "step")
	table.Row("make images, with a warm cache, for one platform", e.Step("%d images are built and pushed", len(pins)))
	// The release writes them into the chart: make pin.
	values := e.Path("values.yaml")
	text := "image: {repository: " + repository + ", digests: {" + strings.Join(pins, ", ") + "}}\n" +
		"gateway: {env: {AUTH_TOKENREVIEW: \"true\"}}\n" + // the simulated IPAM answers with a token of its ServiceAccount
		"networkPolicy: {" + simulatorPorts() + "}\n" // their URLs are in Secrets, which the chart cannot read
	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		e.T.Fatal(err)
	}
	e.Must(time.Minute, "helm", "package", "charts/vitistack", "--version", "1.0.0", "--app-version", "v1", "--destination", e.Path())
	out, err := e.Run(e.T.Context(), "", "sh", "-c", "helm push --plain-http "+e.Path("vitistack-1.0.0.tgz")+" oci://"+kubernetes.Registry+"/charts 2>&1")
	found := digest.FindStringSubmatch(out)
	if err != nil || found == nil {
		e.T.Fatalf("push the chart: %v: %s", err, out)
	}
	e.Kubectl("create", "namespace", system)
	e.Kubectl("label", "namespace", system, "pod-security.kubernetes.io/enforce=restricted")
	start := time.Now()
	e.Must(5*time.Minute, "helm", "install", "vitistack", chart+"@"+found[1], "--plain-http", "--namespace", system, "--values", values)
	e.Await("all is Ready", 5*time.Minute, e.isInstalled)
	table.Row("helm install, until everything is Ready", time.Since(start))
	e.Step("helm install: everything is Ready")
	e.requireNoRestarts()
	e.requireNoneRefused()
	e.Must(5*time.Minute, "helm", "test", "vitistack", "--namespace", system)
	table.Row("helm test", e.Step("helm test passes"))
}

const (
	repository = kubernetes.Registry + "/vitistack"
	chart      = "oci://" + kubernetes.Registry + "/charts/vitistack"
)

// isInstalled returns an error that names what of the stack is not Ready.
func (e *env) isInstalled(ctx context.Context) error {
	services, err := e.List(ctx, "ksvc", "-n", system)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range services {
		names = append(names, s.Metadata.Name)
	}
	if slices.Sort(names); !slices.Equal(names, functions) {
		return fmt.Errorf("the Services are %v, want %v", names, functions)
	}
	return errors.Join(
		e.RequireReady(ctx, "Ready", "ksvc,broker,trigger,apiserversource,pingsource,sinkbinding", "-n", system),
		e.RequireReady(ctx, "Available", "deployment", "-n", system),
	)
}

// requireNoRestarts fails the test if a container of the stack or of Knative was restarted.
func (e *env) requireNoRestarts() {
	e.T.Helper()
	pods, err := e.List(e.T.Context(), "pods", "-A")
	if err != nil {
		e.T.Fatal(err)
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				e.T.Errorf("container %s of pod %s/%s was restarted %d times", c.Name, pod.Metadata.Namespace, pod.Metadata.Name, c.RestartCount)
				e.T.Log(e.Run(e.T.Context(), "", "kubectl", "logs", "--previous", "--tail=10", "-n", pod.Metadata.Namespace, pod.Metadata.Name, "-c", c.Name))
			}
		}
	}
}

// requireNoneRefused fails the test if the API server has refused a pod of the stack: Pod Security, quota, or RBAC.
func (e *env) requireNoneRefused() {
	e.T.Helper()
	out := e.Kubectl("get", "events", "-n", system, "--field-selector", "reason=FailedCreate", "-o", "jsonpath={range .items[*]}{.message}{'\\n'}{end}")
	if strings.TrimSpace(out) != "" {
		e.T.Errorf("the API server refused pods:\n%s", out)
	}
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
	if err := json.Unmarshal([]byte(e.Kubectl("get", "service", "gateway", "-n", system, "-o", "json")), &gateway); err != nil {
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
	e.awaitZero()
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
	e.requireNoneRefused()
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

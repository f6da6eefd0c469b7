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
)

// functions are the Knative Services of the stack.
var functions = []string{"allocate-ip", "bootstrap-talos", "create-vm", "etcd-backup", "kea-reserve", "provision-network", "resync"}

// TestNode runs a cluster of one node from an empty machine to the uninstallation of the stack. The steps depend on each
// other.
func TestNode(t *testing.T) {
	e := newEnv(t)
	t.Cleanup(func() { e.results.write(t, e.root) })
	for _, step := range []struct {
		name string
		run  func(*env)
	}{
		{"Node", (*env).startNode},
		{"Knative", (*env).installKnative},
		{"Install", (*env).install},
		{"Tour", (*env).tour},
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
	table := e.results.table("Node and Knative", "from an empty machine")
	must := func(err error) {
		e.t.Helper()
		if err != nil {
			e.t.Fatal(err)
		}
	}
	must(e.machine.start(control[:2]...))
	e.await("the API server is ready", time.Minute, func(ctx context.Context) error {
		_, err := e.run(ctx, "", "kubectl", "get", "--raw", "/readyz")
		return err
	})
	table.row("API server ready", e.step("the API server is ready"))
	must(e.machine.start(control[2:]...))
	e.apply(networkManifest)
	must(e.machine.start(worker...))
	e.apply(withAddresses(dnsManifest))
	e.await("the node is Ready", 2*time.Minute, func(ctx context.Context) error { return e.requireReady(ctx, "Ready", "nodes") })
	table.row("node Ready", e.step("the node is Ready"))
	e.kubectl("wait", "-n", "kube-system", "deployment/coredns", "--for=condition=Available", "--timeout=180s")
	table.row("CoreDNS available", e.step("CoreDNS is available"))
}

// installKnative applies the manifests of Knative's release, as its documentation says.
func (e *env) installKnative() {
	deployments := func(namespace string) {
		e.t.Helper()
		e.kubectl("wait", "-n", namespace, "deployment", "--all", "--for=condition=Available", "--timeout=280s")
	}
	for _, name := range []string{"serving-crds", "serving", "eventing-crds", "eventing"} {
		text, err := manifest(folder(), name)
		if err != nil {
			e.t.Fatal(err)
		}
		e.apply(text)
		if strings.HasSuffix(name, "-crds") {
			e.await("the CRDs are served", time.Minute, func(ctx context.Context) error { return e.requireReady(ctx, "Established", "crd") })
		}
	}
	e.apply(withAddresses(ingressManifest))
	deployments("knative-serving")
	e.await("the ingress class is set", time.Minute, func(ctx context.Context) error {
		_, err := e.run(ctx, "", "kubectl", "patch", "configmap", "config-network", "-n", "knative-serving", "--type=merge",
			"-p", `{"data":{"ingress-class":"kourier.ingress.networking.knative.dev"}}`)
		return err
	})
	text, err := manifest(folder(), "serving-objects")
	if err != nil {
		e.t.Fatal(err)
	}
	e.apply(text)
	deployments("kourier-system")
	table := e.results.sections[0]
	table.row("Knative Serving available", e.step("Knative Serving is available"))
	deployments("knative-eventing")
	table.row("Knative Eventing available, after Serving", e.step("Knative Eventing is available"))
}

var digest = regexp.MustCompile(`(?m)^Digest: (sha256:[0-9a-f]+)$`)

// install builds images and chart as a release does, and installs them by digest as a user does.
func (e *env) install() {
	e.kubectl("apply", "--server-side", "-f", "tests/sim/kubevirt/crds")
	var pins []string
	for line := range strings.Lines(e.must(30*time.Minute, "make", "--silent", "images", "IMG="+repository+":v1", "VERSION=v1", "PLATFORMS=linux/"+runtime.GOARCH)) {
		if name, sum, ok := strings.Cut(strings.TrimSpace(line), "@"); ok {
			pins = append(pins, name+": "+sum)
		}
	}
	if len(pins) <= len(functions) {
		e.t.Fatalf("make images printed the digests of %d images: %v", len(pins), pins)
	}
	table := e.results.table("Installation", "step")
	table.row("make images, with a warm cache, for one platform", e.step("%d images are built and pushed", len(pins)))
	// The release writes them into the chart: make pin.
	values := e.path("values.yaml")
	text := "image: {repository: " + repository + ", digests: {" + strings.Join(pins, ", ") + "}}\n" +
		"gateway: {env: {AUTH_TOKENREVIEW: \"true\"}}\n" + // the simulated IPAM answers with a token of its ServiceAccount
		"networkPolicy: {" + simulatorPorts() + "}\n" // their URLs are in Secrets, which the chart cannot read
	if err := os.WriteFile(values, []byte(text), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.must(time.Minute, "helm", "package", "charts/vitistack", "--version", "1.0.0", "--app-version", "v1", "--destination", e.folder)
	out, err := e.run(e.t.Context(), "", "sh", "-c", "helm push --plain-http "+e.path("vitistack-1.0.0.tgz")+" oci://"+registryURL+"/charts 2>&1")
	found := digest.FindStringSubmatch(out)
	if err != nil || found == nil {
		e.t.Fatalf("push the chart: %v: %s", err, out)
	}
	e.kubectl("create", "namespace", system)
	e.kubectl("label", "namespace", system, "pod-security.kubernetes.io/enforce=restricted")
	start := time.Now()
	e.must(5*time.Minute, "helm", "install", "vitistack", chart+"@"+found[1], "--plain-http", "--namespace", system, "--values", values)
	e.await("all is Ready", 5*time.Minute, e.isInstalled)
	table.row("helm install, until everything is Ready", time.Since(start))
	e.step("helm install: everything is Ready")
	e.requireNoRestarts()
	e.requireNoneRefused()
	e.must(5*time.Minute, "helm", "test", "vitistack", "--namespace", system)
	table.row("helm test", e.step("helm test passes"))
}

const (
	repository = registryURL + "/vitistack"
	chart      = "oci://" + registryURL + "/charts/vitistack"
)

// isInstalled returns an error that names what of the stack is not Ready.
func (e *env) isInstalled(ctx context.Context) error {
	services, err := e.list(ctx, "ksvc", "-n", system)
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
		e.requireReady(ctx, "Ready", "ksvc,broker,trigger,apiserversource,pingsource,sinkbinding", "-n", system),
		e.requireReady(ctx, "Available", "deployment", "-n", system),
	)
}

// requireNoRestarts fails the test if a container of the stack or of Knative was restarted.
func (e *env) requireNoRestarts() {
	e.t.Helper()
	pods, err := e.list(e.t.Context(), "pods", "-A")
	if err != nil {
		e.t.Fatal(err)
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			if c.RestartCount > 0 {
				e.t.Errorf("container %s of pod %s/%s was restarted %d times", c.Name, pod.Metadata.Namespace, pod.Metadata.Name, c.RestartCount)
				e.t.Log(e.run(e.t.Context(), "", "kubectl", "logs", "--previous", "--tail=10", "-n", pod.Metadata.Namespace, pod.Metadata.Name, "-c", c.Name))
			}
		}
	}
}

// requireNoneRefused fails the test if the API server has refused a pod of the stack: Pod Security, quota, or RBAC.
func (e *env) requireNoneRefused() {
	e.t.Helper()
	out := e.kubectl("get", "events", "-n", system, "--field-selector", "reason=FailedCreate", "-o", "jsonpath={range .items[*]}{.message}{'\\n'}{end}")
	if strings.TrimSpace(out) != "" {
		e.t.Errorf("the API server refused pods:\n%s", out)
	}
}

// example returns a manifest of apis/examples. Its loopback network becomes one that pods reach through the proxy of the
// simulators.
func (e *env) example(name string) string {
	e.t.Helper()
	text, err := os.ReadFile(filepath.Join(e.root, "apis/examples", name))
	if err != nil {
		e.t.Fatal(err)
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
	errs := []error{os.MkdirAll(e.path("sim"), 0o700)}
	for name, port := range simulators {
		if name == "proxy" {
			name = "gateway" // into the simulated networks
		}
		errs = append(errs, os.WriteFile(e.path("sim", name+".address"), []byte(address+":"+strconv.Itoa(port)), 0o600))
	}
	return errors.Join(errs...)
}

// startSimulators starts the simulators of all backends as a process of the node.
func (e *env) startSimulators() {
	e.t.Helper()
	if err := e.assignPorts(); err != nil {
		e.t.Fatal(err)
	}
	var gateway struct{ Spec struct{ ClusterIP string } }
	if err := json.Unmarshal([]byte(e.kubectl("get", "service", "gateway", "-n", system, "-o", "json")), &gateway); err != nil {
		e.t.Fatal(err)
	}
	s, err := startService("sim", e.path("logs", "sim.log"), "env", "GATEWAY_URL=http://"+gateway.Spec.ClusterIP+":9991",
		filepath.Join(e.programs, "sim"), "--state", e.path("sim"), "--listen", address)
	if err != nil {
		e.t.Fatal(err)
	}
	e.services["sim"] = s
	e.await("the simulated KubeVirt has its hypervisors", time.Minute, func(ctx context.Context) error {
		_, err := e.run(ctx, "", "kubectl", "get", "node", "hypervisor-3")
		return err
	})
	if err := sendHeartbeats(e.suite, e.keys.path("admin.kubeconfig"), "hypervisor-1", "hypervisor-2", "hypervisor-3"); err != nil {
		e.t.Fatal(err)
	}
}

// tour makes the network and the cluster of the README's tour.
func (e *env) tour() {
	e.startSimulators()
	e.step("the simulators run")
	// A function reads the Secrets of the simulators when its pod starts.
	e.awaitZero()
	e.step("no function has a pod")
	for _, name := range []string{"machineprovider-kubevirt.yaml", "networkpool-tour.yaml", "tour-network.yaml"} {
		e.apply(e.example(name))
	}
	e.kubectl("wait", "networknamespace/tour-network", "--for=jsonpath={.status.provisioningPhase}=Ready", "--timeout=180s")
	e.step("the network is Ready")
	e.apply(e.example("simple-kubernetescluster.yaml"))
	e.kubectl("wait", "kubernetescluster/simple-cluster", "--for=jsonpath={.status.phase}=Running", "--timeout=280s")
	e.step("the cluster is Running")
	e.requireWorkloadNodes(3)
	e.step("the cluster answers with the kubeconfig of the requester")
	e.apply(e.example("basic-vm.yaml"))
	e.kubectl("wait", "machine/basic-vm", "--for=jsonpath={.status.phase}=Running", "--timeout=180s")
	e.kubectl("delete", "machine", "basic-vm", "--timeout=180s")
	e.step("a machine was Running, and is deleted")
	for _, name := range []string{"tour-networks.yaml", "tour-dhcp.yaml"} {
		e.apply(e.example(name))
	}
	e.await("the networks of all providers are Ready", 4*time.Minute, func(ctx context.Context) error {
		return e.requireReady(ctx, "Ready", "networknamespaces,networkconfigurations", "-A")
	})
	e.step("the networks of NAM, NetBox and an external IPAM, and a reservation in Kea are Ready")
	e.requireNoneRefused()
}

// requireWorkloadNodes lists the nodes of the created cluster as its requester does, through the proxy into the simulated
// networks.
func (e *env) requireWorkloadNodes(count int) {
	e.t.Helper()
	proxy, err := os.ReadFile(e.path("sim", "gateway.address"))
	if err != nil {
		e.t.Fatal(err)
	}
	file := e.path("simple-cluster.kubeconfig")
	e.must(time.Minute, "sh", "-c", "kubectl get secret simple-cluster-kubeconfig -o jsonpath={.data.kubeconfig} | base64 -d > "+file)
	out := e.must(time.Minute, "env", "HTTPS_PROXY=socks5://"+string(proxy), "kubectl", "--kubeconfig", file, "get", "nodes", "-o", "name")
	if names := strings.Fields(out); len(names) != count {
		e.t.Errorf("the cluster has the nodes %v, want %d", names, count)
	}
}

package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/tests/stand/knative"
	"github.com/vitistack/stack/tests/stand/kubernetes"
)

// visitorsManifest has a pod outside of the stack, and one in its namespace that Pod Security admits.
const visitorsManifest = `{apiVersion: v1, kind: Namespace, metadata: {name: visitors}}
---
{apiVersion: v1, kind: Pod, metadata: {name: visitor, namespace: visitors, labels: {app: visitor}}, spec: {containers: [{name: pause, image: "REGISTRY/pause:1"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: visitor, namespace: vitistack-system, labels: {app: visitor}}, spec: {containers: [{name: pause, image: "REGISTRY/pause:1", securityContext: {
  runAsNonRoot: true, runAsUser: 65532, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}}]}}
`

// borders tries connections between pods, which NetworkPolicies of the chart allow or refuse. Each refused connection is also
// tried from a pod that may make it, which proves that something listens.
func (e *env) borders() {
	e.Apply(kubernetes.WithAddresses(visitorsManifest))
	e.Kubectl("wait", "pod/visitor", "-n", "visitors", "--for=condition=Ready", "--timeout=60s")
	e.Kubectl("wait", "pod/visitor", "-n", knative.System, "--for=condition=Ready", "--timeout=60s")
	e.createMachines("border-", 1)
	e.awaitRunning("border-", 1)

	visitor, inside := e.podAddress("visitors", "app=visitor"), e.podAddress(knative.System, "app=visitor")
	function, gateway := e.podAddress(knative.System, "serving.knative.dev/service=create-vm"), e.podAddress(knative.System, "app.kubernetes.io/name=gateway")
	dns, activator := e.podAddress("kube-system", "k8s-app=kube-dns"), e.podAddress("knative-serving", "app=activator")
	dispatcher := e.podAddress("knative-eventing", "messaging.knative.dev/role=dispatcher")
	const requests, metrics, http, broker, health, kubelet = 8012, 9090, 9991, 9992, 8181, 10250
	for _, c := range []struct {
		why  string
		from string
		to   string
		port int
		open bool
	}{
		{"Knative sends events to functions", activator, function, requests, true},
		{"no other pod does", visitor, function, requests, false},
		{"a pod of the stack's namespace is no exception", inside, function, requests, false},
		{"Knative reads the number of requests", activator, function, metrics, true},
		{"no other pod does", visitor, function, metrics, false},
		{"every pod may use the REST API", visitor, gateway, http, true},
		{"the Broker delivers events to the gateway", dispatcher, gateway, broker, true},
		{"functions send dead letters to the gateway", function, gateway, broker, true},
		{"no other pod delivers events to it", visitor, gateway, broker, false},
		{"a pod of the stack resolves names", inside, dns, 53, true},
		{"a pod of the stack uses the Kubernetes API", inside, kubernetes.Address, 6443, true},
		{"a pod outside of the stack may connect to any pod", visitor, dns, health, true},
		{"a pod of the stack may not", inside, dns, health, false},
		{"a function may not", function, dns, health, false},
		{"the gateway may not", gateway, dns, health, false},
		{"a pod outside of the stack may connect to the node", visitor, kubernetes.Address, kubelet, true},
		{"a pod of the stack may not", inside, kubernetes.Address, kubelet, false},
		{"a function may not", function, kubernetes.Address, kubelet, false},
		{"the gateway may not", gateway, kubernetes.Address, kubelet, false},
	} {
		e.Await(fmt.Sprintf("%s: from %s to %s:%d", c.why, c.from, c.to, c.port), 20*time.Second, func(ctx context.Context) error {
			if err := connect(ctx, c.from, c.to, c.port); (err == nil) != c.open {
				return fmt.Errorf("open is %t, want %t: %w", err == nil, c.open, err)
			}
			return nil
		})
	}
	e.deleteMachines("border-")
	e.Kubectl("delete", "pod", "visitor", "-n", knative.System, "--wait=false")
	e.Kubectl("delete", "namespace", "visitors", "--wait=false")
	e.RequireNoneRefused()
	e.Step("NetworkPolicies allow what is needed, and refuse the rest")
}

// podAddress returns the IP address of a running pod with a label.
func (e *env) podAddress(namespace, label string) string {
	e.T.Helper()
	ip := e.Kubectl("get", "pod", "-n", namespace, "-l", label, "--field-selector", "status.phase=Running", "-o", "jsonpath={.items[0].status.podIP}")
	if ip == "" {
		e.T.Fatalf("no running pod with %s in the namespace %s has an address", label, namespace)
	}
	return ip
}

// connect opens a TCP connection from the network namespace of the pod with an address.
func connect(ctx context.Context, from, to string, port int) error {
	namespace, err := networkNamespace(ctx, from)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "--net="+namespace, "bash", "-c", "exec 3<>/dev/tcp/$0/$1", to, strconv.Itoa(port)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("connect: %w: %s", errors.Join(err, ctx.Err()), out)
	}
	return nil
}

// networkNamespace returns the file of the network namespace that has an address. containerd keeps those of pods in a folder.
func networkNamespace(ctx context.Context, address string) (string, error) {
	files, err := filepath.Glob("/run/netns/*")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		out, err := exec.CommandContext(ctx, "nsenter", "--net="+file, "ip", "-4", "-oneline", "address").CombinedOutput()
		if err == nil && strings.Contains(string(out), " "+address+"/") {
			return file, nil
		}
	}
	return "", fmt.Errorf("none of %d network namespaces has the address %s", len(files), address)
}

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

	visitor, inside := pods{"visitors", "app=visitor"}, pods{knative.System, "app=visitor"}
	function, gateway := pods{knative.System, "serving.knative.dev/service=create-vm"}, pods{knative.System, "app.kubernetes.io/name=gateway"}
	dns, activator := pods{"kube-system", "k8s-app=kube-dns"}, pods{"knative-serving", "app=activator"}
	dispatcher := pods{"knative-eventing", "messaging.knative.dev/role=dispatcher"}
	node := fixed(kubernetes.Address)
	const requests, metrics, http, broker, health, kubelet = 8012, 9090, 9991, 9992, 8181, 10250
	for _, c := range []struct {
		why  string
		from pods
		to   peer
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
		{"a pod of the stack uses the Kubernetes API", inside, node, 6443, true},
		{"a pod outside of the stack may connect to any pod", visitor, dns, health, true},
		{"a pod of the stack may not", inside, dns, health, false},
		{"a function may not", function, dns, health, false},
		{"the gateway may not", gateway, dns, health, false},
		{"a pod outside of the stack may connect to the node", visitor, node, kubelet, true},
		{"a pod of the stack may not", inside, node, kubelet, false},
		{"a function may not", function, node, kubelet, false},
		{"the gateway may not", gateway, node, kubelet, false},
	} {
		e.Await(fmt.Sprintf("%s: from %s to port %d of %s", c.why, c.from, c.port, c.to), 20*time.Second, func(ctx context.Context) error {
			return e.checkConnection(ctx, c.from, c.to, c.port, c.open)
		})
	}
	e.deleteMachines("border-")
	e.Kubectl("delete", "pod", "visitor", "-n", knative.System, "--wait=false")
	e.Kubectl("delete", "namespace", "visitors", "--wait=false")
	e.RequireNoneRefused()
	e.Step("NetworkPolicies allow what is needed, and refuse the rest")
}

// checkConnection returns an error unless a pod can connect to a peer, or cannot if open is false.
func (e *env) checkConnection(ctx context.Context, from pods, to peer, port int, open bool) error {
	source, err := from.address(ctx, e)
	if err != nil {
		return err
	}
	destination, err := to.address(ctx, e)
	if err != nil {
		return err
	}
	namespace, err := networkNamespace(ctx, source)
	if err != nil {
		return err
	}
	if err := connect(ctx, namespace, destination, port); (err == nil) != open {
		return fmt.Errorf("from %s to %s: open is %t, want %t: %w", source, destination, err == nil, open, err)
	}
	return nil
}

// peer is what a connection goes to.
type peer interface {
	address(ctx context.Context, e *env) (string, error)
}

// fixed is the peer with an IP address.
type fixed string

func (f fixed) address(context.Context, *env) (string, error) { return string(f), nil }

// pods are the pods of a namespace with a label. Pods of a function come and go, so each connection asks for their addresses again.
type pods struct{ namespace, label string }

// address returns the IP address of one that runs and is not in deletion.
func (p pods) address(ctx context.Context, e *env) (string, error) {
	out, err := e.Run(ctx, "", "kubectl", "get", "pods", "-n", p.namespace, "-l", p.label, "--field-selector", "status.phase=Running",
		"-o", "go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.status.podIP}} {{end}}{{end}}")
	if err != nil {
		return "", err
	}
	addresses := strings.Fields(out)
	if len(addresses) == 0 {
		return "", fmt.Errorf("no pod with %s runs in the namespace %s", p.label, p.namespace)
	}
	return addresses[0], nil
}

// connect opens a TCP connection from a network namespace.
func connect(ctx context.Context, namespace, to string, port int) error {
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

package e2e

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	machinetype "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	operatedTalos      = "v1.13.3" // an earlier version than bootstrap-talos would choose
	operatedKubernetes = "1.33.4"
	operatedMachine    = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: %[1]s}
spec: {template: medium, networkNamespaceName: network, cloudInit: {secretRef: {name: %[1]s-seed}},
  os: {family: linux, distribution: talos, version: 1.13.3, architecture: amd64, imageID: "https://factory.talos.dev/image/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515/v1.13.3/nocloud-amd64.raw.xz"}}
`
	// operatedCluster is paused, as if no function reconciled it, because the stack is installed after the adoption.
	operatedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop, annotations: {vitistack.io/paused: "true"}, finalizers: [kubernetescluster.vitistack.io/finalizer]}
spec: {data: {clusterId: shop-x1, provider: talos}, networkNamespaceName: network, topology: {version: "1.33.4", controlplane: {replicas: 1, template: medium}, workers: [{name: web, replicas: 1, template: medium}]}}
`
)

// operated is a cluster that the talos-operator has made.
type operated struct {
	*engine.Engine
	namespace, address string
	bundle             *secrets.Bundle
	talosconfig        *clientconfig.Config
}

// adoptCluster runs a cluster as the talos-operator leaves it, adopts it, and has it run by bootstrap-talos: the nodes, their virtual machines and
// etcd stay as they are, and a worker is added and everything deleted.
func (p pair) adoptCluster(t *testing.T) {
	o := &operated{Engine: p.from, namespace: "operated"}
	// The machines of the second engine have no addresses of their own.
	o.Apply(o.namespace, strings.Replace(p.to.StaticNetwork("network", 10, 250), "vlanId: 100", "vlanId: 133", 1))
	nodes := map[string]machinetype.Type{"shop-x1-ctp0": machinetype.TypeControlPlane, "shop-x1-wrk0": machinetype.TypeWorker}
	for name := range nodes {
		o.Apply(o.namespace, fmt.Sprintf(operatedMachine, name))
	}
	o.generate(t)
	for name, kind := range nodes {
		o.seed(t, name, kind)
	}
	for name := range nodes {
		o.UntilPhase(engine.Machines, o.namespace, name, "Running")
	}
	o.bootstrap(t)
	o.leave(t)
	before := o.identity(t)
	for range 2 {
		if out, ok := tryViti(t, o.Engine, "adopt", "-n", o.namespace); !ok || !strings.Contains(out, "shop-talos-secrets") || strings.Contains(out, "decide") {
			t.Fatalf("kubectl viti adopt: %s", out)
		}
	}
	o.patch(t, engine.KubernetesClusters, "shop", `{"metadata": {"annotations": {"vitistack.io/paused": null}}}`)
	o.UntilPhase(engine.KubernetesClusters, o.namespace, "shop", "Running")
	if diff := cmp.Diff(before, o.identity(t)); diff != "" {
		t.Errorf("the adopted cluster (-before +after):\n%s", diff)
	}
	o.patch(t, engine.KubernetesClusters, "shop", `{"spec": {"topology": {"workers": [{"name": "web", "replicas": 2, "template": "medium"}]}}}`)
	feed.Until(t, "the cluster has a node more", func() (bool, string) {
		nodes := o.nodes(t)
		return len(nodes) == 3 && nodes["shop-web-1"] != "", fmt.Sprint(nodes)
	})
	o.UntilPhase(engine.KubernetesClusters, o.namespace, "shop", "Running")
	after := o.identity(t)
	maps.DeleteFunc(after, func(what, _ string) bool { return strings.HasSuffix(what, " shop-web-1") })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("the cluster with another worker (-before +after):\n%s", diff)
	}
	o.patch(t, engine.Machines, "shop-x1-wrk0", `{"metadata": {"annotations": {"vitistack.io/remove": "true"}}}`)
	feed.Until(t, "a new machine replaces an adopted one, whose Node is deleted", func() (bool, string) {
		names := o.nodeNames(t)
		return slices.Equal(names, []string{"shop-web-1", "shop-web-2", "shop-x1-ctp0"}), fmt.Sprint(names)
	})
	o.Delete(engine.KubernetesClusters, o.namespace, "shop")
	feed.Until(t, "the cluster is deleted", func() (bool, string) {
		left := uidsIn(o.Engine, engine.VirtualMachines, o.namespace)
		maps.Copy(left, uidsIn(o.Engine, engine.KubernetesClusters, o.namespace))
		return len(left) == 0, fmt.Sprint(left)
	})
}

// generate generates the keys and the talosconfig, once the control plane has an address.
func (o *operated) generate(t *testing.T) {
	t.Helper()
	nc := o.UntilPhase(engine.NetworkConfigurations, o.namespace, "shop-x1-ctp0", "Ready")
	interfaces, _, _ := unstructured.NestedSlice(nc.Object, "status", "networkInterfaces")
	addresses, _, _ := unstructured.NestedStringSlice(interfaces[0].(map[string]any), "ipv4Addresses")
	o.address = addresses[0]
	contract, err := config.ParseContractFromVersion(operatedTalos)
	if err != nil {
		t.Fatal(err)
	}
	if o.bundle, err = secrets.NewBundle(secrets.NewClock(), contract); err != nil {
		t.Fatal(err)
	}
	if o.talosconfig, err = o.input(t).Talosconfig(); err != nil {
		t.Fatal(err)
	}
	o.talosconfig.Contexts[o.talosconfig.Context].Endpoints = []string{o.address}
	o.talosconfig.Contexts[o.talosconfig.Context].Nodes = []string{o.address}
}

func (o *operated) input(t *testing.T) *generate.Input {
	t.Helper()
	contract, err := config.ParseContractFromVersion(operatedTalos)
	if err != nil {
		t.Fatal(err)
	}
	in, err := generate.NewInput("shop-x1", "https://"+o.address+":6443", operatedKubernetes, generate.WithSecretsBundle(o.bundle), generate.WithVersionContract(contract),
		generate.WithInstallDisk("/dev/vda"), generate.WithInstallImage("factory.talos.dev/nocloud-installer/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515:"+operatedTalos))
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// seed writes the configuration of a node into the Secret that its Machine names and waits for.
func (o *operated) seed(t *testing.T, name string, kind machinetype.Type) {
	t.Helper()
	provider, err := o.input(t).Config(kind)
	if err != nil {
		t.Fatal(err)
	}
	patches, err := configpatcher.LoadPatches([]string{fmt.Sprintf("apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: %s\nauto: off\n", name)})
	if err != nil {
		t.Fatal(err)
	}
	out, err := configpatcher.Apply(configpatcher.WithConfig(provider), patches)
	if err != nil {
		t.Fatal(err)
	}
	content, err := out.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	o.applyJSON(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "stringData": map[string]any{"userdata": string(content)},
		"metadata": map[string]any{"name": name + "-seed", "labels": map[string]any{"vitistack.io/cloud-init": "true"}},
	})
	o.patch(t, engine.Machines, name, `{"metadata": {"annotations": {"vitistack.io/reconcile": "now"}}}`)
}

// bootstrap has the control plane bootstrap etcd, and waits until both nodes are Ready.
func (o *operated) bootstrap(t *testing.T) {
	t.Helper()
	o.talos(t, "the control plane bootstraps etcd", func(ctx context.Context, c *client.Client) error {
		return c.Bootstrap(ctx, &machineapi.BootstrapRequest{})
	})
	feed.Until(t, "both nodes are Ready", func() (bool, string) {
		nodes := o.nodes(t)
		return len(nodes) == 2, fmt.Sprint(nodes)
	})
}

// talos calls Talos on the control plane until that answers.
func (o *operated) talos(t *testing.T, what string, call func(ctx context.Context, c *client.Client) error) {
	t.Helper()
	c, err := client.New(t.Context(), client.WithConfig(o.talosconfig))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	feed.Until(t, what, func() (bool, string) {
		err := call(t.Context(), c)
		return err == nil, fmt.Sprint(err)
	})
}

// kubeconfig returns the kubeconfig that Talos makes.
func (o *operated) kubeconfig(t *testing.T) (content []byte) {
	t.Helper()
	o.talos(t, "Talos makes a kubeconfig", func(ctx context.Context, c *client.Client) (err error) {
		content, err = c.Kubeconfig(ctx)
		return err
	})
	return content
}

// listNodes returns the Nodes of the cluster, none while its API does not answer.
func (o *operated) listNodes(t *testing.T) []corev1.Node {
	t.Helper()
	rest, err := clientcmd.RESTConfigFromKubeConfig(o.kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	workload, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := workload.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// nodeNames returns the names of all Nodes of the cluster in alphabetical order.
func (o *operated) nodeNames(t *testing.T) (names []string) {
	t.Helper()
	for _, n := range o.listNodes(t) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

// nodes returns the UIDs of the Ready Nodes of the cluster by name.
func (o *operated) nodes(t *testing.T) map[string]string {
	t.Helper()
	nodes := map[string]string{}
	for _, n := range o.listNodes(t) {
		for _, c := range n.Status.Conditions {
			if c.Type == "Ready" && c.Status == "True" {
				nodes[n.Name] = string(n.UID)
			}
		}
	}
	return nodes
}

// identity returns the UIDs of Machines, virtual machines, instances and Nodes, the Talos versions, and the members of etcd.
func (o *operated) identity(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range []schema.GroupVersionResource{engine.Machines, engine.VirtualMachines, engine.Instances} {
		for name, uid := range uidsIn(o.Engine, resource, o.namespace) {
			all[resource.Resource+" "+name] = uid
		}
	}
	for name, uid := range o.nodes(t) {
		all["Node "+name] = uid
	}
	o.talos(t, "etcd lists its members", func(ctx context.Context, c *client.Client) error {
		list, err := c.EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}
		for _, m := range list.Messages[0].Members {
			all["member "+m.Hostname] = fmt.Sprint(m.Id)
		}
		version, err := c.Version(ctx)
		if err == nil {
			all["Talos"] = version.Messages[0].Version.Tag
		}
		return err
	})
	return all
}

// leave has the objects be as the talos-operator leaves them: their labels, annotations, finalizers and Secret. The virtual machines keep the
// mark of create-vm, whose own tests adopt those of other operators.
func (o *operated) leave(t *testing.T) {
	t.Helper()
	o.Apply(o.namespace, operatedCluster)
	cluster := o.Get(engine.KubernetesClusters, o.namespace, "shop")
	owner := fmt.Sprintf(`[{"apiVersion": "vitistack.io/v1alpha1", "kind": "KubernetesCluster", "name": "shop", "uid": %q, "controller": true, "blockOwnerDeletion": true}]`, cluster.GetUID())
	for name, role := range map[string]string{"shop-x1-ctp0": "control-plane", "shop-x1-wrk0": "worker"} {
		installed := "null" // of a worker that the operator has not annotated yet, Talos itself shows that it has its configuration
		if role == "control-plane" {
			installed = `"true"`
		}
		o.patch(t, engine.Machines, name, `{"metadata": {"finalizers": ["machine.vitistack.io/finalizer"], "labels": {"vitistack.io/clusterid": "shop-x1", "vitistack.io/node-role": "`+role+`"},
			"ownerReferences": `+owner+`, "annotations": {"vitistack.io/nodepool": "web", "vitistack.io/os-installed": `+installed+`}}}`)
	}
	bundle, err := yaml.Marshal(o.bundle)
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]any{}
	for key, value := range map[string]string{
		"secrets.bundle": string(bundle), "kube.config": string(o.kubeconfig(t)), "talos_version": operatedTalos, "kubernetes_version": operatedKubernetes,
		"bootstrapped": "true", "controlplane_applied": "true", "worker_applied": "true", "cluster_access": "true",
	} {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	o.applyJSON(t, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "data": data,
		"metadata": map[string]any{"name": "shop-x1", "labels": map[string]any{"vitistack.io/clusterid": "shop-x1"}},
	})
}

func (o *operated) patch(t *testing.T, resource schema.GroupVersionResource, name, patch string) {
	t.Helper()
	if _, err := o.Client.Resource(resource).Namespace(o.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (o *operated) applyJSON(t *testing.T, object map[string]any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	o.Apply(o.namespace, string(text))
}

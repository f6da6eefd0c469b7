package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	movedMachine  = "apiVersion: vitistack.io/v1alpha1\nkind: Machine\nmetadata: {name: alone}\nspec: {template: small, providerRef: {name: kubevirt}, networkNamespaceName: network}\n"
	movedTemplate = `apiVersion: vitistack.io/v1alpha1
kind: ClusterTemplate
metadata: {name: moved}
spec: {cluster: {topology: {version: "1.33", workers: [{name: web, replicas: 1, template: small, providerRef: {name: kubevirt}}]}}}
`
	movedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec: {data: {}, networkNamespaceName: network, templateRef: {name: moved}, topology: {controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}}}
`
)

// tryViti runs kubectl viti, and returns what it wrote and whether it succeeds.
func tryViti(t *testing.T, e *engine.Engine, args ...string) (string, bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), filepath.Join(engine.Bin(t), "kubectl-viti"), append([]string{"--kubeconfig", e.Kubeconfig()}, args...)...)
	out, err := command.CombinedOutput()
	return string(out), err == nil
}

// useKubeVirtOf has the MachineProvider kubevirt of an engine be the KubeVirt of another engine.
func useKubeVirtOf(t *testing.T, e, other *engine.Engine) {
	t.Helper()
	file, err := clientcmd.LoadFromFile(other.Kubeconfig())
	if err == nil {
		err = clientcmdapi.FlattenConfig(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.Write(*file)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "kubevirt-of-the-first"}, "stringData": map[string]string{"kubeconfig": string(kubeconfig)},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Apply("vitistack-system", string(secret))
	patch := []byte(`{"spec": {"credentialsRef": {"namespace": "vitistack-system", "name": "kubevirt-of-the-first"}}}`)
	if _, err := e.Client.Resource(engine.MachineProviders).Patch(t.Context(), "kubevirt", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// uidsOf returns the UIDs of all objects of a resource in the namespace default by name.
func uidsOf(e *engine.Engine, resource schema.GroupVersionResource) map[string]string {
	return uidsIn(e, resource, "default")
}

// addressesOf returns the addresses of all Machines by name.
func addressesOf(e *engine.Engine) map[string]string {
	addresses := map[string]string{}
	for _, u := range e.List(engine.Machines, "default", "") {
		all, _, _ := unstructured.NestedStringSlice(u.Object, "status", "ipAddresses")
		addresses[u.GetName()] = strings.Join(all, ",")
	}
	return addresses
}

// TestMove moves objects to another management cluster that uses the same backends, and adopts what the talos-operator has made, one namespace in
// each subtest.
func TestMove(t *testing.T) {
	t.Parallel()
	resync := []string{"--config", "RESYNC_PERIOD=3s"} // no event source reports changes at the KubeVirt of another cluster
	p := pair{engine.Start(t, append(resync, "--audit")...), engine.Start(t, resync...)}
	p.from.Apply("default", p.from.StaticNetwork("network", 10, 250))
	p.from.Apply("default", movedMachine)
	p.from.UntilPhase(engine.Machines, "default", "alone", "Running")
	if out, ok := p.move(t, "default", "--dry-run"); ok || !strings.Contains(out, "spec.credentialsRef") {
		t.Errorf("a move to another KubeVirt needs a decision: %s", out)
	}
	useKubeVirtOf(t, p.to, p.from)
	p.shareBackends(t)
	p.shareIPAM(t)
	for name, run := range map[string]func(*testing.T){
		"Cluster": p.moveCluster, "ProxmoxAndKea": p.moveProxmox, "Networks": p.moveNetworks, "IPAM": p.moveIPAM, "Interrupted": p.moveInterrupted,
		"TalosOperator": p.adoptCluster,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t)
		})
	}
}

// pair is a management cluster, and another one to which its objects move.
type pair struct{ from, to *engine.Engine }

// move runs kubectl viti move for a namespace.
func (p pair) move(t *testing.T, namespace string, more ...string) (string, bool) {
	t.Helper()
	return tryViti(t, p.from, append([]string{"move", "--to-kubeconfig", p.to.Kubeconfig(), "-n", namespace}, more...)...)
}

// shareBackends has the functions of the second engine use Proxmox VE, Kea, NAM and NetBox of the first one.
func (p pair) shareBackends(t *testing.T) {
	t.Helper()
	merge := func(resource schema.GroupVersionResource, namespace, name string, fields ...string) {
		t.Helper()
		value, _, _ := unstructured.NestedFieldNoCopy(p.from.Get(resource, namespace, name).Object, fields...)
		change := map[string]any{}
		if err := unstructured.SetNestedField(change, value, fields...); err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(change)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.to.Client.Resource(resource).Namespace(namespace).Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"proxmox", "kea-reserve", "provision-network"} {
		merge(engine.Secrets, "vitistack-system", name, "data")
	}
	merge(engine.MachineProviders, "", "proxmox", "spec", "endpoint")
	p.to.RestartFree()
}

// moveCluster moves a network, a Machine and a cluster with a ClusterTemplate: nodes keep running with their
// addresses, changes of the template reach the cluster, the first management cluster has nothing left, and the second one can
// delete everything.
func (p pair) moveCluster(t *testing.T) {
	from, to := p.from, p.to
	from.Apply("", movedTemplate)
	from.Apply("default", movedCluster)
	from.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	vms, instances, addresses := uidsOf(from, engine.VirtualMachines), uidsOf(from, engine.Instances), addressesOf(from)
	if out, ok := p.move(t, "default", "--dry-run"); ok || !strings.Contains(out, "ClusterTemplate") || !strings.Contains(out, "create it there first") {
		t.Errorf("a move to a cluster without the ClusterTemplate needs a decision: %s", out)
	}
	to.Apply("", movedTemplate)
	if out, ok := p.move(t, "default", "--dry-run"); !ok || !strings.Contains(out, "shop-talos-secrets") || len(to.List(engine.Machines, "default", "")) > 0 {
		t.Errorf("the dry run shows what moves: %s", out)
	}
	if out, ok := p.move(t, "default"); !ok {
		t.Fatalf("kubectl viti move: %s", out)
	}
	requireMoved(t, from, to, vms, instances, addresses)
	if out, ok := p.move(t, "default"); !ok {
		t.Errorf("a second call has nothing to do: %s", out)
	}
	requireMoved(t, from, to, vms, instances, addresses)
	change := []byte(`{"spec": {"cluster": {"topology": {"controlplane": {"drainTimeout": "7m"}, "workers": [{"name": "web", "replicas": 1, "template": "small", "drainTimeout": "8m", "providerRef": {"name": "kubevirt"}}]}}}}`)
	if _, err := to.Client.Resource(engine.ClusterTemplates).Patch(t.Context(), "moved", types.MergePatchType, change, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "a change of the template reaches the moved cluster", func() (bool, string) {
		topology, _, _ := unstructured.NestedMap(to.Get(engine.KubernetesClusters, "default", "shop").Object, "spec", "topology")
		text := fmt.Sprint(topology)
		return strings.Contains(text, "drainTimeout:7m") && strings.Contains(text, "drainTimeout:8m"), text
	})
	to.Delete(engine.KubernetesClusters, "default", "shop")
	to.Delete(engine.Machines, "default", "alone")
	feed.Until(t, "the second management cluster deletes everything", func() (bool, string) {
		left := uidsOf(from, engine.VirtualMachines)
		return len(left) == 0 && len(to.List(engine.Machines, "default", "")) == 0, fmt.Sprint(left)
	})
}

// requireMoved fails unless everything runs at the second engine, unchanged, and the first one has nothing left but virtual machines.
func requireMoved(t *testing.T, from, to *engine.Engine, vms, instances, addresses map[string]string) {
	t.Helper()
	to.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	for _, name := range []string{"alone", "shop"} {
		if ready := readyOf(t, to, name); ready.Status != metav1.ConditionTrue {
			t.Errorf("%s is not Ready: %s", name, ready.String())
		}
	}
	if now := uidsOf(from, engine.VirtualMachines); !maps.Equal(now, vms) {
		t.Errorf("the virtual machines are %v, were %v", now, vms)
	}
	if now := uidsOf(from, engine.Instances); !maps.Equal(now, instances) {
		t.Errorf("the instances are %v, were %v", now, instances)
	}
	if now := addressesOf(to); !maps.Equal(now, addresses) {
		t.Errorf("the addresses are %v, were %v", now, addresses)
	}
	machines := uidsOf(to, engine.Machines)
	for _, vm := range from.List(engine.VirtualMachines, "default", "") {
		if vm.GetAnnotations()[v1alpha1.AnnotationUID] != machines[vm.GetName()] || len(vm.GetOwnerReferences()) > 0 {
			t.Errorf("VirtualMachine %s has the mark %s and owners %v, want %s and none", vm.GetName(), vm.GetAnnotations()[v1alpha1.AnnotationUID], vm.GetOwnerReferences(), machines[vm.GetName()])
		}
	}
	for _, resource := range []schema.GroupVersionResource{engine.NetworkNamespaces, engine.NetworkConfigurations, engine.IPAllocations, engine.Machines, engine.KubernetesClusters} {
		feed.Until(t, "the first one has no "+resource.Resource, func() (bool, string) {
			left := from.List(resource, "default", "")
			return len(left) == 0, fmt.Sprint(len(left))
		})
	}
}

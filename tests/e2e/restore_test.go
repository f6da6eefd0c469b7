package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// layers are the functions that a restore stops.
var layers = []string{"provision-network", "allocate-ip", "kea-reserve", "create-vm", "bootstrap-talos", "etcd-backup", "resync"}

// backedUp are the resources of docs/backup.md, in the order of a restore. Objects of the stack have a status.
var backedUp = []struct {
	resource schema.GroupVersionResource
	selector string
	isObject bool
}{
	{engine.ConfigMaps, "", false}, {engine.Secrets, "", false}, {engine.Leases, "vitistack.io/managed-by=allocate-ip", false},
	{engine.NetworkNamespaces, "", true}, {engine.KubernetesClusters, "", true}, {engine.Machines, "", true},
	{engine.NetworkConfigurations, "", true}, {engine.IPAllocations, "", true},
}

// restored returns an object of a backup as docs/backup.md has it restored.
func restored(u *unstructured.Unstructured, isObject bool) *unstructured.Unstructured {
	u = u.DeepCopy()
	if isObject {
		annotations := u.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationFormerUIDs] = strings.Join(v1alpha1.UIDs(u), ",")
		u.SetAnnotations(annotations)
	}
	u.SetUID("")
	u.SetResourceVersion("")
	u.SetOwnerReferences(nil)
	return u
}

// TestRestoreIntoAnotherCluster backs up a cluster with a patch, and restores it into another management cluster that uses the
// same KubeVirt, as docs/backup.md says. The cluster becomes Ready with the same virtual machines and addresses, and its
// deletion leaves nothing behind.
func TestRestoreIntoAnotherCluster(t *testing.T) {
	t.Parallel()
	resync := []string{"--config", "RESYNC_PERIOD=3s"} // no event source reports changes at the KubeVirt of another cluster
	from, to := engine.Start(t), engine.Start(t, resync...)
	useKubeVirtOf(t, to, from)
	from.Apply("default", from.StaticNetwork("network", 10, 250))
	from.Apply("default", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: sysctls}\ndata: {sysctl.yaml: \"machine: {sysctls: {vm.max_map_count: '262144'}}\"}\n")
	from.Apply("default", `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec: {data: {}, networkNamespaceName: network, controlPlaneEndpoint: {mode: vip}, talos: {patches: {all: [sysctls]}},
  topology: {version: "1.33", controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}, workers: [{name: web, replicas: 1, template: small, providerRef: {name: kubevirt}}]}}
`)
	from.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	vms, instances, addresses := uidsOf(from, engine.VirtualMachines), uidsOf(from, engine.Instances), addressesOf(from)

	var resume []func()
	for _, function := range layers {
		from.KeepDown(function)
		resume = append(resume, to.KeepDown(function))
	}
	for _, b := range backedUp {
		for _, u := range from.List(b.resource, "default", b.selector) {
			if u.GetName() == "kube-root-ca.crt" || strings.HasSuffix(u.GetName(), "-cloudinit") {
				continue // the Secrets of virtual machines are beside those
			}
			objects := to.Client.Resource(b.resource).Namespace("default")
			made, err := objects.Create(t.Context(), restored(&u, b.isObject), metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("restore %s %s: %v", b.resource.Resource, u.GetName(), err)
			}
			if !b.isObject {
				continue
			}
			made.Object["status"] = u.Object["status"]
			if _, err := objects.UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("restore the status of %s %s: %v", b.resource.Resource, u.GetName(), err)
			}
		}
	}
	if out, ok := tryViti(t, to, "adopt", "-A", "--dry-run"); !ok || strings.Contains(out, "decide") {
		t.Errorf("kubectl viti adopt --dry-run: %s", out)
	}
	if out, ok := tryViti(t, to, "adopt", "-A"); !ok {
		t.Fatalf("kubectl viti adopt: %s", out)
	}
	for _, start := range resume {
		start()
	}

	feed.Until(t, "every object is adopted and Ready", func() (bool, string) {
		for _, b := range backedUp {
			for _, u := range to.List(b.resource, "default", b.selector) {
				if text, ready := readiness(&u); b.isObject && !ready {
					return false, b.resource.Resource + " " + u.GetName() + ": " + text
				}
			}
		}
		return true, ""
	})
	if now := uidsOf(from, engine.VirtualMachines); !maps.Equal(now, vms) {
		t.Errorf("the virtual machines are %v, were %v", now, vms)
	}
	if now := uidsOf(from, engine.Instances); !maps.Equal(now, instances) {
		t.Errorf("the instances are %v, were %v", now, instances)
	}
	if now := addressesOf(to); !maps.Equal(now, addresses) {
		t.Errorf("the addresses are %v, were %v", now, addresses)
	}
	to.Delete(engine.KubernetesClusters, "default", "shop")
	feed.Until(t, "the deletion leaves nothing behind", func() (bool, string) {
		left := len(uidsOf(from, engine.VirtualMachines))
		for _, resource := range []schema.GroupVersionResource{engine.KubernetesClusters, engine.Machines, engine.NetworkConfigurations, engine.IPAllocations} {
			left += len(to.List(resource, "default", ""))
		}
		return left == 0, fmt.Sprint(left, " objects are left")
	})
}

// readiness returns the condition Ready of an object as text, and whether it is True for an adopted object.
func readiness(u *unstructured.Unstructured) (string, bool) {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	_, isRequested := u.GetAnnotations()[v1alpha1.AnnotationReconcile]
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == v1alpha1.ConditionReady {
			return fmt.Sprint(c, isRequested), c["status"] == "True" && !isRequested
		}
	}
	return fmt.Sprint(conditions), false
}

package command_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// operated are the objects that the separate operators leave: a Machine with a static address, and a cluster with its keys.
const operated = `{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web}, spec: {template: small}, status: {phase: Running, provider: proxmox, providerID: "proxmox://pve1/2042"}}
---
{apiVersion: vitistack.io/v1alpha1, kind: NetworkConfiguration, metadata: {name: web}, spec: {networkNamespaceName: net, networkInterfaces: [{name: eth0, macAddress: "52:54:00:00:00:01"}]},
  status: {phase: Ready, networkInterfaces: [{name: eth0, macAddress: "52:54:00:00:00:01", ipAllocated: true, allocationMethod: static, ipv4Addresses: [10.0.0.5]}]}}
---
{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop}, spec: {data: {clusterId: shop-x1}, topology: {version: "1.33", controlplane: {replicas: 1, version: "1.33"}}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: shop-x1, labels: {vitistack.io/clusterid: shop-x1}}, data: {secrets.bundle: Y2x1c3Rlcjoge30=}}`

// TestAdopt has objects of the separate operators adopt what exists.
func TestAdopt(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	if out := e.must("adopt"); out != "There is nothing to adopt in namespace "+e.namespace+".\n" {
		t.Errorf("an empty namespace: %s", out)
	}
	e.create(operated)
	dry := e.must("adopt", "--dry-run")
	for _, want := range []string{"proxmox://pve1/2042", "run the command with --unmarked", "10.0.0.5", "Secret shop-x1"} {
		if !strings.Contains(dry, want) {
			t.Errorf("the dry run lacks %q:\n%s", want, dry)
		}
	}
	get := func(kind, name string) *unstructured.Unstructured {
		t.Helper()
		k := cluster.Kind{Name: "Secret", Resource: "secrets", Version: "v1"}
		if kind != k.Name {
			k = cluster.MustFindKind(kind)
		}
		u, err := e.In(k, e.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	if m := get("Machine", "web"); len(m.GetAnnotations()) > 0 {
		t.Errorf("the dry run has changed the Machine: %v", m.GetAnnotations())
	}
	for range 2 {
		e.must("adopt", "--unmarked")
	}
	if got := get("Machine", "web").GetAnnotations()["vitistack.io/former-uids"]; got != "unmarked" {
		t.Errorf("the Machine has the former UIDs %q", got)
	}
	chosen := []byte(`{"spec": {"providerRef": {"name": "pve"}, "networks": [{"name": "eth0", "networkName": "web", "macAddress": "52:54:00:00:00:01"}]}}`)
	if _, err := e.In(cluster.MustFindKind("Machine"), e.namespace).Patch(t.Context(), "web", types.MergePatchType, chosen, metav1.PatchOptions{}); err != nil {
		t.Errorf("the MachineProvider and the networks of the adopted Machine cannot be chosen: %v", err)
	}
	interfaces, _, _ := unstructured.NestedSlice(get("NetworkConfiguration", "web").Object, "spec", "networkInterfaces")
	addresses, _, _ := unstructured.NestedStringSlice(interfaces[0].(map[string]any), "ipv4Addresses")
	if len(addresses) != 1 || addresses[0] != "10.0.0.5" {
		t.Errorf("the interface requests %v", addresses)
	}
	keys := get("Secret", "shop-talos-secrets")
	content, _, _ := unstructured.NestedString(keys.Object, "data", "secrets.yaml")
	if owner := metav1.GetControllerOf(keys); content != "Y2x1c3Rlcjoge30=" || owner == nil || owner.UID != get("KubernetesCluster", "shop").GetUID() {
		t.Errorf("the keys are %s of %v", content, owner)
	}
	if out := e.must("adopt", "--dry-run", "--unmarked"); !strings.Contains(out, "adopted already") {
		t.Errorf("a second call shows what is done:\n%s", out)
	}
}

// orphaned are the objects of a cluster, with the labels that functions give them, as a restore creates them.
const orphaned = `{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: shop, annotations: {vitistack.io/former-uids: former}}, spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1}}}}
---
{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: shop-cp-0, annotations: {vitistack.io/former-uids: a}, labels: {cluster.vitistack.io/cluster-name: shop, vitistack.io/managed-by: bootstrap-talos}}, spec: {template: small}}
---
{apiVersion: vitistack.io/v1alpha1, kind: NetworkConfiguration, metadata: {name: shop-cp-0, annotations: {vitistack.io/former-uids: b}, labels: {vitistack.io/machine: shop-cp-0, vitistack.io/managed-by: create-vm}},
  spec: {networkInterfaces: [{name: eth0, macAddress: "52:54:00:00:00:01"}]}}
---
{apiVersion: vitistack.io/v1alpha2, kind: IPAllocation, metadata: {name: shop-cp-0-eth0, labels: {vitistack.io/network-configuration: shop-cp-0}}, spec: {networkNamespaceName: net, networkConfigurationName: shop-cp-0}}
---
{apiVersion: vitistack.io/v1alpha2, kind: IPAllocation, metadata: {name: shop-vip, labels: {cluster.vitistack.io/cluster-name: shop, vitistack.io/managed-by: bootstrap-talos}}, spec: {networkNamespaceName: net}}
---
{apiVersion: vitistack.io/v1alpha2, kind: IPAllocation, metadata: {name: reserved}, spec: {networkNamespaceName: net}}
---
{apiVersion: v1, kind: Secret, metadata: {name: shop-talos-secrets, labels: {cluster.vitistack.io/cluster-name: shop, vitistack.io/managed-by: bootstrap-talos}}}
---
{apiVersion: v1, kind: Secret, metadata: {name: shop-cp-0-machine-config, labels: {cluster.vitistack.io/cluster-name: shop, vitistack.io/managed-by: bootstrap-talos}}}
---
{apiVersion: vitistack.io/v1alpha1, kind: KubernetesCluster, metadata: {name: other}, spec: {data: {}, topology: {version: "1.33", controlplane: {replicas: 1}}}}
---
{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: other-cp-0, labels: {cluster.vitistack.io/cluster-name: other, vitistack.io/managed-by: bootstrap-talos}}, spec: {template: small}}`

// TestAdoptRestoresOwners has objects without an owner get that of their labels, if it was restored.
func TestAdoptRestoresOwners(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.create(orphaned)
	dry := e.must("adopt", "--dry-run")
	for _, want := range []string{"KubernetesCluster shop", "it becomes the owner again", "Machine other-cp-0 has no owner: if it belongs to this KubernetesCluster, write the UID"} {
		if !strings.Contains(dry, want) {
			t.Errorf("the dry run lacks %q:\n%s", want, dry)
		}
	}
	for range 2 {
		e.must("adopt")
	}
	secret := cluster.Kind{Name: "Secret", Resource: "secrets", Version: "v1"}
	for _, tc := range []struct {
		kind        cluster.Kind
		name, owner string
	}{
		{cluster.MustFindKind("Machine"), "shop-cp-0", "KubernetesCluster/shop"},
		{cluster.MustFindKind("NetworkConfiguration"), "shop-cp-0", "Machine/shop-cp-0"},
		{cluster.MustFindKind("IPAllocation"), "shop-cp-0-eth0", "NetworkConfiguration/shop-cp-0"},
		{cluster.MustFindKind("IPAllocation"), "shop-vip", "KubernetesCluster/shop"},
		{cluster.MustFindKind("IPAllocation"), "reserved", ""},
		{secret, "shop-talos-secrets", "KubernetesCluster/shop"},
		{secret, "shop-cp-0-machine-config", "Machine/shop-cp-0"},
		{cluster.MustFindKind("Machine"), "other-cp-0", ""},
	} {
		u, err := e.In(tc.kind, e.namespace).Get(t.Context(), tc.name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, o := range u.GetOwnerReferences() {
			owner, err := e.In(cluster.MustFindKind(o.Kind), e.namespace).Get(t.Context(), o.Name, metav1.GetOptions{})
			if err != nil || owner.GetUID() != o.UID || o.Controller == nil || !*o.Controller {
				t.Errorf("%s %s has the owner %v, %v", tc.kind.Name, tc.name, o, err)
			}
			got += o.Kind + "/" + o.Name
		}
		if got != tc.owner {
			t.Errorf("%s %s has the owner %q, want %q", tc.kind.Name, tc.name, got, tc.owner)
		}
	}
}

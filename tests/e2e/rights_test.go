package e2e

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestChangesNeedRights makes every kind of change that a user can make, and checks in the audit log
// that the functions have used the rights for it.
func TestChangesNeedRights(t *testing.T) {
	t.Parallel()
	u := &env{engine.Start(t, "--audit", "--ping-every", "3s"), t}
	network := strings.ReplaceAll(u.StaticNetwork("network", 10, 250), "ipv4RangeEnd", "reuseDelaySeconds: 1, ttlSeconds: 60, ipv4RangeEnd")
	u.Apply("default", network)
	u.UntilPhase(engine.NetworkNamespaces, "default", "network", "Ready")
	cluster := strings.Replace(u.Example("simple-kubernetescluster.yaml"), "spec:\n", "spec:\n  networkNamespaceName: network\n  controlPlaneEndpoint: {mode: vip}\n", 1)
	u.Apply("default", strings.Replace(cluster, "controlplane:\n", "controlplane:\n      providerRef: {name: kubevirt}\n", 1))
	for _, change := range []struct {
		name string
		do   func()
	}{
		{"Addresses", u.addresses}, {"Machines", u.machines}, {"Proxmox", u.proxmox}, {"Cluster", u.cluster}, {"Asked", u.requestReconciles}, {"End", u.end},
	} {
		t.Run(change.name, func(t *testing.T) {
			u.t = t
			change.do()
		})
	}
}

// uses waits until a function has used rights, in the form of TestRolesAreWhatIsUsed.
func (u *env) uses(function string, rights ...string) {
	u.t.Helper()
	for _, right := range rights {
		feed.Until(u.t, function+" uses "+right, func() (bool, string) {
			for _, r := range u.Requests(time.Time{}) {
				used := engine.Usage{Function: r.Function(), Verb: r.Verb, Group: r.ObjectRef.APIGroup, Resource: r.ObjectRef.Resource, Subresource: r.ObjectRef.Subresource}
				if used.String() == function+" "+right && r.ResponseStatus.Code < 400 {
					return true, ""
				}
			}
			return false, "the audit log has no such request"
		})
	}
}

// addresses requests an address twice, releases it, requests it again, and deletes the request.
func (u *env) addresses() {
	address := strings.TrimSuffix(u.Network().Addr().String(), "0") + "77"
	for _, asked := range []struct{ name, phase string }{{"first", "Allocated"}, {"second", "Error"}} {
		u.Apply("default", fmt.Sprintf("apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: %s}\nspec: {networkNamespaceName: network, requestedAddress: %s}\n", asked.name, address))
		u.UntilPhase(engine.IPAllocations, "default", asked.name, asked.phase)
	}
	u.uses("allocate-ip", "leases.coordination.k8s.io get")
	u.Delete(engine.IPAllocations, "default", "first")
	u.uses("allocate-ip", "leases.coordination.k8s.io update")
	u.Apply("default", strings.ReplaceAll(configurationOf("two"), "    - {", "    - {name: eth1, macAddress: \"02:00:00:00:00:02\"}\n    - {"))
	u.UntilPhase(engine.NetworkConfigurations, "default", "two", "Ready")
	u.uses("allocate-ip", "ipallocations.vitistack.io create")
	u.patch(engine.NetworkConfigurations, "default", "two", `{"spec":{"networkInterfaces":[{"name":"eth0","macAddress":"02:00:00:00:00:01"}]}}`)
	u.uses("allocate-ip", "ipallocations.vitistack.io delete")
}

var attachments = schema.GroupVersionResource{Group: "k8s.cni.cncf.io", Version: "v1", Resource: "network-attachment-definitions"}

// machines resizes disks, sets cloud-init data in a Secret, and restarts a machine on an attachment
// whose check of MAC addresses was switched off.
func (u *env) machines() {
	u.Apply("default", `apiVersion: v1
kind: Secret
metadata: {name: first-boot, labels: {vitistack.io/cloud-init: "true"}}
stringData: {userdata: "#cloud-config\n"}
---
apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: changing}
spec: {template: small, providerRef: {name: kubevirt}, networkNamespaceName: network, cloudInit: {secretRef: {name: first-boot}}}
`)
	u.UntilPhase(engine.Machines, "default", "changing", "Running")
	u.uses("create-vm", "secrets create")
	for _, attachment := range u.List(attachments, "default", v1alpha1.LabelManagedBy+"=kubevirt-operator") {
		config, _, err := unstructured.NestedString(attachment.Object, "spec", "config")
		if err != nil || !strings.Contains(config, `"macspoofchk":true`) {
			u.t.Fatalf("NetworkAttachmentDefinition %s checks no MAC addresses: %s, %v", attachment.GetName(), config, err)
		}
		config = strings.ReplaceAll(config, `"macspoofchk":true`, `"macspoofchk":false`)
		u.patch(attachments, "default", attachment.GetName(), fmt.Sprintf(`{"spec":{"config":%q}}`, config))
	}
	u.patch(engine.Machines, "default", "changing", `{"spec":{"disks":[{"name":"root","size":"40Gi"}],"restartToken":"once"}}`)
	u.uses("create-vm", "persistentvolumeclaims patch", "virtualmachineinstances.kubevirt.io delete",
		"network-attachment-definitions.k8s.cni.cncf.io patch")
	u.patch(engine.NetworkConfigurations, "default", "changing", `{"spec":{"networkInterfaces":[]}}`)
	u.uses("allocate-ip", "machines.vitistack.io get")
	u.Delete(engine.NetworkConfigurations, "default", "changing")
	u.uses("create-vm", "networkconfigurations/status.vitistack.io patch")
	u.Delete(engine.Machines, "default", "changing")
	u.uses("create-vm", "secrets delete", "networkconfigurations.vitistack.io patch", "networkconfigurations.vitistack.io list")
}

// proxmox claims a VMID, and releases it.
func (u *env) proxmox() {
	u.Apply("default", u.Example("basic-vm-on-proxmox.yaml"))
	u.uses("create-vm", "leases.coordination.k8s.io create")
	u.UntilPhase(engine.Machines, "default", "basic-vm-on-proxmox", "Running")
	u.Delete(engine.Machines, "default", "basic-vm-on-proxmox")
	u.uses("create-vm", "leases.coordination.k8s.io list", "leases.coordination.k8s.io delete")
}

// cluster has a virtual address, a backup, and credentials that a user damages.
func (u *env) cluster() {
	u.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	u.uses("bootstrap-talos", "ipallocations.vitistack.io create", "machineproviders.vitistack.io get", "networknamespaces.vitistack.io get")
	u.Apply("default", "apiVersion: vitistack.io/v1alpha1\nkind: EtcdBackup\nmetadata: {name: now}\nspec: {clusterName: simple-cluster, storageLocation: {type: local}}\n")
	u.UntilPhase(engine.EtcdBackups, "default", "now", "Completed")
	u.uses("etcd-backup", "etcdbackups.vitistack.io get", "etcdbackups/status.vitistack.io patch", "events create", "kubernetesclusters.vitistack.io get", "secrets get")
	u.patch(engine.Secrets, "default", "simple-cluster-kubeconfig", `{"data":{"kubeconfig":"`+base64.StdEncoding.EncodeToString([]byte("spoilt"))+`"}}`)
	u.ask(engine.KubernetesClusters, "default", "simple-cluster")
	u.uses("bootstrap-talos", "secrets patch")
}

// ask requests a reconcile of an object.
func (u *env) ask(resource schema.GroupVersionResource, namespace, name string) {
	u.t.Helper()
	u.patch(resource, namespace, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.AnnotationReconcile))
}

// requestReconciles requests a reconcile of one object of each kind except NetworkNamespace, whose
// annotation provision-network removes at the event of its change.
func (u *env) requestReconciles() {
	for _, resource := range []schema.GroupVersionResource{
		engine.NetworkConfigurations, engine.IPAllocations, engine.Machines, engine.MachineProviders,
		engine.KubernetesClusters, engine.EtcdBackups,
	} {
		all := u.List(resource, "", "")
		i := slices.IndexFunc(all, func(o unstructured.Unstructured) bool { return o.GetDeletionTimestamp() == nil })
		if i < 0 {
			u.t.Fatalf("there are no %s", resource.Resource)
		}
		object := all[i]
		u.ask(resource, object.GetNamespace(), object.GetName())
		u.uses("resync", resource.Resource+".vitistack.io patch")
	}
}

// end deletes every object, the network last.
func (u *env) end() {
	u.Delete(engine.NetworkNamespaces, "default", "network")
	u.uses("provision-network", "kubernetesclusters.vitistack.io list")
	u.Delete(engine.KubernetesClusters, "default", "simple-cluster")
	u.uses("bootstrap-talos", "ipallocations.vitistack.io delete")
	// Half of the TTL of the address passes in the meantime.
	u.uses("allocate-ip", "leases.coordination.k8s.io patch")
}

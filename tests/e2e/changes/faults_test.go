package changes

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
)

// fault is a value that no schema can refuse, because only a function or a backend knows that it is wrong.
type fault struct {
	// fields are changed in the object of the stand with the name on.
	on     string
	fields map[string]string
	// manifest and spec are those of an object that is created instead, with a name of its own.
	manifest, spec string
	// reason is that of a condition of the object.
	reason string
	// repairs is whether a worker is lost meanwhile, which has to be replaced.
	repairs bool
}

var faults = map[string]fault{
	"cluster-template":     {on: "one control plane", fields: map[string]string{"topology.workers[].template": "huge"}, reason: "TemplateNotFound", repairs: true},
	"cluster-version":      {on: "one control plane", fields: map[string]string{"topology.version": "'1.99'"}, reason: "KubernetesVersionUnknown"},
	"cluster-talos":        {on: "one control plane", fields: map[string]string{"talos.version": "1.99.0"}, reason: "KubernetesVersionNotSupported"},
	"cluster-config":       {on: "one control plane", fields: map[string]string{"talos.patches.all": "[none]"}, reason: "PatchNotFound"},
	"cluster-label":        {on: "one control plane", fields: map[string]string{"topology.workers[].labels": "{a b: c}"}, reason: "InvalidTopology"},
	"cluster-provider":     {on: "one control plane", fields: map[string]string{"topology.workers[].replicas": "3", "topology.workers[].providerRef.name": "none"}, reason: "ProviderNotFound"},
	"machine-template":     {manifest: machine, spec: "template: huge", reason: "TemplateNotFound"},
	"machine-host":         {manifest: machine, spec: "template: small, nodeName: none, providerRef: {name: proxmox}", reason: "NodeNotFound"},
	"machine-provider":     {manifest: machine, spec: "template: small, providerRef: {name: none}", reason: "MachineProviderNotFound"},
	"machine-network":      {manifest: machine, spec: "template: small, networkNamespaceName: none", reason: "NetworkNamespaceNotFound"},
	"machine-nic":          {manifest: machine, spec: "template: small, networks: [{name: eth0, networkName: none}]", reason: "NetworkConfigurationNotFound"},
	"machine-storage":      {manifest: machine, spec: "template: small, disks: [{name: root, storageClass: none}]", reason: "StorageClassNotFound"},
	"machine-memory":       {manifest: machine, spec: "template: small, providerRef: {name: proxmox}, resources: {memory: {size: 900Ti}}", reason: "InsufficientResources"},
	"machine-secret":       {manifest: machine, spec: "template: small, cloudInit: {secretRef: {name: none}}", reason: "CloudInitSecretNotFound"},
	"machine-image":        {manifest: machine, spec: "template: small, os: {imageID: not-a-url}", reason: "ImageNotSupported"},
	"configuration-mac":    {manifest: configuration, spec: "networkNamespaceName: network, networkInterfaces: [{name: eth0, macAddress: '02:00:00:00:30:01', ipv4Addresses: [10.99.0.9]}]", reason: "AddressOutsidePool"},
	"configuration-vlan":   {manifest: configuration, spec: "networkNamespaceName: network, vlan: 77, networkInterfaces: [{name: eth0, macAddress: '02:00:00:00:30:02'}]", reason: "VLANMismatch"},
	"configuration-family": {manifest: configuration, spec: "networkNamespaceName: network, networkInterfaces: [{name: eth0, macAddress: '02:00:00:00:30:03', ipv6Addresses: ['2001:db8::9']}]", reason: "IPv6NotServed"},
	"configuration-kea":    {manifest: configuration, spec: "networkNamespaceName: network, provider: kea, networkInterfaces: [{name: eth0, macAddress: '02:00:00:00:30:04'}]", reason: "ProviderMismatch"},
	"network-role":         {manifest: network, spec: "datacenterIdentifier: no-west-az1, networkProvisioning: {provider: netbox, netbox: {role: none}}", reason: "NoParentPrefix"},
	"network-site":         {manifest: network, spec: "networkProvisioning: {provider: netbox, netbox: {role: tenants, site: none}}", reason: "NoParentPrefix"},
	"network-overlap":      {manifest: network, spec: "networkProvisioning: {provider: manual, manual: {ipv4CIDR: 10.78.0.0/25, vlanId: 78}}, ipAllocation: {type: static}", reason: "SegmentOverlap"},
	"network-ipam":         {manifest: network, spec: "networkProvisioning: {provider: unanswered}", reason: "Provisioning"},
	"backup-schedule":      {manifest: backup, spec: "clusterName: single, schedule: 0 0 31 2 *, storageLocation: {type: local}", reason: "InvalidSchedule"},
	"backup-cluster":       {manifest: backup, spec: "clusterName: none, storageLocation: {type: local}", reason: "ClusterNotFound"},
	"backup-secret":        {manifest: backup, spec: "clusterName: single, storageLocation: {type: s3, bucket: snapshots, secretRef: {name: none}}", reason: "CredentialsNotFound"},
	"provider-secret":      {manifest: machineProvider, spec: "credentialsRef: {name: none, namespace: vitistack-system}", reason: "CredentialsMissing"},
}

// checkFaults makes each fault, waits for its condition, and corrects it: the created object is deleted,
// and the changed one becomes Ready again.
func (w *world) checkFaults(t *testing.T) {
	created := map[string]subject{}
	for name, f := range faults {
		if f.manifest != "" {
			created[name] = w.createFault(t, name, f)
		}
	}
	for name, s := range created {
		w.awaitFault(name, s, faults[name].reason)
	}
	for name, f := range faults {
		if f.manifest == "" {
			w.breakAndMend(t, name, f)
		}
	}
	for _, s := range created {
		w.goes(s)
	}
	w.e.UntilPhase(engine.KubernetesClusters, site, "single", "Running")
}

// createFault creates the object of a fault.
func (w *world) createFault(t *testing.T, name string, f fault) subject {
	t.Helper()
	s := subject{namespace: site, name: name}
	switch f.manifest {
	case machine:
		s.resource = engine.Machines
		if !strings.Contains(f.spec, "network") {
			f.spec += ", networkNamespaceName: network"
		}
		if !strings.Contains(f.spec, "providerRef") {
			f.spec += ", providerRef: {name: kubevirt}"
		}
	case configuration:
		s.resource = engine.NetworkConfigurations
	case network:
		s.resource, s.namespace = engine.NetworkNamespaces, "spare"
	case backup:
		s.resource = engine.EtcdBackups
	case machineProvider:
		s.resource, s.namespace = engine.MachineProviders, ""
	}
	w.e.Apply(s.namespace, fmt.Sprintf(f.manifest, name, f.spec))
	return s
}

// awaitFault waits until a condition of an object has a reason, with a message that says more.
func (w *world) awaitFault(name string, s subject, reason string) {
	w.Helper()
	const patience = 20 * time.Second
	w.within(patience, fmt.Sprintf("%s: a condition with reason %s", name, reason), func() (said string) {
		obj := w.e.Get(s.resource, s.namespace, s.name)
		conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
		for _, c := range conditions {
			c := c.(map[string]any)
			if c["status"] == "False" && c["reason"] == reason && len(fmt.Sprint(c["message"])) > len(reason) {
				return ""
			}
			said += fmt.Sprintf("\n  %s %s %s: %s", c["type"], c["status"], c["reason"], c["message"])
		}
		return "it has:" + said
	})
}

// breakAndMend changes an object of the stand, and changes it back after the condition has appeared.
func (w *world) breakAndMend(t *testing.T, name string, f fault) {
	t.Helper()
	s := subjects[f.on]
	before := w.e.Get(s.resource, s.namespace, s.name)
	if err := w.try(s, f.fields, metav1.UpdateOptions{}); err != nil {
		t.Errorf("%s: the change is refused: %v", name, err)
		return
	}
	w.awaitFault(name, s, f.reason)
	if f.repairs {
		w.checkRepair()
	}
	restore := func(obj *unstructured.Unstructured) { obj.Object["spec"] = before.Object["spec"] }
	if err := w.update(s, metav1.UpdateOptions{}, restore); err != nil {
		t.Errorf("%s: the change back is refused: %v", name, err)
	}
}

// checkRepair deletes a worker of a cluster whose spec is wrong, and waits for another in its place.
func (w *world) checkRepair() {
	w.Helper()
	lost := w.e.Get(engine.Machines, site, "single-c-0").GetUID()
	w.e.Delete(engine.Machines, site, "single-c-0")
	w.until("a lost worker is replaced", func() string {
		running := 0
		for _, m := range w.e.List(engine.Machines, site, "cluster.vitistack.io/cluster-name=single") {
			phase, _, _ := unstructured.NestedString(m.Object, "status", "phase")
			if m.GetUID() != lost && m.GetDeletionTimestamp() == nil && phase == "Running" {
				running++
			}
		}
		return is(running, 4)
	})
}

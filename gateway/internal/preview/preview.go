// Package preview computes, from a snapshot, what applying a manifest would do.
package preview

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/backend"
	clusterplan "github.com/vitistack/stack/apis/cluster/plan"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// maxObjects bounds the objects in a preview.
const maxObjects = 2000

// Preview is what applying a manifest would do, with the objects that the stack would create for new ones.
type Preview struct {
	*shared.Preview
	Totals Totals `json:"totals"`
	// Objects are in the order of their creation.
	Objects   []Object `json:"objects"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Totals are the sums of the requests of new objects.
type Totals struct {
	Machines    int   `json:"machines"`
	Addresses   int   `json:"addresses"`
	CPUs        int64 `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
	DiskBytes   int64 `json:"diskBytes"`
}

// Object is one object that would be created.
type Object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Labels     map[string]string `json:"labels,omitempty"`
	// MadeBy is the function or controller that creates it.
	MadeBy string `json:"madeBy"`
	// Detail are the known fields of its spec.
	Detail map[string]any `json:"detail,omitempty"`
}

// The functions that create objects.
const (
	byTalos  = "bootstrap-talos"
	byVM     = "create-vm"
	byStatic = "allocate-ip"
	byKea    = "kea-reserve"
)

// filesPerConfigMap is the number of workers whose generated files share a ConfigMap.
const filesPerConfigMap = 50

// builder collects the objects that are created for one document.
type builder struct {
	*Preview
	namespace string
	world     shared.World
}

// Make returns what applying the documents of a manifest would do, given a snapshot. Documents have the objects
// that exist in Before. A caller that is limited to namespaces sees no networks of others, and not what
// MachineProviders report of their hosts.
func Make(ctx context.Context, documents []shared.Document, now *inventory.Snapshot, existing Existing, limited bool) (*Preview, error) {
	for i := range documents {
		d := &documents[i]
		if d.Before != nil {
			var err error
			if d.After, d.Note, err = shared.Merge(d.Before, d.Object); err != nil {
				return nil, err
			}
		}
		found, err := refusals(ctx, *d)
		if err != nil {
			return nil, err
		}
		d.Refusals = append(d.Refusals, found...)
	}
	world, err := worldOf(documents, now, existing, limited)
	if err != nil {
		return nil, err
	}
	p := &Preview{Preview: shared.Make(documents, world), Objects: []Object{}}
	world.Apply(documents)
	for _, d := range documents {
		if d.Before == nil && !slices.ContainsFunc(p.Errors, func(f shared.Finding) bool { return f.Document == d.Index }) {
			p.addObjects(d, world)
		}
	}
	return p, nil
}

// addObjects adds the objects that are created for a new object.
func (p *Preview) addObjects(d shared.Document, world shared.World) {
	m := builder{Preview: p, namespace: d.Object.GetNamespace(), world: world}
	switch d.Object.GetKind() {
	case "KubernetesCluster":
		kc := &v1alpha1.KubernetesCluster{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, kc) == nil {
			m.cluster(kc)
		}
	case "Machine":
		machine := &v1alpha1.Machine{}
		if runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object.Object, machine) == nil {
			m.machine(machine.Name, &machine.Spec, machine.Labels)
		}
	}
}

func (m builder) add(o Object) {
	if len(m.Objects) >= maxObjects {
		m.Truncated = true
		return
	}
	o.Namespace = m.namespace
	m.Objects = append(m.Objects, o)
}

// cluster adds the machines of a cluster, and the objects of each machine.
func (m builder) cluster(c *v1alpha1.KubernetesCluster) {
	p, err := clusterplan.Make(c, nil, m.world.DefaultTalos)
	if err != nil { // it is among the errors
		return
	}
	for _, name := range []string{"talos-secrets", "talosconfig", "kubeconfig"} {
		m.add(Object{APIVersion: "v1", Kind: "Secret", Name: c.Name + "-" + name, MadeBy: byTalos})
	}
	m.add(Object{APIVersion: "v1", Kind: "ConfigMap", Name: c.Name + "-manifests", MadeBy: byTalos})
	if p.Endpoint.Mode == v1alpha1.EndpointVIP && p.Endpoint.Address == "" {
		m.Totals.Addresses++
	}
	workers := map[string]int{}
	for _, member := range p.Members {
		if member.Role == v1alpha1.RoleWorker {
			if n := workers[member.Pool]; n%filesPerConfigMap == 0 {
				m.add(Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("%s-manifests-%s-%d", c.Name, member.Pool, n/filesPerConfigMap), MadeBy: byTalos})
			}
			workers[member.Pool]++
		}
		m.member(c, member)
	}
}

// member adds one machine of a cluster.
func (m builder) member(c *v1alpha1.KubernetesCluster, member clusterplan.Member) {
	template := member.Properties.Template
	labels := map[string]string{
		v1alpha1.LabelClusterName: c.Name, v1alpha1.LabelManagedBy: byTalos, v1alpha1.LabelClusterRole: member.Role,
		v1alpha1.LabelNodeRole: member.Role, v1alpha1.LabelMachineTemplate: template,
	}
	if member.Role == v1alpha1.RoleWorker {
		labels[v1alpha1.LabelWorkerGroup] = member.Pool
	}
	spec := v1alpha1.MachineSpec{Template: template, ProviderRef: member.Properties.ProviderRef, NetworkNamespaceName: c.Spec.NetworkNamespaceName}
	size, _ := machineplan.ResolveSize(spec, m.world.Classes) // the preview has refused what has no size
	detail := map[string]any{"template": template, "cpus": size.CPUs(), "memoryBytes": size.Memory.Value(), "role": member.Role, "pool": member.Pool}
	m.add(Object{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Name: member.Name, Labels: labels, MadeBy: byTalos, Detail: detail})
	m.machine(member.Name, &spec, labels)
}

// machine adds the objects of a machine.
func (m builder) machine(name string, spec *v1alpha1.MachineSpec, labels map[string]string) {
	provider, kind := m.provider(spec)
	hypervisor, known := backend.Find(kind)
	inCluster := hypervisor.InCluster || !known
	size, _ := machineplan.ResolveSize(*spec, m.world.Classes) // the preview has refused what has no size
	m.Totals.Machines++
	m.Totals.CPUs += size.CPUs()
	m.Totals.MemoryBytes += size.Memory.Value()
	owned := map[string]string{v1alpha1.LabelMachine: name}
	if cluster := labels[v1alpha1.LabelClusterName]; cluster != "" {
		owned[v1alpha1.LabelClusterName] = cluster
	}
	if len(spec.Networks) == 0 {
		m.Totals.Addresses++
		m.add(Object{APIVersion: "vitistack.io/v1alpha1", Kind: "NetworkConfiguration", Name: name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"interface": "eth0"}})
		if m.allocation(spec.NetworkNamespaceName) == v1alpha2.AllocationStatic {
			m.add(Object{APIVersion: "vitistack.io/v1alpha2", Kind: "IPAllocation", Name: name + "-eth0", MadeBy: byStatic})
		}
	}
	for _, d := range size.Disks {
		m.Totals.DiskBytes += d.Size.Value()
		if inCluster {
			m.add(Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name + "-" + d.Name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"bytes": d.Size.Value()}})
		}
	}
	if inCluster {
		m.add(Object{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"provider": provider}})
	}
}

// provider returns the name and type of the MachineProvider that create-vm would choose, or nothing.
func (m builder) provider(spec *v1alpha1.MachineSpec) (name, kind string) {
	p, err := m.world.ChooseProvider(spec.ProviderRef, m.namespace)
	if err != nil { // it is among the warnings
		return "", ""
	}
	return p.Name, string(p.Spec.Type)
}

// allocation returns how the network that a machine would be in allocates addresses.
func (m builder) allocation(network string) v1alpha2.AllocationType {
	nn, err := m.world.ChooseNetwork(m.namespace, network)
	if err != nil || nn.Spec.IPAllocation == nil {
		return ""
	}
	return nn.Spec.IPAllocation.Type
}

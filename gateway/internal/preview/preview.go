// Package preview tells what a manifest would become if it were applied.
package preview

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// mostObjects bounds how many objects are listed.
const mostObjects = 2000

// Preview is what a manifest would become.
type Preview struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Valid reports whether the manifest has no errors. Rules that compare fields are
	// the API server's: kubectl apply --dry-run=server checks them too.
	Valid  bool    `json:"valid"`
	Errors []Fault `json:"errors"`
	// Warnings are what would hold up an object that is valid.
	Warnings []string `json:"warnings"`
	Totals   Totals   `json:"totals"`
	// Objects are in the order in which they would be made.
	Objects   []Object `json:"objects"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Fault is what is wrong with one field.
type Fault struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Totals add up what is asked for.
type Totals struct {
	Machines    int   `json:"machines"`
	Addresses   int   `json:"addresses"`
	CPUs        int64 `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
	DiskBytes   int64 `json:"diskBytes"`
}

// Object is one object that would be made.
type Object struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Name       string            `json:"name"`
	Namespace  string            `json:"namespace"`
	Labels     map[string]string `json:"labels,omitempty"`
	// MadeBy is the function, or the API server's own controller, that makes it.
	MadeBy string `json:"madeBy"`
	// Detail has what is known beforehand of its spec.
	Detail map[string]any `json:"detail,omitempty"`
}

// The functions that make objects.
const (
	byTalos  = "bootstrap-talos"
	byVM     = "create-vm"
	byStatic = "allocate-ip"
	byKea    = "kea-reserve"
)

// Sizes that a pool has where it names none.
const (
	controlPlaneTemplate = "large"
	workerTemplate       = "medium"
)

// longestHost is how long the name of a machine may be.
const longestHost = 63

// filesShared is how many workers share a ConfigMap of generated files.
const filesShared = 50

// maker gathers what would be made.
type maker struct {
	*Preview
	world *inventory.Snapshot
}

// Make reads a manifest in YAML or JSON, and tells what it would become in the
// stack as it is now. namespace is used where the manifest names none. What cannot
// be read at all is an error; everything else that is wrong is part of the result.
func Make(manifest []byte, namespace string, now *inventory.Snapshot) (*Preview, error) {
	p := &Preview{Errors: []Fault{}, Warnings: []string{}, Objects: []Object{}}
	read, err := parse(manifest, p)
	if err != nil {
		return nil, err
	}
	m := maker{Preview: p, world: now}
	switch o := read.(type) {
	case *v1alpha1.KubernetesCluster:
		p.Name, p.Namespace = o.Name, firstOf(o.Namespace, namespace)
		m.cluster(o)
	case *v1alpha1.Machine:
		p.Name, p.Namespace = o.Name, firstOf(o.Namespace, namespace)
		m.machine(o.Name, &o.Spec, o.Labels)
		m.network(o.Spec.NetworkNamespaceName, len(o.Spec.Networks) == 0)
	}
	p.Valid = len(p.Errors) == 0
	return p, nil
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (m maker) fault(pointer, detail string, args ...any) {
	m.Errors = append(m.Errors, Fault{Pointer: pointer, Detail: fmt.Sprintf(detail, args...)})
}

func (m maker) warn(text string, args ...any) {
	m.Warnings = append(m.Warnings, fmt.Sprintf(text, args...))
}

func (m maker) add(o Object) {
	if len(m.Objects) >= mostObjects {
		m.Truncated = true
		return
	}
	o.Namespace = m.Namespace
	m.Objects = append(m.Objects, o)
}

// What a schema allows at most. A manifest that it refuses may have any number, and is
// shown no further.
const (
	mostReplicas = 500
	mostPools    = 32
)

// cluster adds the machines of a cluster, and what each of those needs.
func (m maker) cluster(c *v1alpha1.KubernetesCluster) {
	t := c.Spec.Topology
	if n := t.ControlPlane.Replicas; n%2 == 0 {
		m.fault("/spec/topology/controlplane/replicas", "%d control planes cannot keep a majority: write 1, 3, 5 or 7", n)
	}
	for _, name := range []string{"talos-secrets", "talosconfig", "kubeconfig"} {
		m.add(Object{APIVersion: "v1", Kind: "Secret", Name: c.Name + "-" + name, MadeBy: byTalos})
	}
	m.add(Object{APIVersion: "v1", Kind: "ConfigMap", Name: c.Name + "-manifests", MadeBy: byTalos})
	if t.ControlPlane.Replicas > 1 && c.Spec.ControlPlaneEndpoint == nil {
		m.Totals.Addresses++
	}
	m.pool(c, v1alpha1.RoleControlPlane, "cp", t.ControlPlane.Replicas, t.ControlPlane.MachineProperties, "/spec/topology/controlplane")
	var seen []string
	for i, p := range t.Workers[:min(len(t.Workers), mostPools)] {
		at := "/spec/topology/workers/" + strconv.Itoa(i)
		if slices.Contains(seen, p.Name) || p.Name == "cp" {
			m.fault(at+"/name", "the name %s is taken: each worker pool needs a name of its own, and cp is the control plane's", p.Name)
		}
		seen = append(seen, p.Name)
		m.pool(c, v1alpha1.RoleWorker, p.Name, p.Replicas, p.MachineProperties, at)
	}
	m.network(c.Spec.NetworkNamespaceName, true)
}

func (m maker) pool(c *v1alpha1.KubernetesCluster, role, pool string, replicas int32, p v1alpha1.MachineProperties, at string) {
	template := p.Template
	if template == "" {
		template = workerTemplate
		if role == v1alpha1.RoleControlPlane {
			template = controlPlaneTemplate
		}
	}
	if _, ok := inventory.Sizes[template]; !ok {
		m.fault(at+"/template", "template %s does not exist: write small, medium or large", template)
	}
	for i := range min(replicas, mostReplicas) {
		if role == v1alpha1.RoleWorker && i%filesShared == 0 {
			m.add(Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("%s-manifests-%s-%d", c.Name, pool, i/filesShared), MadeBy: byTalos})
		}
		name := fmt.Sprintf("%s-%s-%d", c.Name, pool, i)
		if len(name) > longestHost {
			m.fault(at, "machine name %s has more than %d characters: shorten the name of the cluster or of the pool", name, longestHost)
			return
		}
		labels := map[string]string{
			v1alpha1.LabelClusterName: c.Name, v1alpha1.LabelManagedBy: byTalos, v1alpha1.LabelClusterRole: role,
			v1alpha1.LabelNodeRole: role, v1alpha1.LabelMachineTemplate: template,
		}
		if role == v1alpha1.RoleWorker {
			labels[v1alpha1.LabelWorkerGroup] = pool
		}
		spec := v1alpha1.MachineSpec{Template: template, ProviderRef: p.ProviderRef, NetworkNamespaceName: c.Spec.NetworkNamespaceName}
		size := inventory.SizeOf(&spec)
		detail := map[string]any{"template": template, "cpus": size.CPUs, "memoryBytes": size.Memory, "role": role, "pool": pool}
		m.add(Object{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Name: name, Labels: labels, MadeBy: byTalos, Detail: detail})
		m.machine(name, &spec, labels)
	}
}

// machine adds what a machine needs.
func (m maker) machine(name string, spec *v1alpha1.MachineSpec, labels map[string]string) {
	provider, kind := m.provider(spec)
	size := inventory.SizeOf(spec)
	m.Totals.Machines++
	m.Totals.CPUs += size.CPUs
	m.Totals.MemoryBytes += size.Memory
	owned := map[string]string{v1alpha1.LabelMachine: name}
	if cluster := labels[v1alpha1.LabelClusterName]; cluster != "" {
		owned[v1alpha1.LabelClusterName] = cluster
	}
	if len(spec.Networks) == 0 {
		m.Totals.Addresses++
		m.add(Object{APIVersion: "vitistack.io/v1alpha1", Kind: "NetworkConfiguration", Name: name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"interface": "eth0"}})
		if m.allocation(spec.NetworkNamespaceName) == string(v1alpha2.AllocationStatic) {
			m.add(Object{APIVersion: "vitistack.io/v1alpha2", Kind: "IPAllocation", Name: name + "-eth0", MadeBy: byStatic})
		}
	}
	for _, v := range size.Volumes {
		m.Totals.DiskBytes += v.Bytes
		if kind != inventory.OperatorProxmox {
			m.add(Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name + "-" + v.Name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"bytes": v.Bytes}})
		}
	}
	if kind != inventory.OperatorProxmox {
		m.add(Object{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"provider": provider}})
	}
}

// provider is the name and type of the MachineProvider that would be chosen.
func (m maker) provider(spec *v1alpha1.MachineSpec) (name, kind string) {
	all := m.world.Collection(inventory.TopicProviders)
	if spec.ProviderRef != nil {
		if i := all.FindNamed("", spec.ProviderRef.Name); i != nil {
			return i.Name, i.Attribute("type")
		}
		m.once("MachineProvider %s does not exist: machines wait until it does", spec.ProviderRef.Name)
		return spec.ProviderRef.Name, ""
	}
	for _, i := range all.Items {
		if len(all.Items) == 1 || i.Object.Facts.(*inventory.Provider).Default {
			return i.Name, i.Attribute("type")
		}
	}
	m.once("no MachineProvider is the only one or marked default: write providerRef, or machines wait")
	return "", ""
}

// once warns unless the same warning is there already.
func (m maker) once(text string, args ...any) {
	if warning := fmt.Sprintf(text, args...); !slices.Contains(m.Warnings, warning) {
		m.Warnings = append(m.Warnings, warning)
	}
}

// find is the network of a name, or the only one of the namespace.
func (m maker) find(name string) *inventory.Item {
	networks := m.world.Collection(inventory.TopicNetworks)
	if name != "" {
		return networks.FindNamed(m.Namespace, name)
	}
	if all := networks.InNamespace(m.Namespace); len(all) == 1 {
		return all[0]
	}
	return nil
}

func (m maker) allocation(network string) string {
	if i := m.find(network); i != nil {
		return i.Attribute("allocation")
	}
	return ""
}

// network warns where the network would hold the machines up.
func (m maker) network(name string, needed bool) {
	if !needed {
		return
	}
	i := m.find(name)
	switch {
	case i == nil && name != "":
		m.warn("NetworkNamespace %s does not exist in namespace %s: machines wait until it does", name, m.Namespace)
		return
	case i == nil:
		m.warn("namespace %s does not hold exactly one NetworkNamespace: write networkNamespaceName, or machines wait", m.Namespace)
		return
	case !i.Readiness.Ready:
		m.warn("NetworkNamespace %s is not ready: machines wait until it is", i.Name)
	}
	if f := i.Object.Facts.(*inventory.Network); f.Counted && f.Free < int64(m.Totals.Addresses) {
		m.warn("NetworkNamespace %s has %d free addresses, and %d are needed", i.Name, f.Free, m.Totals.Addresses)
	}
}

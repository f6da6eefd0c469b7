// Package preview computes what the stack would create for a manifest.
package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/vitistack/stack/apis/backend"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// maxObjects bounds the objects in a preview.
const maxObjects = 2000

// Preview is what the stack would create for a manifest.
type Preview struct {
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Valid reports whether the manifest has no errors. Rules that compare fields are checked only by the API server, for example with
	// kubectl apply --dry-run=server.
	Valid  bool         `json:"valid"`
	Errors []FieldError `json:"errors"`
	// Warnings are what a valid object would wait for.
	Warnings []string `json:"warnings"`
	Totals   Totals   `json:"totals"`
	// Objects are in the order of their creation.
	Objects   []Object `json:"objects"`
	Truncated bool     `json:"truncated,omitempty"`
}

// FieldError describes what is wrong with one field.
type FieldError struct {
	Pointer string `json:"pointer"`
	Detail  string `json:"detail"`
}

// Totals are the sums of the requests.
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

// maxHostname bounds the length of a machine's name.
const maxHostname = 63

// filesPerConfigMap is the number of workers whose generated files share a ConfigMap.
const filesPerConfigMap = 50

// builder collects the objects of a preview.
type builder struct {
	*Preview
	snapshot *inventory.Snapshot
}

// Make parses a manifest in YAML or JSON, and returns what the stack would create for it given a snapshot. namespace is the default
// namespace. A manifest that cannot be parsed is ErrUnreadable; all other errors of the manifest are part of the result.
func Make(manifest []byte, namespace string, now *inventory.Snapshot) (*Preview, error) {
	p := &Preview{Errors: []FieldError{}, Warnings: []string{}, Objects: []Object{}}
	read, err := parse(manifest, p)
	if err != nil {
		return nil, err
	}
	m := builder{Preview: p, snapshot: now}
	switch o := read.(type) {
	case *v1alpha1.KubernetesCluster:
		p.Name, p.Namespace = o.Name, cmp.Or(o.Namespace, namespace)
		m.cluster(o)
	case *v1alpha1.Machine:
		p.Name, p.Namespace = o.Name, cmp.Or(o.Namespace, namespace)
		m.machine(o.Name, &o.Spec, o.Labels)
		m.network(o.Spec.NetworkNamespaceName, len(o.Spec.Networks) == 0)
	}
	p.Valid = len(p.Errors) == 0
	return p, nil
}

func (m builder) fault(pointer, detail string, args ...any) {
	m.Errors = append(m.Errors, FieldError{Pointer: pointer, Detail: fmt.Sprintf(detail, args...)})
}

func (m builder) warn(text string, args ...any) {
	m.Warnings = append(m.Warnings, fmt.Sprintf(text, args...))
}

func (m builder) add(o Object) {
	if len(m.Objects) >= maxObjects {
		m.Truncated = true
		return
	}
	o.Namespace = m.Namespace
	m.Objects = append(m.Objects, o)
}

// Maxima of the schema. A manifest that the schema rejects may have any number; the preview shows at most these.
const (
	mostReplicas = 500
	mostPools    = 32
)

// cluster adds the machines of a cluster, and the objects of each machine.
func (m builder) cluster(c *v1alpha1.KubernetesCluster) {
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
	m.pool(c, v1alpha1.RoleControlPlane, v1alpha1.ControlPlanePool, t.ControlPlane.Replicas, t.ControlPlane.MachineProperties, "/spec/topology/controlplane")
	var seen []string
	for i, p := range t.Workers[:min(len(t.Workers), mostPools)] {
		at := "/spec/topology/workers/" + strconv.Itoa(i)
		if slices.Contains(seen, p.Name) || p.Name == v1alpha1.ControlPlanePool {
			m.fault(at+"/name", "the name %s is taken: each worker pool needs a name of its own, and cp is the control plane's", p.Name)
		}
		seen = append(seen, p.Name)
		m.pool(c, v1alpha1.RoleWorker, p.Name, p.Replicas, p.MachineProperties, at)
	}
	m.network(c.Spec.NetworkNamespaceName, true)
}

func (m builder) pool(c *v1alpha1.KubernetesCluster, role, pool string, replicas int32, p v1alpha1.MachineProperties, at string) {
	template := cmp.Or(p.Template, v1alpha1.DefaultMachineTemplate(role))
	if _, err := v1alpha1.FindMachineTemplate(template); err != nil {
		m.fault(at+"/template", "%s", err)
	}
	for i := range min(replicas, mostReplicas) {
		if role == v1alpha1.RoleWorker && i%filesPerConfigMap == 0 {
			m.add(Object{APIVersion: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("%s-manifests-%s-%d", c.Name, pool, i/filesPerConfigMap), MadeBy: byTalos})
		}
		name := fmt.Sprintf("%s-%s-%d", c.Name, pool, i)
		if len(name) > maxHostname {
			m.fault(at, "machine name %s has more than %d characters: shorten the name of the cluster or of the pool", name, maxHostname)
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

// machine adds the objects of a machine.
func (m builder) machine(name string, spec *v1alpha1.MachineSpec, labels map[string]string) {
	provider, kind := m.provider(spec)
	hypervisor, known := backend.Find(kind)
	inCluster := hypervisor.InCluster || !known
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
		if inCluster {
			m.add(Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: name + "-" + v.Name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"bytes": v.Bytes}})
		}
	}
	if inCluster {
		m.add(Object{APIVersion: "kubevirt.io/v1", Kind: "VirtualMachine", Name: name, Labels: owned, MadeBy: byVM, Detail: map[string]any{"provider": provider}})
	}
}

// provider returns the name and type of the MachineProvider that create-vm would choose.
func (m builder) provider(spec *v1alpha1.MachineSpec) (name, kind string) {
	all := m.snapshot.Collection(inventory.TopicProviders)
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

// once adds a warning unless it exists already.
func (m builder) once(text string, args ...any) {
	if warning := fmt.Sprintf(text, args...); !slices.Contains(m.Warnings, warning) {
		m.Warnings = append(m.Warnings, warning)
	}
}

// find returns the network of a name, or the only network of the namespace.
func (m builder) find(name string) *inventory.Item {
	networks := m.snapshot.Collection(inventory.TopicNetworks)
	if name != "" {
		return networks.FindNamed(m.Namespace, name)
	}
	if all := networks.InNamespace(m.Namespace); len(all) == 1 {
		return all[0]
	}
	return nil
}

func (m builder) allocation(network string) string {
	if i := m.find(network); i != nil {
		return i.Attribute("allocation")
	}
	return ""
}

// network warns if the machines would wait for their network.
func (m builder) network(name string, needed bool) {
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

package inventory

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// redacted replaces secret values.
const redacted = "(redacted)"

func fromMachine(m *v1alpha1.Machine) (*Object, error) {
	s := &m.Status
	facts := &Machine{
		Phase:     cmp.Or(string(s.Phase), string(v1alpha1.MachinePending)),
		Provider:  s.Provider,
		Template:  m.Spec.Template,
		Host:      s.NodeName,
		VM:        s.VMName,
		Cluster:   cmp.Or(m.Labels[v1alpha1.LabelClusterName], owner(&m.ObjectMeta, KindCluster)),
		Role:      m.Labels[v1alpha1.LabelClusterRole],
		Pool:      m.Labels[v1alpha1.LabelWorkerGroup],
		Power:     cmp.Or(string(m.Spec.PowerState), string(v1alpha1.PowerRunning)),
		Network:   m.Spec.NetworkNamespaceName,
		Addresses: s.IPAddresses,
	}
	if facts.Provider == "" && m.Spec.ProviderRef != nil {
		facts.Provider = m.Spec.ProviderRef.Name
	}
	size := sizeOf(m)
	facts.CPUs, facts.Memory, facts.Volumes = size.CPUs, size.Memory, size.Volumes
	facts.StorageReady = meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionStorageReady)
	facts.VMFailed = meta.IsStatusConditionFalse(s.Conditions, v1alpha1.ConditionVirtualMachineReady)
	spec := m.Spec
	spec.CloudInit = redact(spec.CloudInit)
	o, err := newObject(KindMachine, v1alpha1.GroupVersion.String(), &m.ObjectMeta, facts, spec, m.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &m.ObjectMeta, s.Conditions)
	return o, nil
}

// redact replaces user and network data, which may contain passwords and keys.
func redact(c *v1alpha1.CloudInit) *v1alpha1.CloudInit {
	if c == nil {
		return nil
	}
	hidden := *c
	if hidden.UserData != "" {
		hidden.UserData = redacted
	}
	if hidden.NetworkData != "" {
		hidden.NetworkData = redacted
	}
	return &hidden
}

// Size is the CPUs, memory and disks of a machine.
type Size struct {
	CPUs, Memory int64
	Volumes      []Volume
}

// templateOf returns the size that spec.template names: a built-in one, or that of the MachineClass that the status has a copy
// of. It is empty for any other name, because its size is unknown until create-vm has found its MachineClass.
func templateOf(m *v1alpha1.Machine) v1alpha1.MachineClassSpec {
	var classes []v1alpha1.MachineClass
	name := m.Spec.Template
	if t := m.Status.Template; t != nil && name != "" && !v1alpha1.IsBuiltInClass(name) {
		name, classes = t.Name, t.Classes() // a machine keeps it while spec.template does not exist
	}
	spec, err := v1alpha1.FindMachineClass(name, classes)
	if err != nil {
		return v1alpha1.MachineClassSpec{}
	}
	return spec
}

// sizeOf returns the size of a machine's template, overridden field by field by its spec. It shows what it can of a
// spec that create-vm refuses.
func sizeOf(m *v1alpha1.Machine) Size {
	template := templateOf(m)
	size := Size{}
	cores, threads, sockets := int32(0), int32(1), int32(1)
	for _, r := range []*v1alpha1.MachineResources{&template.Resources, m.Spec.Resources} {
		if r == nil {
			continue
		}
		if c := r.CPU; c != nil {
			cores, threads, sockets = atLeast(c.Cores, cores), atLeast(c.Threads, threads), atLeast(c.Sockets, sockets)
		}
		if r.Memory != nil {
			size.Memory = bytesOr(r.Memory.Size, size.Memory)
		}
	}
	size.CPUs = int64(cores) * int64(threads) * int64(sockets)
	for _, d := range slices.Concat(template.Disks, m.Spec.Disks) {
		i := slices.IndexFunc(size.Volumes, func(v Volume) bool { return v.Name == d.Name })
		if i < 0 {
			i = len(size.Volumes)
			size.Volumes = append(size.Volumes, Volume{Name: d.Name})
		}
		size.Volumes[i].Bytes = bytesOr(d.Size, size.Volumes[i].Bytes)
	}
	return size
}

// atLeast returns the first number if it is set, or else the other one, or 1.
func atLeast(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return max(otherwise, 1)
}

// bytesOr parses a size. It returns the default for a missing or invalid size.
func bytesOr(size v1alpha1.Size, otherwise int64) int64 {
	q, err := resource.ParseQuantity(string(size))
	if err != nil {
		return otherwise
	}
	return q.Value()
}

func fromProvider(p *v1alpha1.MachineProvider) (*Object, error) {
	s := &p.Status
	facts := &Provider{
		Phase:    cmp.Or(string(s.Phase), string(v1alpha1.ProviderPending)),
		Type:     string(p.Spec.Type),
		Local:    p.Spec.Type == v1alpha1.ProviderKubeVirt && p.Spec.CredentialsRef == nil,
		Version:  s.Version,
		Default:  p.Spec.Default,
		Machines: s.MachineCount,
	}
	facts.Orphans = newOrphans(s.Orphans, orphanCondition(s.Conditions).Message)
	if p.Spec.Endpoint != nil {
		facts.Endpoint = p.Spec.Endpoint.URL
	}
	if c := s.Capacity; c != nil {
		facts.CPUs, facts.Memory, facts.Free = c.CPU.Value(), c.Memory.Value(), c.MemoryAvailable.Value()
	}
	for _, n := range s.Nodes {
		h := ProviderHost{Name: n.Name, Ready: n.Ready, CPUs: n.CPU.Value(), Memory: n.Memory.Value()}
		if n.CPUUsed != nil {
			h.Used.MilliCPUs = new(n.CPUUsed.MilliValue())
		}
		if n.MemoryUsed != nil {
			h.Used.Memory = new(n.MemoryUsed.Value())
		}
		facts.Hosts = append(facts.Hosts, h)
	}
	o, err := newObject(KindProvider, v1alpha1.GroupVersion.String(), &p.ObjectMeta, facts, p.Spec, p.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &p.ObjectMeta, s.Conditions)
	return o, nil
}

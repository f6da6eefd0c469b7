package preview

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	clusterplan "github.com/vitistack/stack/apis/cluster/plan"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// growMachines adds what machines that are resized in place take more of their MachineProviders, and warns if these have no
// room for it. A virtual machine on Proxmox VE restarts on its host, and one on KubeVirt on any.
func (m clusterPreview) growMachines(kc *v1alpha1.KubernetesCluster, p clusterplan.Plan, s clusterplan.Step, machines map[string]*v1alpha1.Machine) {
	pointer := pointerOfPool(kc, s.Pool) + "/template"
	for _, name := range s.Machines {
		machine := machines[name]
		before, after, isKnown := sizesOf(machine, p.PropertiesOf(s.Pool), m.world.Classes)
		i := slices.IndexFunc(m.world.Providers, func(p v1alpha1.MachineProvider) bool { return p.Name == machine.Status.Provider })
		if !isKnown || i < 0 {
			continue
		}
		provider := &m.world.Providers[i]
		growth := max(0, after.Memory.Value()-before.Memory.Value())
		m.demand.memory[provider.Name] += growth
		if why := tooSmall(provider, after); why != "" {
			m.warn(pointer, "NoCapacity", "%s", why)
			return
		}
		if why := m.demand.growOnHost(provider, machine, after, growth); why != "" {
			m.warn(pointer, "NoCapacity", "%s", why)
			return
		}
		if c := provider.Status.Capacity; c != nil && !c.MemoryAvailable.IsZero() && m.demand.memory[provider.Name] > c.MemoryAvailable.Value() {
			m.warn(pointer, "NoCapacity", "MachineProvider %s has %s of memory left, and the machines need %s more: machines wait at their restart until hosts have room",
				provider.Name, c.MemoryAvailable.String(), resource.NewQuantity(m.demand.memory[provider.Name], resource.BinarySI))
			return
		}
	}
}

// sizesOf returns the size that a machine has, and the one that it gets with the template of its pool, and false if one of
// them is not known.
func sizesOf(machine *v1alpha1.Machine, properties v1alpha1.MachineProperties, classes []v1alpha1.MachineClass) (before, after machineplan.Size, isKnown bool) {
	present, known := machine.Spec, classes
	if t := machine.Status.Template; t != nil {
		present.Template, known = t.Name, t.Classes()
	}
	wanted := machine.Spec
	wanted.Template = properties.Template
	before, errBefore := machineplan.ResolveSize(present, known)
	after, errAfter := machineplan.ResolveSize(wanted, classes)
	return before, after, errBefore == nil && errAfter == nil
}

// growOnHost adds the growth of a machine in bytes to what its host needs, and returns why the host has no room for the
// machine with its new size, or an empty string if it has, or if that is not known.
func (d demand) growOnHost(p *v1alpha1.MachineProvider, machine *v1alpha1.Machine, size machineplan.Size, growth int64) string {
	i := slices.IndexFunc(p.Status.Nodes, func(n v1alpha1.ProviderNode) bool { return n.Name == machine.Status.NodeName })
	if i < 0 || p.Spec.Type != v1alpha1.ProviderProxmox {
		return ""
	}
	host, key := p.Status.Nodes[i], p.Name+"/"+machine.Status.NodeName
	d.memory[key] += growth
	if !host.CPU.IsZero() && host.CPU.Value() < size.CPUs() {
		return fmt.Sprintf("host %s of MachineProvider %s has %s CPUs, and Machine %s would get %d: write a smaller template, or replace the machines (rollout.type: Replace)",
			host.Name, p.Name, host.CPU.String(), machine.Name, size.CPUs())
	}
	left := host.Memory.DeepCopy()
	if host.MemoryUsed != nil {
		left.Sub(*host.MemoryUsed)
	}
	if host.Memory.IsZero() || left.Value() >= d.memory[key] && host.Memory.Cmp(size.Memory) >= 0 {
		return ""
	}
	return fmt.Sprintf("host %s of MachineProvider %s has %s of memory left, and the machines on it need %s more: write a smaller template, or replace the machines (rollout.type: Replace)",
		host.Name, p.Name, left.String(), resource.NewQuantity(d.memory[key], resource.BinarySI))
}

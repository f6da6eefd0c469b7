package preview

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	machineplan "github.com/vitistack/stack/apis/machine/plan"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// demand is what documents take: addresses by network, and memory in bytes by MachineProvider and by host of one.
type demand struct {
	addresses map[string]int64
	memory    map[string]int64
}

func newDemand() demand {
	return demand{addresses: map[string]int64{}, memory: map[string]int64{}}
}

// machine adds what create-vm says of a Machine.
func (m *maker) machine(machine *v1alpha1.Machine) {
	resolved, err := machineplan.Resolve(machine, func() ([]v1alpha1.MachineClass, error) { return m.world.Classes, nil })
	if err == nil && resolved.Missing != nil {
		err = *resolved.Missing
	}
	if err != nil {
		reason, message := reasonOf(err)
		m.refuse(pointerOfSize(reason), reason, message)
	}
	if machine.Status.VMName == "" {
		m.images(machine.Spec.OS)
	}
	if m.of.Before != nil {
		if machine.Status.VMName == "" && machine.Status.Provider == "" {
			m.provider(machine.Spec.ProviderRef, "/spec/providerRef/name", machine.Namespace, nil)
		}
		m.restart()
		return
	}
	if err == nil {
		m.provider(machine.Spec.ProviderRef, "/spec/providerRef/name", machine.Namespace, []machineplan.Size{resolved.Size})
	}
	if len(machine.Spec.Networks) == 0 {
		m.network(machine.Spec.NetworkNamespaceName, 1)
	}
	m.result.Steps = append(m.result.Steps, Step{Action: "create", Machines: []string{machine.Name}, AtOnce: 1, Detail: "the virtual machine is created"})
}

// images adds an error for an image that hypervisors may not fetch.
func (m *maker) images(os *v1alpha1.MachineOS) {
	for _, i := range machineplan.Images(os) {
		if m.world.Settings == nil || m.world.Settings.ImageHosts == nil {
			m.uncheck(fmt.Sprintf("whether create-vm allows images from %s (images.allowedHosts of the chart)", i.Host()))
			continue
		}
		if err := i.CheckHost(m.world.Settings.ImageHosts); err != nil {
			m.refuseBy("/spec/os/"+i.Field, err)
		}
	}
}

func pointerOfSize(reason string) string {
	if reason == machineplan.ReasonTemplateNotFound {
		return "/spec/template"
	}
	return "/spec"
}

// restart adds the restart of a machine, at once or at its next start.
func (m *maker) restart() {
	detail := ""
	for _, c := range m.result.Changes {
		switch {
		case c.Field == "restartToken" && c.To != nil:
			detail = "the guest restarts at once, and the changes that need a restart take effect"
		case c.Field == "powerState" && c.To == string(v1alpha1.PowerStopped):
			detail = "the guest is shut down"
		case c.Outcome == "at restart" && detail == "":
			detail = "changes take effect at the next start of the machine: write another value into spec.restartToken to restart it"
		}
	}
	if detail != "" {
		m.result.Steps = append(m.result.Steps, Step{Action: "restart", Machines: []string{m.result.Name}, AtOnce: 1, Detail: detail})
	}
}

// provider warns if machines of these sizes would wait for their MachineProvider.
func (m *maker) provider(ref *v1alpha1.ProviderReference, pointer, namespace string, sizes []machineplan.Size) {
	p, err := m.world.ChooseProvider(ref, namespace)
	if err != nil {
		reason, message := reasonOf(err)
		m.warn(pointer, reason, "%s", message)
		return
	}
	if why := v1alpha1.WhyNotReady(p.Status.Conditions); why != "" {
		m.warn(pointer, "", "MachineProvider %s is not Ready: %s", p.Name, why)
	}
	for _, size := range sizes {
		m.demand.memory[p.Name] += size.Memory.Value()
		if why := tooSmall(p, size); why != "" {
			m.warn(pointer, "NoCapacity", "%s", why)
		}
	}
	if c := p.Status.Capacity; c != nil && !c.MemoryAvailable.IsZero() && m.demand.memory[p.Name] > c.MemoryAvailable.Value() {
		m.warn(pointer, "NoCapacity", "MachineProvider %s has %s of memory left, and the new machines need %s: machines wait until hosts have room",
			p.Name, c.MemoryAvailable.String(), resource.NewQuantity(m.demand.memory[p.Name], resource.BinarySI))
	}
}

// tooSmall returns why no host of a MachineProvider can run a machine, or nothing if one can or the hosts
// are unknown.
func tooSmall(p *v1alpha1.MachineProvider, size machineplan.Size) string {
	ready := 0
	for _, host := range p.Status.Nodes {
		if !host.Ready {
			continue
		}
		ready++
		if (host.Memory.IsZero() || host.Memory.Cmp(size.Memory) >= 0) && (host.CPU.IsZero() || host.CPU.Value() >= size.CPUs()) {
			return ""
		}
	}
	switch {
	case len(p.Status.Nodes) == 0:
		return ""
	case ready == 0:
		return fmt.Sprintf("no host of MachineProvider %s is Ready: machines wait until one is", p.Name)
	default:
		return fmt.Sprintf("no host of MachineProvider %s has %d CPUs and %s of memory: write a smaller template, or another MachineProvider", p.Name, size.CPUs(), size.Memory.String())
	}
}

// network warns if interfaces would wait for their network, or for one of its addresses. It returns the
// network, or nil.
func (m *maker) network(name string, addresses int) *v1alpha2.NetworkNamespace {
	nn, err := m.world.ChooseNetwork(m.result.Namespace, name)
	if unresolved, ok := err.(networkplan.Unresolved); ok { //nolint:errorlint // Choose wraps nothing
		m.warn("/spec/networkNamespaceName", unresolved.Reason, "%s", unresolved.Message)
		return nil
	}
	if why := v1alpha1.WhyNotReady(nn.Status.Conditions); why != "" || len(nn.Status.Conditions) == 0 {
		if why == "" {
			why = "it is new"
		}
		m.warn("/spec/networkNamespaceName", "", "NetworkNamespace %s is not Ready: %s", nn.Name, why)
	}
	if problem := networkplan.CheckOpen(nn); problem != "" {
		m.warn("/spec/networkNamespaceName", "NetworkDeleting", "%s", problem)
	}
	nn = withSegment(nn)
	key := nn.Namespace + "/" + nn.Name
	m.demand.addresses[key] += int64(addresses)
	if free, isKnown := freeAddresses(nn); isKnown && addresses > 0 && free < m.demand.addresses[key] {
		m.warn("/spec/networkNamespaceName", "PoolExhausted", "NetworkNamespace %s has %d free addresses, and %d are needed: extend its range, or delete what is not used", nn.Name, free, m.demand.addresses[key])
	}
	return nn
}

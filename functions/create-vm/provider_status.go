package main

import (
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// reasonUnreachable is the reason of a MachineProvider whose hypervisor does not answer.
const reasonUnreachable = "Unreachable"

func unreachableMessage(err error) string {
	return "the request to the hypervisor failed: " + stableMessage(err)
}

// setProviderStatus writes the result of an inspection into the status of a provider.
func setProviderStatus(p *v1alpha1.MachineProvider, h hypervisor.Health, machines int32, err error) reconcile.Outcome {
	s := &p.Status
	s.ObservedGeneration, s.MachineCount = p.Generation, machines
	if problem, ok := asUserError(err); ok {
		s.Phase = v1alpha1.ProviderFailed
		return setProviderReady(p, problem.Reason, problem.Message)
	}
	if err != nil {
		s.Phase = v1alpha1.ProviderOffline
		return setProviderReady(p, reasonUnreachable, unreachableMessage(err))
	}
	keepSmallChanges(s.Nodes, h.Nodes)
	s.Phase, s.Version, s.Nodes = v1alpha1.ProviderReady, h.Version, h.Nodes
	s.Capacity = capacityOf(h)
	setPrivileges(p, h)
	setSpoofProtection(p, h.SpoofProtection)
	return setProviderReady(p, "Healthy", "the hypervisor answers")
}

// setProviderReady writes the condition Ready of a MachineProvider, as its phase says.
func setProviderReady(p *v1alpha1.MachineProvider, reason, message string) reconcile.Outcome {
	ok := p.Status.Phase == v1alpha1.ProviderReady
	outcome := reconcile.SetReady(&p.Status.Conditions, p.Generation, ok, reason, message)
	outcome.Warning = !ok
	return outcome
}

// capacityOf returns the sum of what the ready nodes of a hypervisor have.
func capacityOf(h hypervisor.Health) *v1alpha1.ProviderCapacity {
	cpu, memory := resource.Quantity{Format: resource.DecimalSI}, resource.Quantity{Format: resource.BinarySI}
	free := memory
	for _, n := range h.Nodes {
		if !n.Ready {
			continue
		}
		cpu.Add(n.CPU)
		memory.Add(n.Memory)
		free.Add(n.Memory)
		if n.MemoryUsed != nil {
			free.Sub(*n.MemoryUsed)
		}
	}
	if h.MemoryAvailable != nil {
		free = *h.MemoryAvailable
	}
	return &v1alpha1.ProviderCapacity{CPU: cpu, Memory: memory, MemoryAvailable: free}
}

// keepSmallChanges keeps the former usage of hosts where it has hardly changed, because a
// small change is not worth a write.
func keepSmallChanges(before, now []v1alpha1.ProviderNode) {
	for i := range now {
		n := &now[i]
		old := slices.IndexFunc(before, func(o v1alpha1.ProviderNode) bool { return o.Name == n.Name })
		if old < 0 {
			continue
		}
		if isSmallChange(before[old].CPUUsed, n.CPUUsed, n.CPU) {
			n.CPUUsed = before[old].CPUUsed
		}
		if isSmallChange(before[old].MemoryUsed, n.MemoryUsed, n.Memory) {
			n.MemoryUsed = before[old].MemoryUsed
		}
	}
}

// isSmallChange reports whether usage has changed by less than a twentieth of the whole.
func isSmallChange(before, now *resource.Quantity, whole resource.Quantity) bool {
	if before == nil || now == nil {
		return false
	}
	difference := before.AsApproximateFloat64() - now.AsApproximateFloat64()
	return math.Abs(difference) < whole.AsApproximateFloat64()/20
}

// setSpoofProtection writes whether machines of a provider can use the MAC address of another
// machine.
func setSpoofProtection(p *v1alpha1.MachineProvider, found *hypervisor.Finding) {
	const condition = v1alpha1.ConditionSpoofProtection
	if found == nil {
		meta.RemoveStatusCondition(&p.Status.Conditions, condition)
		return
	}
	kube.SetCondition(&p.Status.Conditions, p.Generation, condition, found.OK, found.Reason, found.Message)
}

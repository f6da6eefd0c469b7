package inventory

import (
	"cmp"
	"strconv"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

type quantityJSON struct {
	Total     int64  `json:"total"`
	Free      int64  `json:"allocatable"`
	Requested int64  `json:"requested"`
	Used      *int64 `json:"used,omitempty"`
}

type hostJSON struct {
	head
	Provider     string       `json:"provider,omitempty"`
	Type         string       `json:"type"`
	Local        bool         `json:"local,omitempty"`
	Version      string       `json:"version,omitempty"`
	ControlPlane bool         `json:"controlPlane,omitempty"`
	Schedulable  bool         `json:"schedulable"`
	VMs          int          `json:"vms"`
	MilliCPUs    quantityJSON `json:"milliCpus"`
	Memory       quantityJSON `json:"memoryBytes"`
	tail
}

type hostFacts struct {
	provider, kind string
	vms            int
}

func (f *hostFacts) attribute(name string) string {
	switch name {
	case "provider":
		return f.provider
	case "type":
		return f.kind
	case "vms":
		return strconv.Itoa(f.vms)
	}
	return ""
}

// load is the sum of the requests of a host's virtual machines.
type load struct {
	vms          int
	cpus, memory int64
}

func (l *load) add(cpus, memory int64) {
	l.vms++
	l.cpus += cpus
	l.memory += memory
}

// markUnknown makes the item of a host one whose state is unknown, because the hypervisor of its MachineProvider does not answer.
func (i *Item) markUnknown(provider string, since time.Time) {
	i.Status, i.Phase = StatusUnknown, "Unknown"
	i.Readiness = Readiness{Reason: "Unreachable", Message: "MachineProvider " + provider + " does not answer, so the state of the host is not known", Since: since}
}

// nodeItem returns the item of a node that KubeVirt uses. provider is the MachineProvider that creates machines on it, or empty.
// silent is whether its hypervisor does not answer.
func nodeItem(o *Object, provider string, silent bool, used Usage, l load) *Item {
	f := o.Facts.(*Node)
	phase := "Ready"
	if !f.Ready {
		phase = "NotReady"
	}
	i := itemOf(TopicHosts, o, readyStatus(f.Ready), phase, &hostFacts{provider: provider, kind: string(v1alpha1.ProviderKubeVirt), vms: l.vms})
	if silent {
		i.markUnknown(provider, i.Readiness.Since)
		used = Usage{}
	}
	i.JSON = encode(hostJSON{
		head: i.head(), tail: i.tail(), Provider: provider, Type: string(v1alpha1.ProviderKubeVirt), Local: true, Version: f.Version,
		ControlPlane: f.ControlPlane, Schedulable: f.Ready && !f.Unschedulable && !silent, VMs: l.vms,
		MilliCPUs: quantityJSON{Total: f.MilliCPUs, Free: f.MilliCPUsFree, Requested: l.cpus * 1000, Used: used.MilliCPUs},
		Memory:    quantityJSON{Total: f.Memory, Free: f.MemoryFree, Requested: l.memory, Used: used.Memory},
	})
	return i
}

func hostID(o *Object, h ProviderHost) string { return o.UID + "." + h.Name }

// providerHostItem returns the item of a host in the status of a MachineProvider. silent is whether the hypervisor does not answer.
func providerHostItem(o *Object, h ProviderHost, silent bool, l load) *Item {
	f := o.Facts.(*Provider)
	phase := "Ready"
	if !h.Ready {
		phase = "NotReady"
	}
	i := itemOf(TopicHosts, o, readyStatus(h.Ready), phase, &hostFacts{provider: o.Name, kind: f.Type, vms: l.vms})
	i.ID, i.Name, i.Readiness = hostID(o, h), h.Name, Readiness{Ready: h.Ready}
	used := h.Used
	if silent {
		i.markUnknown(o.Name, o.Readiness.Since)
		used = Usage{}
	}
	i.JSON = encode(hostJSON{
		head: i.head(), tail: i.tail(), Provider: o.Name, Type: f.Type, Version: f.Version, Schedulable: h.Ready && !silent, VMs: l.vms,
		MilliCPUs: quantityJSON{Total: h.CPUs * 1000, Free: h.CPUs * 1000, Requested: l.cpus * 1000, Used: used.MilliCPUs},
		Memory:    quantityJSON{Total: h.Memory, Free: h.Memory, Requested: l.memory, Used: used.Memory},
	})
	return i
}

type vmJSON struct {
	head
	Host      string   `json:"host,omitempty"`
	Machine   string   `json:"machine,omitempty"`
	Cluster   string   `json:"cluster,omitempty"`
	CPUs      int64    `json:"cpus"`
	Memory    int64    `json:"memoryBytes"`
	Addresses []string `json:"addresses"`
	tail
}

type vmFacts struct {
	host, machine, cluster string
	cpus, memory           int64
}

func (f *vmFacts) attribute(name string) string {
	switch name {
	case "host":
		return f.host
	case "machine":
		return f.machine
	case "cluster":
		return f.cluster
	case "cpus":
		return strconv.FormatInt(f.cpus, 10)
	case "memoryBytes":
		return strconv.FormatInt(f.memory, 10)
	}
	return ""
}

// vmItem returns the item of a virtual machine of KubeVirt. running is its instance, or nil.
func vmItem(o *Object, running *Instance) *Item {
	f := o.Facts.(*VM)
	if running == nil {
		running = &Instance{CPUs: f.CPUs, Memory: f.Memory}
	}
	facts := &vmFacts{host: running.Host, machine: f.Machine, cluster: cmp.Or(f.Cluster, o.Labels[v1alpha1.LabelClusterID]), cpus: running.CPUs, memory: running.Memory}
	i := itemOf(TopicVMs, o, vmStatus(f.Phase), f.Phase, facts)
	addresses := running.Addresses
	if addresses == nil {
		addresses = []string{}
	}
	i.JSON = encode(vmJSON{
		head: i.head(), tail: i.tail(), Host: facts.host, Machine: facts.machine, Cluster: facts.cluster,
		CPUs: running.CPUs, Memory: running.Memory, Addresses: addresses,
	})
	return i
}

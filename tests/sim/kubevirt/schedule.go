package kubevirt

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	virtv1 "kubevirt.io/api/core/v1"
)

// podUID is the type of a pod's UID in an instance's status.
type podUID = types.UID

// podOf returns the UID of the pod that runs an instance. Pods are not simulated, so it is derived
// from the instance's UID.
func podOf(vmi *virtv1.VirtualMachineInstance) podUID {
	return podUID(uuid.NewSHA1(uuid.NameSpaceOID, []byte(vmi.UID)).String())
}

// load is what instances request of a node.
type load struct {
	milliCPU, memory int64
}

// cpuAllocationRatio is how many virtual CPUs share one CPU.
const cpuAllocationRatio = 10

// requests returns what an instance's pod requests: a tenth of a CPU per virtual CPU unless it
// specifies more, and its memory with KubeVirt's overhead.
func requests(spec *virtv1.VirtualMachineInstanceSpec) load {
	cpus := vcpus(spec.Domain.CPU)
	cpu := cpus * 1000 / cpuAllocationRatio
	if asked := spec.Domain.Resources.Requests.Cpu(); !asked.IsZero() {
		cpu = asked.MilliValue()
	}
	memory := spec.Domain.Resources.Requests.Memory().Value()
	if memory == 0 && spec.Domain.Memory != nil && spec.Domain.Memory.Guest != nil {
		memory = spec.Domain.Memory.Guest.Value()
	}
	const mebi = 1 << 20
	// The launcher, its monitor, virtlogd, virtqemud, QEMU, an I/O thread, and video memory.
	const fixed = (100 + 25 + 25 + 40 + 30 + 8 + 32) * mebi
	return load{milliCPU: cpu, memory: memory + memory/512 + fixed + cpus*8*mebi}
}

// vcpus returns the number of virtual CPUs. A missing part of the topology counts as one.
func vcpus(cpu *virtv1.CPU) int64 {
	if cpu == nil {
		return 1
	}
	n := int64(1)
	for _, part := range []uint32{cpu.Sockets, cpu.Cores, cpu.Threads} {
		if part != 0 {
			n *= int64(part)
		}
	}
	return n
}

// place returns the node with the most free memory for an instance, or else why there is none, in the
// scheduler's words.
func place(spec *virtv1.VirtualMachineInstanceSpec, nodes []*corev1.Node, used map[string]load) (node, why string) {
	need := requests(spec)
	refusals := map[string]int{}
	var most int64
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		left := load{
			milliCPU: n.Status.Allocatable.Cpu().MilliValue() - used[n.Name].milliCPU,
			memory:   n.Status.Allocatable.Memory().Value() - used[n.Name].memory,
		}
		if reasons := refuse(n, spec, need, left); len(reasons) > 0 {
			for _, r := range reasons {
				refusals[r]++
			}
			continue
		}
		if node == "" || left.memory > most {
			node, most = n.Name, left.memory
		}
	}
	if node != "" {
		return node, ""
	}
	return "", unschedulable(len(nodes), refusals)
}

func refuse(n *corev1.Node, spec *virtv1.VirtualMachineInstanceSpec, need, left load) []string {
	switch {
	case n.Spec.Unschedulable || n.DeletionTimestamp != nil:
		return []string{"node(s) were unschedulable"}
	case n.Labels[virtv1.NodeSchedulable] != "true" || !selects(spec.NodeSelector, n.Labels):
		return []string{"node(s) didn't match Pod's node affinity/selector"}
	}
	var reasons []string
	if need.milliCPU > left.milliCPU {
		reasons = append(reasons, "Insufficient cpu")
	}
	if need.memory > left.memory {
		reasons = append(reasons, "Insufficient memory")
	}
	return reasons
}

func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func unschedulable(nodes int, refusals map[string]int) string {
	var reasons []string
	for r, n := range refusals {
		reasons = append(reasons, fmt.Sprintf("%d %s", n, r))
	}
	slices.Sort(reasons)
	if len(reasons) == 0 {
		return "no nodes available to schedule pods"
	}
	return fmt.Sprintf("0/%d nodes are available: %s. preemption: 0/%d nodes are available: %d Preemption is not helpful for scheduling.",
		nodes, strings.Join(reasons, ", "), nodes, nodes)
}

// hosts records placements that the status of an instance does not show yet, so that two workers never
// allocate the same resources.
type hosts struct {
	pods netip.Prefix

	mu    sync.Mutex
	taken map[types.UID]placement
}

// placement is the node of an instance and the address of its pod.
type placement struct {
	node    string
	address netip.Addr
	load    load
}

func newHosts(pods netip.Prefix) *hosts {
	return &hosts{pods: pods.Masked(), taken: map[types.UID]placement{}}
}

// assign selects a node and a pod address for an instance. A bound instance keeps its node. A second
// call for the same instance returns the same until release.
func (h *hosts) assign(vmi *virtv1.VirtualMachineInstance, nodes []*corev1.Node, others []*virtv1.VirtualMachineInstance) (placement, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, ok := h.taken[vmi.UID]; ok {
		return p, ""
	}
	used, addresses := h.occupied(vmi.UID, others)
	node, why := nodeOf(vmi), ""
	if node == "" {
		node, why = place(&vmi.Spec, nodes, used)
	}
	if why != "" {
		return placement{}, why
	}
	p := placement{node: node, address: h.freeAddress(vmi.UID, addresses), load: requests(&vmi.Spec)}
	h.taken[vmi.UID] = p
	return p, ""
}

// occupied returns what is in use according to the instances' status and to placements that it does
// not show yet.
func (h *hosts) occupied(except types.UID, others []*virtv1.VirtualMachineInstance) (map[string]load, map[netip.Addr]bool) {
	used, addresses := map[string]load{}, map[netip.Addr]bool{}
	for _, o := range others {
		_, pending := h.taken[o.UID]
		node := nodeOf(o)
		if o.UID == except || pending || o.IsFinal() || node == "" {
			continue
		}
		add(used, node, requests(&o.Spec))
		for _, i := range o.Status.Interfaces {
			if a, err := netip.ParseAddr(i.IP); err == nil {
				addresses[a] = true
			}
		}
	}
	for _, p := range h.taken {
		add(used, p.node, p.load)
		addresses[p.address] = true
	}
	return used, addresses
}

func add(used map[string]load, node string, l load) {
	sum := used[node]
	used[node] = load{milliCPU: sum.milliCPU + l.milliCPU, memory: sum.memory + l.memory}
}

// freeAddress starts at an address derived from the instance, so that the address is most likely the
// same after a restart of the simulator. It omits the network address, the gateway after it, and the
// last address.
func (h *hosts) freeAddress(uid types.UID, taken map[netip.Addr]bool) netip.Addr {
	const first, most = 2, 16
	usable := 1<<min(most, h.pods.Addr().BitLen()-h.pods.Bits()) - first - 1
	digest := fnv.New32a()
	_, _ = digest.Write([]byte(uid))
	for i := range max(0, usable) {
		n := first + (int(digest.Sum32())+i)%usable
		if a := nth(h.pods.Addr(), uint32(n)); !taken[a] {
			return a
		}
	}
	return netip.Addr{} // all are in use: the instance has no address
}

func nth(a netip.Addr, n uint32) netip.Addr {
	b := a.AsSlice()
	for i := len(b) - 1; i >= 0 && n > 0; i-- {
		n += uint32(b[i])
		b[i] = byte(n)
		n >>= 8
	}
	next, _ := netip.AddrFromSlice(b)
	return next
}

// release removes a placement that the status shows, or that is not needed.
func (h *hosts) release(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.taken, uid)
}

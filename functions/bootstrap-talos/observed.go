package main

import (
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
)

// observed is what a delivery has read about a cluster.
type observed struct {
	// network is the name of the NetworkNamespace, and networkReady whether it allocates
	// addresses.
	network      string
	networkReady bool
	// machineNetwork is the network that new Machines name. It is empty for a cluster that names none before a machine
	// has addresses: until then another NetworkNamespace may replace the only one.
	machineNetwork string
	// withoutProvider has the members whose MachineProvider does not exist.
	withoutProvider map[string]bool
	// machines are the Machines of the cluster by name, including Machines in removal.
	machines map[string]*v1alpha1.Machine
	keys     *talos.Keys
	// kubeconfig is the administrator's. It is nil before a node has returned one.
	kubeconfig []byte
	// vip is the virtual address of the control planes, or the zero value.
	vip netip.Addr
	// wantedEndpoint is the URL at which the workload API should be reached. status.endpoint is
	// the one that nodes know.
	wantedEndpoint string
	// nodeStates has the states of the nodes that this delivery has probed.
	nodeStates map[string]talos.State
	// unconfigured are the members whose nodes have not been seen with their configurations, and
	// configs has their configurations that have not been provided.
	unconfigured []plan.Member
	configs      map[string][]byte
	// macs are the MAC addresses of the interfaces of machines whose configuration is rendered.
	macs map[string][]string
	// patches are the patches that have been read, by their ConfigMaps.
	patches map[v1alpha1.ObjectName][]talos.Patch
	// classes are the MachineClasses that exist, if the machines that are resized in place depend on them.
	classes []v1alpha1.MachineClass
	// nodeConfigs has the parts of the configurations of each pool that only a new node gets. A pool
	// whose patches are not read, or wrong, has no entry.
	nodeConfigs map[string]nodeconfig.Parts
	// controlPlaneChanged is whether this delivery has given a control plane another configuration.
	controlPlaneChanged bool
	// addons are the manifests that have been read, by the names of the add-ons.
	addons map[string]addons.Manifests
	// apiAnswers is whether the workload API has answered. nodes are the Nodes that it has listed, without
	// earlierNodes, which are left of earlier Machines.
	apiAnswers          bool
	nodes, earlierNodes []plan.Node
}

// hasNodes reports whether a node has its configuration.
func (o *observed) hasNodes() bool {
	for _, m := range o.machines {
		if plan.IsInstalled(m) {
			return true
		}
	}
	return false
}

// controlPlanes returns the addresses by name of the control planes that run with their
// configuration, including control planes in removal.
func (o *observed) controlPlanes() map[string]string {
	addresses := map[string]string{}
	for name, m := range o.machines {
		if plan.PoolOf(m) == v1alpha1.ControlPlanePool && plan.IsInstalled(m) && m.Status.Phase == v1alpha1.MachineRunning && len(m.Status.IPAddresses) > 0 {
			addresses[name] = plan.Address(m)
		}
	}
	return addresses
}

// recordNodes records the Nodes that the workload API has listed. Nodes of Machines without a
// configuration are left of earlier Machines of the same names, and are Ready until Kubernetes misses
// their kubelets.
func (o *observed) recordNodes(nodes []plan.Node) {
	o.nodes, o.earlierNodes = nil, nil
	for _, n := range nodes {
		if m := o.machines[n.Name]; m != nil && !plan.IsInstalled(m) {
			o.earlierNodes = append(o.earlierNodes, n)
		} else {
			o.nodes = append(o.nodes, n)
		}
	}
}

// addressesOf returns the addresses of some nodes, by name.
func (o *observed) addressesOf(names []string) map[string]string {
	addresses := map[string]string{}
	for _, name := range names {
		addresses[name] = plan.Address(o.machines[name])
	}
	return addresses
}

// isWorking reports whether a machine is a working node, as far as that is known.
func (o *observed) isWorking(name string) bool {
	if !plan.IsRunning(o.machines[name]) {
		return false
	}
	if !o.apiAnswers {
		return plan.IsInstalled(o.machines[name])
	}
	n, ok := o.node(name)
	return ok && n.Ready
}

// node returns the Node of a machine, as listed last.
func (o *observed) node(name string) (plan.Node, bool) {
	i := slices.IndexFunc(o.nodes, func(n plan.Node) bool { return n.Name == name })
	if i < 0 {
		return plan.Node{}, false
	}
	return o.nodes[i], true
}

// hasMachine reports whether the Machines that were read include one of a name.
func (o *observed) hasMachine(name string) bool { return o.machines[name] != nil }

// leavingNode returns a node whose machine is being removed, or an empty string.
func (o *observed) leavingNode() string {
	for name, m := range o.machines {
		if plan.IsLeaving(m) {
			return name
		}
	}
	return ""
}

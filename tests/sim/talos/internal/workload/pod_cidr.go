package workload

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// PodCIDR is how kube-controller-manager divides the prefix of pods (--cluster-cidr) among the nodes.
type PodCIDR struct {
	Cluster netip.Prefix
	// NodeBits is the length of the prefix of each node (--node-cidr-mask-size-ipv4 and -ipv6).
	NodeBits int
}

// maxIPv6Difference is clusterSubnetMaxDiff of pkg/controller/nodeipam/ipam/cidrset/cidr_set.go in Kubernetes.
const maxIPv6Difference = 16

// size returns how many nodes have a prefix. It is 0 if kube-controller-manager does not start: NewNodeIpamController in
// pkg/controller/nodeipam/node_ipam_controller.go of Kubernetes refuses a prefix that is smaller than that of a node, and NewCIDRSet an IPv6
// prefix that is too large.
func (p PodCIDR) size() int {
	spare := p.NodeBits - p.Cluster.Bits()
	if !p.Cluster.IsValid() || spare < 0 || p.Cluster.Addr().Is6() && spare > maxIPv6Difference {
		return 0
	}
	return 1 << spare
}

// at returns a prefix of a node.
func (p PodCIDR) at(index int) netip.Prefix {
	b := p.Cluster.Masked().Addr().AsSlice()
	for i := range p.NodeBits - p.Cluster.Bits() {
		if bit := p.NodeBits - 1 - i; index>>i&1 == 1 {
			b[bit/8] |= 1 << (7 - bit%8)
		}
	}
	address, _ := netip.AddrFromSlice(b)
	return netip.PrefixFrom(address, p.NodeBits)
}

// allocatePodCIDR gives a Node the first prefix that no other one has, and reports whether it has changed the Node. A Node keeps its prefix
// until it is deleted.
func (c *Cluster) allocatePodCIDR(node *corev1.Node, p PodCIDR) bool {
	if node.Spec.PodCIDR != "" {
		return false
	}
	taken := map[string]bool{}
	for _, obj := range c.store.list(nodeKind, "") {
		taken[obj.(*corev1.Node).Spec.PodCIDR] = true
	}
	for i := range p.size() {
		if free := p.at(i).String(); !taken[free] {
			node.Spec.PodCIDR, node.Spec.PodCIDRs = free, []string{free}
			return true
		}
	}
	return false
}

// reconcilePodCIDRs gives the Nodes without a prefix those of deleted Nodes.
func (c *Cluster) reconcilePodCIDRs() error {
	for _, obj := range slices.Clone(c.store.list(nodeKind, "")) {
		node := obj.(*corev1.Node)
		agent := c.kubelets[node.Name]
		if agent == nil || node.Spec.PodCIDR != "" {
			continue
		}
		if next := node.DeepCopy(); c.allocatePodCIDR(next, agent.PodCIDR) {
			if err := c.store.put(nodeKind, next); err != nil {
				return err
			}
		}
	}
	return nil
}

package plan

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"strings"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// kube-controller-manager gives each node a prefix of nodePrefixIPv4 or nodePrefixIPv6 bits of podCIDR. It does not start if podCIDR
// is smaller, or of IPv6 and more than maxIPv6Difference bits larger.
//
// Source: defaultNodeMaskCIDRIPv4 and defaultNodeMaskCIDRIPv6 in cmd/kube-controller-manager/app/core.go, NewNodeIpamController in
// pkg/controller/nodeipam/node_ipam_controller.go, and clusterSubnetMaxDiff in pkg/controller/nodeipam/ipam/cidrset/cidr_set.go.
const (
	nodePrefixIPv4    = 24
	nodePrefixIPv6    = 64
	maxIPv6Difference = 16
)

// podPrefix is the prefix of the pods of a cluster.
type podPrefix struct {
	netip.Prefix
	// node is the length of the prefix of each node, and spare how much longer it is than the cluster's.
	node, spare int
}

// podPrefixOf returns the prefix of the pods of a cluster, and false if it is not valid, which the API server has refused. Without one
// it is the default of IPv4, because the one of IPv6 has room for as many nodes.
func podPrefixOf(kc *v1alpha1.KubernetesCluster) (podPrefix, bool) {
	cidr := defaultPodCIDR
	if n := kc.Spec.Networking; n != nil {
		cidr = cmp.Or(n.PodCIDR, cidr)
	}
	prefix, err := netip.ParsePrefix(cidr)
	p := podPrefix{Prefix: prefix, node: nodePrefixIPv4}
	if prefix.Addr().Is6() {
		p.node = nodePrefixIPv6
	}
	p.spare = p.node - prefix.Bits()
	return p, err == nil
}

// nodes returns how many nodes have room in the prefix.
func (p podPrefix) nodes() int { return 1 << min(p.spare, nodePrefixIPv4) }

// remedy says which prefixes have room for a number of nodes.
func (p podPrefix) remedy(nodes int) string {
	longest := p.node - bits.Len(uint(nodes-1))
	if p.Addr().Is6() {
		return fmt.Sprintf("write a prefix of /%d to /%d into spec.networking.podCIDR", p.node-maxIPv6Difference, longest)
	}
	return fmt.Sprintf("write a prefix of /%d or a larger one into spec.networking.podCIDR", longest)
}

// CheckPodPrefix returns a UserError if kube-controller-manager does not start with the podCIDR of a new cluster, or if podCIDR has no
// prefix for each node that the topology permits and for those that replace others. A node without one is never Ready.
func CheckPodPrefix(kc *v1alpha1.KubernetesCluster) error {
	p, ok := podPrefixOf(kc)
	if !ok {
		return nil
	}
	permitted, needed := maxNodes(kc.Spec.Topology), 1
	if needsNodePrefixes(kc) {
		needed = permitted + surgeOf(kc.Spec.Topology)
	}
	message := ""
	switch {
	case p.spare < 0:
		message = fmt.Sprintf("podCIDR %s is smaller than the /%d that Kubernetes gives each node: %s", p, p.node, p.remedy(needed))
	case p.Addr().Is6() && p.spare > maxIPv6Difference:
		message = fmt.Sprintf("podCIDR %s is larger than Kubernetes accepts: %s", p, p.remedy(needed))
	case needed > p.nodes():
		message = fmt.Sprintf("podCIDR %s has a /%d for each of %s, and spec.topology permits %d and %s: %s, or lower %s",
			p, p.node, Plural(p.nodes(), "node"), permitted, describeSurge(kc.Spec.Topology), p.remedy(needed), fieldsOfNodes(kc.Spec.Topology))
	default:
		return nil
	}
	return usererror.Error{Reason: "PrefixSize", Message: message}
}

// CheckMoreNodes returns a UserError if the topology of a cluster that exists permits more nodes than its last valid topology, and than
// podCIDR has prefixes for. The cluster cannot change its podCIDR any more, so that fewer nodes are always accepted.
func CheckMoreNodes(kc *v1alpha1.KubernetesCluster) error {
	p, ok := podPrefixOf(kc)
	t, last := kc.Spec.Topology, kc.Status.Accepted
	if !ok || last == nil || kc.Status.Endpoint == "" || p.spare < 0 || !needsNodePrefixes(kc) {
		return nil
	}
	permitted, surge := maxNodes(t), surgeOf(t)
	most := max(p.nodes(), maxNodes(last.Topology)+surgeOf(last.Topology))
	if permitted+surge <= most {
		return nil
	}
	return usererror.Error{Reason: "InvalidTopology", Message: fmt.Sprintf(
		"podCIDR %s, which cannot be changed, has a /%d for each of %s, and spec.topology permits %d and %s: lower %s to %s in all",
		p, p.node, Plural(p.nodes(), "node"), permitted, describeSurge(t), fieldsOfNodes(t), Plural(most-surge, "machine"))}
}

// surgeOf returns how many machines a cluster may have above its topology while others are replaced, which happens in one pool after the other.
func surgeOf(t v1alpha1.ClusterTopology) int {
	surge := 1
	for _, pool := range t.Workers {
		surge = max(surge, limitsOf(pool.Rollout).MaxSurge)
	}
	return surge
}

// describeSurge returns the machines of surgeOf, for a message.
func describeSurge(t v1alpha1.ClusterTopology) string {
	if surge := surgeOf(t); surge > 1 {
		return fmt.Sprintf("%d that replace others (rollout.maxSurge)", surge)
	}
	return "one that replaces another"
}

// fieldsOfNodes returns the fields that limit the number of nodes, for a message.
func fieldsOfNodes(t v1alpha1.ClusterTopology) string {
	if surgeOf(t) > 1 {
		return "maxSurge, or the replicas and maxReplicas"
	}
	return "the replicas and maxReplicas"
}

// needsNodePrefixes reports whether each node needs a prefix of podCIDR, as it does for flannel. Other network plugins may have addresses
// of their own.
func needsNodePrefixes(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Spec.Networking == nil || kc.Spec.Networking.CNI != v1alpha1.CNINone
}

// maxNodes returns how many nodes a topology permits, with the largest numbers of autoscaling.
func maxNodes(t v1alpha1.ClusterTopology) int {
	n := int(t.ControlPlane.Replicas)
	for _, pool := range t.Workers {
		if IsAutoscaled(pool) {
			n += int(pool.Autoscaling.MaxReplicas)
		} else {
			n += int(pool.Replicas)
		}
	}
	return n
}

// SetsNodePrefixes reports whether one of the patches of a ConfigMap of control planes sets whether or how kube-controller-manager divides
// podCIDR among the nodes, which CheckPodPrefix and CheckMoreNodes do not know then.
func SetsNodePrefixes(patches map[string]string) bool {
	for _, patch := range patches {
		if strings.Contains(patch, "node-cidr-mask-size") || strings.Contains(patch, "allocate-node-cidrs") {
			return true
		}
	}
	return false
}

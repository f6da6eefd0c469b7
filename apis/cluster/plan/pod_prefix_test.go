package plan

import (
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// topologyOf returns a topology with control planes, and a pool of workers.
func topologyOf(planes, workers int32) v1alpha1.ClusterTopology {
	return v1alpha1.ClusterTopology{ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: planes}, Workers: []v1alpha1.WorkerPool{{Name: "w", Replicas: workers}}}
}

func TestCheckPodPrefix(t *testing.T) {
	t.Parallel()
	autoscaled := topologyOf(1, 1)
	autoscaled.Workers[0].Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 14}
	surges := topologyOf(1, 2)
	surges.Workers[0].Rollout = &v1alpha1.Rollout{MaxSurge: new(int32(2))}
	larger := *autoscaled.DeepCopy()
	larger.Workers[0].Autoscaling.MaxReplicas = 15
	for name, tc := range map[string]struct {
		reason, cidr string
		topology     v1alpha1.ClusterTopology
		cni          v1alpha1.CNI
		says         string
	}{
		"Default":    {reason: "a /24 of a /16 for 255 nodes and a replacement", topology: topologyOf(5, 250)},
		"DefaultEnd": {reason: "the replacement of a machine has no prefix", topology: topologyOf(5, 251), says: "podCIDR 10.244.0.0/16 has a /24 for each of 256 nodes, and spec.topology permits 256 and one that replaces another: write a prefix of /15 or a larger one into spec.networking.podCIDR, or lower the replicas and maxReplicas"},
		"Small":      {reason: "kube-controller-manager does not start", cidr: "10.1.0.0/25", topology: topologyOf(1, 2), says: "podCIDR 10.1.0.0/25 is smaller than the /24 that Kubernetes gives each node: write a prefix of /22 or a larger one"},
		"SmallOther": {reason: "it does not start for another network plugin either", cidr: "10.1.0.0/25", cni: v1alpha1.CNINone, topology: topologyOf(1, 2), says: "write a prefix of /24 or a larger one"},
		"Other":      {reason: "a network plugin of spec.addons may have addresses of its own", cidr: "10.1.0.0/24", cni: v1alpha1.CNINone, topology: topologyOf(3, 20)},
		"One":        {reason: "one node and its replacement", cidr: "10.1.0.0/23", topology: topologyOf(1, 0)},
		"Single":     {reason: "no replacement could become Ready", cidr: "10.1.0.0/24", topology: topologyOf(1, 0), says: "has a /24 for each of 1 node, and spec.topology permits 1 and one that replaces another: write a prefix of /23 or a larger one"},
		"Autoscaled": {reason: "15 nodes at most", cidr: "10.1.0.0/20", topology: autoscaled},
		"Largest":    {reason: "16 nodes at most", cidr: "10.1.0.0/20", topology: larger, says: "permits 16 and one that replaces another: write a prefix of /19"},
		"Surge":      {reason: "two workers are replaced at the same time", cidr: "10.1.0.0/22", topology: surges, says: "permits 3 and 2 that replace others (rollout.maxSurge): write a prefix of /21 or a larger one into spec.networking.podCIDR, or lower maxSurge, or the replicas and maxReplicas"},
		"IPv6":       {reason: "a /64 of a /56 for 255 nodes", cidr: "fd01::/56", topology: topologyOf(5, 250)},
		"IPv6Small":  {reason: "kube-controller-manager does not start", cidr: "fd01::/112", topology: topologyOf(1, 2), says: "podCIDR fd01::/112 is smaller than the /64 that Kubernetes gives each node: write a prefix of /48 to /62"},
		"IPv6Large":  {reason: "kube-controller-manager refuses more than 16 bits", cidr: "fd01::/47", topology: topologyOf(1, 2), says: "podCIDR fd01::/47 is larger than Kubernetes accepts: write a prefix of /48 to /62"},
		"IPv6Most":   {reason: "16 bits", cidr: "fd01::/48", topology: topologyOf(1, 2)},
		"IPv4Large":  {reason: "IPv4 has no such limit", cidr: "10.0.0.0/7", topology: topologyOf(1, 2)},
	} {
		kc := &v1alpha1.KubernetesCluster{Spec: v1alpha1.KubernetesClusterSpec{Topology: tc.topology, Networking: &v1alpha1.ClusterNetworking{PodCIDR: tc.cidr, CNI: tc.cni}}}
		if err := CheckPodPrefix(kc); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.says)
		}
	}
}

func TestCheckMoreNodes(t *testing.T) {
	t.Parallel()
	const endpoint = "https://10.0.0.5:6443"
	for name, tc := range map[string]struct {
		reason, cidr, endpoint string
		last, wanted, surge    int32
		cni                    v1alpha1.CNI
		says                   string
	}{
		"Within":  {reason: "3 nodes and a replacement", cidr: "10.1.0.0/22", endpoint: endpoint, last: 1, wanted: 2},
		"More":    {reason: "a fourth node has no room beside a replacement", cidr: "10.1.0.0/22", endpoint: endpoint, last: 1, wanted: 3, says: "InvalidTopology: podCIDR 10.1.0.0/22, which cannot be changed, has a /24 for each of 4 nodes, and spec.topology permits 4 and one that replaces another: lower the replicas and maxReplicas to 3 machines in all"},
		"Same":    {reason: "an earlier version has accepted the topology", cidr: "10.1.0.0/22", endpoint: endpoint, last: 5, wanted: 5},
		"Fewer":   {reason: "every step down helps", cidr: "10.1.0.0/22", endpoint: endpoint, last: 6, wanted: 5},
		"Beyond":  {reason: "the message names what the cluster has", cidr: "10.1.0.0/22", endpoint: endpoint, last: 5, wanted: 6, says: "lower the replicas and maxReplicas to 6 machines in all"},
		"Surge":   {reason: "of two machines that are replaced at the same time, one would never be Ready", cidr: "10.1.0.0/22", endpoint: endpoint, last: 2, wanted: 2, surge: 2, says: "permits 3 and 2 that replace others (rollout.maxSurge): lower maxSurge, or the replicas and maxReplicas to 2 machines in all"},
		"New":     {reason: "CheckPodPrefix has a new cluster", cidr: "10.1.0.0/22", last: 1, wanted: 9},
		"Other":   {reason: "another network plugin", cidr: "10.1.0.0/22", endpoint: endpoint, cni: v1alpha1.CNINone, last: 1, wanted: 9},
		"Patched": {reason: "only a patch makes kube-controller-manager start with that", cidr: "10.1.0.0/25", endpoint: endpoint, last: 1, wanted: 9},
	} {
		kc := &v1alpha1.KubernetesCluster{Spec: v1alpha1.KubernetesClusterSpec{Topology: topologyOf(1, tc.wanted), Networking: &v1alpha1.ClusterNetworking{PodCIDR: tc.cidr, CNI: tc.cni}}}
		kc.Spec.Topology.Workers[0].Rollout = &v1alpha1.Rollout{MaxSurge: &tc.surge}
		kc.Status.Endpoint, kc.Status.Accepted = tc.endpoint, &v1alpha1.AcceptedSpec{Topology: topologyOf(1, tc.last)}
		if err := CheckMoreNodes(kc); (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %s: got %v, want %q", name, tc.reason, err, tc.says)
		}
	}
}

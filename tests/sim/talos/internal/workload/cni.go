package workload

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// cniFolder is where a network plug-in writes its configuration. containerd's network is not ready without a file
// there, and the kubelet is not Ready then (NetworkPluginNotReady).
const cniFolder = "/etc/cni/net.d"

// hasNetwork reports whether a network plug-in works on a node: that of Talos, which needs a prefix of the pods for the node, or one whose pod
// runs there and mounts the folder of its configuration, as those of Cilium, Calico and flannel do.
func (c *Cluster) hasNetwork(agent *kubelet) bool {
	if !agent.WithoutCNI {
		if agent.PodCIDR == (PodCIDR{}) {
			return true
		}
		node, ok := c.node(agent.Name)
		return ok && node.Spec.PodCIDR != "" // "node ... pod cidr not assigned": flannel/pkg/subnet/kube/kube.go
	}
	return slices.ContainsFunc(c.pods(), func(pod *corev1.Pod) bool {
		return pod.Spec.NodeName == agent.Name && podReady(pod) && slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool {
			return v.HostPath != nil && v.HostPath.Path == cniFolder
		})
	})
}

// connectNodes makes nodes Ready whose network plug-in has started.
func (c *Cluster) connectNodes() error {
	for _, agent := range c.kubelets {
		if !agent.alive || !agent.started || agent.ready || !c.hasNetwork(agent) {
			continue
		}
		if err := c.report(agent); err != nil {
			return err
		}
	}
	return nil
}

// runs reports whether the kubelet of a pod's node runs the pod. Without a network plug-in it runs pods in the network of
// the host only.
func (c *Cluster) runs(pod *corev1.Pod) bool {
	agent := c.kubelets[pod.Spec.NodeName]
	return agent != nil && agent.alive && (agent.ready || agent.started && pod.Spec.HostNetwork)
}

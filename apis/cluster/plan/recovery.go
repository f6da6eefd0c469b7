package plan

import (
	"github.com/blang/semver/v4"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// RecoveredNode is a node of a cluster that has lost its status, as far as the node answers.
type RecoveredNode struct {
	Machine *v1alpha1.Machine
	// Answers is whether the node has answered. HasEtcd is whether it has data of etcd.
	Answers, HasEtcd bool
	// Talos, APIServer and Kubelet are the versions that the node runs, without v, or empty. Only a control plane has an API server.
	Talos, APIServer, Kubelet string
}

// RecoverStatus writes into an empty status what the nodes of a cluster report, so that their versions stay and no second etcd
// is bootstrapped. It returns the control planes that have to answer before anything is done:
//
//	a control plane has data of etcd   etcd was bootstrapped on it, and the versions are the oldest ones of the control planes
//	none has, and one does not answer  nothing: its name is returned
//	none has, and all answer           etcd is bootstrapped as in a new cluster
func RecoverStatus(s *v1alpha1.KubernetesClusterStatus, nodes []RecoveredNode) (silent []string) {
	var holder *v1alpha1.Machine
	var talos, kubernetes []string
	var found []v1alpha1.NodeStatus
	for _, n := range nodes {
		isControlPlane := PoolOf(n.Machine) == v1alpha1.ControlPlanePool
		switch {
		case !n.Answers && isControlPlane:
			silent = append(silent, n.Machine.Name)
		case n.Answers && isControlPlane:
			talos = append(talos, n.Talos)
		}
		if n.Answers {
			found = append(found, v1alpha1.NodeStatus{Name: n.Machine.Name, Role: n.Machine.Labels[v1alpha1.LabelClusterRole], State: "Configured", Version: "v" + n.Kubelet, TalosVersion: n.Talos})
		}
		if n.HasEtcd {
			kubernetes = append(kubernetes, n.APIServer)
			if holder == nil {
				holder = n.Machine
			}
		}
	}
	if holder == nil && len(silent) > 0 {
		return silent
	}
	s.Nodes, s.TalosVersion, s.Version = found, lowestVersion(talos), lowestVersion(kubernetes)
	if holder != nil {
		s.BootstrapMachine, s.BootstrapUID = holder.Name, holder.UID
	}
	return nil
}

// lowestVersion returns the oldest of some versions, and an empty string if none is one.
func lowestVersion(all []string) string {
	var oldest *semver.Version
	for _, text := range all {
		if v, err := semver.Parse(text); err == nil && (oldest == nil || v.LT(*oldest)) {
			oldest = &v
		}
	}
	if oldest == nil {
		return ""
	}
	return oldest.String()
}

package plan

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestRecoverStatus(t *testing.T) {
	t.Parallel()
	node := func(name, role string, n RecoveredNode) RecoveredNode {
		n.Machine = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{v1alpha1.LabelClusterRole: role}}}
		return n
	}
	controlPlane := func(name string, n RecoveredNode) RecoveredNode { return node(name, v1alpha1.RoleControlPlane, n) }
	empty := RecoveredNode{Answers: true, Talos: "1.12.6", APIServer: "1.33.4", Kubelet: "1.33.4"}
	member := RecoveredNode{Answers: true, HasEtcd: true, Talos: "1.12.6", APIServer: "1.33.4", Kubelet: "1.33.4"}
	newer := RecoveredNode{Answers: true, HasEtcd: true, Talos: "1.13.9", APIServer: "1.34.1", Kubelet: "1.33.4"}
	for name, tc := range map[string]struct {
		reason                     string
		nodes                      []RecoveredNode
		silent                     []string
		machine, talos, kubernetes string
	}{
		"First":      {reason: "the first control plane has etcd", nodes: []RecoveredNode{controlPlane("cp-0", member)}, machine: "cp-0", talos: "1.12.6", kubernetes: "1.33.4"},
		"EmptyFirst": {reason: "the first control plane has lost its data", nodes: []RecoveredNode{controlPlane("cp-0", empty), controlPlane("cp-1", member)}, machine: "cp-1", talos: "1.12.6", kubernetes: "1.33.4"},
		"Silent":     {reason: "the control plane that does not answer may have etcd", nodes: []RecoveredNode{controlPlane("cp-0", empty), controlPlane("cp-1", RecoveredNode{})}, silent: []string{"cp-1"}},
		"OneSilent":  {reason: "another one has etcd", nodes: []RecoveredNode{controlPlane("cp-0", RecoveredNode{}), controlPlane("cp-1", member)}, machine: "cp-1", talos: "1.12.6", kubernetes: "1.33.4"},
		"None":       {reason: "etcd was never bootstrapped", nodes: []RecoveredNode{controlPlane("cp-0", empty), controlPlane("cp-1", empty)}, talos: "1.12.6"},
		"Upgrading":  {reason: "an upgrade was under way", nodes: []RecoveredNode{controlPlane("cp-0", newer), controlPlane("cp-1", member)}, machine: "cp-0", talos: "1.12.6", kubernetes: "1.33.4"},
		"Worker":     {reason: "a worker that does not answer has no etcd", nodes: []RecoveredNode{controlPlane("cp-0", empty), node("a-0", v1alpha1.RoleWorker, RecoveredNode{})}, talos: "1.12.6"},
		"Pinned":     {reason: "a patch names the image of the API server by its digest", nodes: []RecoveredNode{controlPlane("cp-0", RecoveredNode{Answers: true, HasEtcd: true, Talos: "1.12.6"})}, machine: "cp-0", talos: "1.12.6"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s v1alpha1.KubernetesClusterStatus
			silent := RecoverStatus(&s, tc.nodes)
			if !slices.Equal(silent, tc.silent) || s.BootstrapMachine != tc.machine || s.TalosVersion != tc.talos || s.Version != tc.kubernetes {
				t.Errorf("%s: waits for %v, etcd on %q, Talos %q and Kubernetes %q", tc.reason, silent, s.BootstrapMachine, s.TalosVersion, s.Version)
			}
			if (s.BootstrapMachine == "") != (s.BootstrapUID == "") {
				t.Errorf("%s: the machine with etcd has UID %q", tc.reason, s.BootstrapUID)
			}
		})
	}
}

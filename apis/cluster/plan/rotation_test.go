package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// planeNode and workerNode return a node in a state.
func planeNode(name string, edit ...func(*RotatingNode)) RotatingNode {
	return showing(RotatingNode{Name: name, ControlPlane: true}, edit)
}

func workerNode(name string, edit ...func(*RotatingNode)) RotatingNode {
	return showing(RotatingNode{Name: name}, edit)
}

func showing(n RotatingNode, edit []func(*RotatingNode)) RotatingNode {
	n.Answers, n.Ready = true, true
	n.Talos.AcceptsPresent, n.Kubernetes.AcceptsPresent = true, n.ControlPlane
	for _, e := range edit {
		e(&n)
	}
	return n
}

func current(n *RotatingNode) { n.Current = true }
func silent(n *RotatingNode)  { n.Answers = false }
func unready(n *RotatingNode) { n.Ready = false }
func leaving(n *RotatingNode) { n.Leaving = true }
func accepts(n *RotatingNode) {
	n.Current = true
	n.Talos.AcceptsNext, n.Kubernetes.AcceptsNext = true, n.ControlPlane
}

func serves(n *RotatingNode) {
	accepts(n)
	n.Talos.ServesNext, n.Kubernetes.ServesNext = true, n.ControlPlane
}

// before sets the state of a node that has completed a phase and not started the next one.
func before(n *RotatingNode) { n.Current = false }

func refusesKubernetes(n *RotatingNode) {
	serves(n)
	n.Kubernetes.AcceptsPresent = false
}

func refusesTalos(n *RotatingNode) {
	refusesKubernetes(n)
	n.Talos.AcceptsPresent = false
}

func TestDecideRotation(t *testing.T) {
	t.Parallel()
	const (
		accepting, issuing       = v1alpha1.RotationAccepting, v1alpha1.RotationIssuing
		kubernetes, talos, finis = v1alpha1.RotationRemovingKubernetes, v1alpha1.RotationRemovingTalos, v1alpha1.RotationFinishing
	)
	for name, tc := range map[string]struct {
		reason      string
		phase       v1alpha1.RotationPhase
		nodes       []RotatingNode
		credentials bool
		change      []string
		next        v1alpha1.RotationPhase
		waits       string
		done        int
	}{
		"first": {"the change restarts the API server of a control plane, so one at a time changes",
			accepting, []RotatingNode{planeNode("a"), planeNode("b"), workerNode("w")}, true, []string{"a"}, "", "changes node a", 0},
		"credentials first": {"the Secrets trust both authorities before any node uses the next one",
			accepting, []RotatingNode{planeNode("a")}, false, nil, "", "kubeconfig", 0},
		"restarts": {"the next control plane changes once the previous one is back",
			accepting, []RotatingNode{planeNode("a", current), planeNode("b")}, true, nil, "", "node a to accept", 0},
		"not Ready": {"the change restarts the kubelet too",
			accepting, []RotatingNode{planeNode("a", accepts, unready), planeNode("b")}, true, nil, "", "node a to be Ready", 0},
		"second": {"the first control plane is back", accepting, []RotatingNode{planeNode("a", accepts), planeNode("b")}, true, []string{"b"}, "", "", 1},
		"workers": {"a worker accepts what the control plane that certifies it accepts",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v"), workerNode("w", accepts)}, true, []string{"v"}, "", "", 2},
		"workers of a control plane that is under way": {"a worker waits until its control plane is back",
			accepting, []RotatingNode{planeNode("a", accepts), planeNode("b", current), workerNode("v")}, true, nil, "", "node b", 1},
		"a control plane is down": {"no other API server may restart at the same time",
			accepting, []RotatingNode{planeNode("a"), planeNode("b", silent)}, true, nil, "", "node b, which does not answer: start it, or delete Machine b", 0},
		"a worker is down": {"the other workers change, and the phase continues",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", silent), workerNode("w")}, true, []string{"w"}, "", "node v, which does not answer", 1},
		"only a worker that is down is left": {"the next phase would disconnect it",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", silent), workerNode("w", accepts)}, true, nil, "", "delete Machine v", 2},
		"leaves": {"a node in removal is reached with the present authority",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", leaving)}, true, nil, "", "Machine v to be gone", 1},
		"all accept": {"every node accepts the next authorities",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("w", accepts)}, true, nil, issuing, "", 2},
		"config is not enough": {"a worker runs the configuration, but its control plane has not renewed its certificate",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("w", current)}, true, nil, "", "node w to accept", 1},
		"issue": {"the nodes have the configuration of the previous phase", issuing,
			[]RotatingNode{planeNode("a", accepts, before), workerNode("w", accepts, before)}, false, []string{"a"}, "", "", 0},
		"signed by the old one": {"a control plane certified a worker before its own change",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", accepts)}, true, nil, "", "node w to serve", 1},
		"kubeconfig of the old one": {"the next phase would reject it",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, false, nil, "", "kubeconfig of the new authority", 2},
		"all serve": {"the old authorities are not needed any more",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, true, nil, kubernetes, "", 2},
		"kubelets first": {"an API server that rejects their certificates would make them NotReady",
			kubernetes, []RotatingNode{planeNode("a", serves, before), workerNode("v", serves, before), workerNode("w", serves, before)}, true, []string{"v", "w"}, "", "", 0},
		"then API servers": {"all kubelets have new certificates",
			kubernetes, []RotatingNode{planeNode("a", serves, before), workerNode("w", serves)}, true, []string{"a"}, "", "", 1},
		"refused by another": {"a changed API server rejects the kubelet of a control plane, and its own change fixes that",
			kubernetes, []RotatingNode{planeNode("a", refusesKubernetes), planeNode("b", serves, before, unready), workerNode("w", serves)}, true, []string{"b"}, "", "", 2},
		"still admits":    {"the API server has not restarted", kubernetes, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, true, nil, "", "node a to refuse", 1},
		"kubernetes done": {"no API server accepts the old authority", kubernetes, []RotatingNode{planeNode("a", refusesKubernetes), workerNode("w", serves)}, true, nil, talos, "", 2},
		"control planes first": {"control planes decide which clients their workers accept", talos,
			[]RotatingNode{planeNode("a", refusesKubernetes, before), workerNode("w", serves, before)}, true, []string{"a"}, "", "", 0},
		"worker admits": {"the worker has its earlier certificate", talos,
			[]RotatingNode{planeNode("a", refusesTalos), workerNode("w", serves)}, true, nil, "", "node w to refuse", 1},
		"done": {"no node accepts the old authority", talos, []RotatingNode{planeNode("a", refusesTalos), workerNode("w", refusesTalos)}, true, nil, finis, "", 2},
		"a node was set back": {"a late delivery has sent a node the configuration of an earlier phase", talos,
			[]RotatingNode{planeNode("a", refusesTalos), workerNode("w")}, true, []string{"w"}, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := DecideRotation(tc.phase, tc.nodes, tc.credentials)
			if !slices.Equal(got.Change, tc.change) || got.Next != tc.next || got.Done != tc.done || (tc.waits == "") != (got.WaitsFor == "") && tc.waits != "" || !strings.Contains(got.WaitsFor, tc.waits) {
				t.Errorf("%s: got %+v, want to change %v, the phase %q, %d done, and to wait for %q", tc.reason, got, tc.change, tc.next, tc.done, tc.waits)
			}
			if got.Next != "" && (len(got.Change) > 0 || got.WaitsFor != "") {
				t.Errorf("%s: %+v ends a phase that must continue", tc.reason, got)
			}
		})
	}
	late := []RotatingNode{planeNode("a", serves), workerNode("v", accepts), workerNode("w", accepts, unready), workerNode("x", serves)}
	if got := DecideRotation(issuing, late, true); !slices.Equal(got.Renew, []string{"v"}) {
		t.Errorf("certificates are renewed on %v, want on the worker that a control plane certified before its change", got.Renew)
	}
	many := []RotatingNode{planeNode("a", accepts)}
	for range 3 * MaxConcurrentNodes {
		many = append(many, workerNode("w"))
	}
	if got := DecideRotation(accepting, many, true); len(got.Change) != MaxConcurrentNodes {
		t.Errorf("%d workers change at once, want %d", len(got.Change), MaxConcurrentNodes)
	}
}

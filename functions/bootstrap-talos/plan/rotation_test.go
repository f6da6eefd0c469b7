package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Nodes of the tables: a control plane or a worker, and what it shows.
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
func goes(n *RotatingNode)    { n.Leaving = true }
func accepts(n *RotatingNode) {
	n.Current = true
	n.Talos.AcceptsNext, n.Kubernetes.AcceptsNext = true, n.ControlPlane
}

func serves(n *RotatingNode) {
	accepts(n)
	n.Talos.ServesNext, n.Kubernetes.ServesNext = true, n.ControlPlane
}

// before are nodes that have come through a phase, and have not begun the one after it.
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
		"first": {"the API server of a control plane restarts, so that they change one at a time",
			accepting, []RotatingNode{planeNode("a"), planeNode("b"), workerNode("w")}, true, []string{"a"}, "", "changes node a", 0},
		"credentials first": {"the Secrets trust both authorities before any node serves with the next one",
			accepting, []RotatingNode{planeNode("a")}, false, nil, "", "kubeconfig", 0},
		"restarts": {"the next control plane changes when the one before is back",
			accepting, []RotatingNode{planeNode("a", current), planeNode("b")}, true, nil, "", "node a to accept", 0},
		"not Ready": {"its kubelet restarts too",
			accepting, []RotatingNode{planeNode("a", accepts, unready), planeNode("b")}, true, nil, "", "node a to be Ready", 0},
		"second": {"the first one is back", accepting, []RotatingNode{planeNode("a", accepts), planeNode("b")}, true, []string{"b"}, "", "", 1},
		"workers": {"a worker accepts what the control plane that certifies it accepts",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v"), workerNode("w", accepts)}, true, []string{"v"}, "", "", 2},
		"workers of a control plane that is under way": {"not before it is back",
			accepting, []RotatingNode{planeNode("a", accepts), planeNode("b", current), workerNode("v")}, true, nil, "", "node b", 1},
		"a control plane is down": {"no other API server restarts meanwhile",
			accepting, []RotatingNode{planeNode("a"), planeNode("b", silent)}, true, nil, "", "node b, which does not answer: start it, or delete Machine b", 0},
		"a worker is down": {"the others change, and the phase lasts",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", silent), workerNode("w")}, true, []string{"w"}, "", "node v, which does not answer", 1},
		"only a worker that is down is left": {"the next phase would cut it off",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", silent), workerNode("w", accepts)}, true, nil, "", "delete Machine v", 2},
		"leaves": {"it is reached by the present authority for its removal",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("v", goes)}, true, nil, "", "Machine v to be gone", 1},
		"all accept": {"every node accepts the next authorities",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("w", accepts)}, true, nil, issuing, "", 2},
		"config is not enough": {"a worker runs the configuration, and its control plane has not certified it anew",
			accepting, []RotatingNode{planeNode("a", accepts), workerNode("w", current)}, true, nil, "", "node w to accept", 1},
		"issue": {"the nodes have the configuration of the phase before", issuing,
			[]RotatingNode{planeNode("a", accepts, before), workerNode("w", accepts, before)}, false, []string{"a"}, "", "", 0},
		"signed by the old one": {"a worker was certified by a control plane that had not changed",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", accepts)}, true, nil, "", "node w to serve", 1},
		"kubeconfig of the old one": {"the next phase refuses it",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, false, nil, "", "kubeconfig of the new authority", 2},
		"all serve": {"nobody needs the old authorities any more",
			issuing, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, true, nil, kubernetes, "", 2},
		"kubelets first": {"an API server that refuses their certificates would make them NotReady",
			kubernetes, []RotatingNode{planeNode("a", serves, before), workerNode("v", serves, before), workerNode("w", serves, before)}, true, []string{"v", "w"}, "", "", 0},
		"then API servers": {"all kubelets have new certificates",
			kubernetes, []RotatingNode{planeNode("a", serves, before), workerNode("w", serves)}, true, []string{"a"}, "", "", 1},
		"refused by another": {"the kubelet of a control plane is refused by one that has changed, which the change mends",
			kubernetes, []RotatingNode{planeNode("a", refusesKubernetes), planeNode("b", serves, before, unready), workerNode("w", serves)}, true, []string{"b"}, "", "", 2},
		"still admits":    {"the API server has not restarted", kubernetes, []RotatingNode{planeNode("a", serves), workerNode("w", serves)}, true, nil, "", "node a to refuse", 1},
		"kubernetes done": {"no API server admits the old", kubernetes, []RotatingNode{planeNode("a", refusesKubernetes), workerNode("w", serves)}, true, nil, talos, "", 2},
		"control planes first": {"they tell workers whom to accept", talos,
			[]RotatingNode{planeNode("a", refusesKubernetes, before), workerNode("w", serves, before)}, true, []string{"a"}, "", "", 0},
		"worker admits": {"the worker has the certificate of before", talos,
			[]RotatingNode{planeNode("a", refusesTalos), workerNode("w", serves)}, true, nil, "", "node w to refuse", 1},
		"done": {"no node admits the old", talos, []RotatingNode{planeNode("a", refusesTalos), workerNode("w", refusesTalos)}, true, nil, finis, "", 2},
		"a node was set back": {"a delivery that was late gave a node the configuration of a phase before", talos,
			[]RotatingNode{planeNode("a", refusesTalos), workerNode("w")}, true, []string{"w"}, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := DecideRotation(tc.phase, tc.nodes, tc.credentials)
			if !slices.Equal(got.Change, tc.change) || got.Next != tc.next || got.Done != tc.done || (tc.waits == "") != (got.WaitsFor == "") && tc.waits != "" || !strings.Contains(got.WaitsFor, tc.waits) {
				t.Errorf("%s: got %+v, want to change %v, the phase %q, %d done, and to wait for %q", tc.reason, got, tc.change, tc.next, tc.done, tc.waits)
			}
			if got.Next != "" && (len(got.Change) > 0 || got.WaitsFor != "") {
				t.Errorf("%s: %+v ends a phase that lasts", tc.reason, got)
			}
		})
	}
	late := []RotatingNode{planeNode("a", serves), workerNode("v", accepts), workerNode("w", accepts, unready), workerNode("x", serves)}
	if got := DecideRotation(issuing, late, true); !slices.Equal(got.Renew, []string{"v"}) {
		t.Errorf("certificates are renewed on %v, want on the worker that a control plane certified before it changed", got.Renew)
	}
	many := []RotatingNode{planeNode("a", accepts)}
	for range 3 * MaxConcurrentNodes {
		many = append(many, workerNode("w"))
	}
	if got := DecideRotation(accepting, many, true); len(got.Change) != MaxConcurrentNodes {
		t.Errorf("%d workers change at once, want %d", len(got.Change), MaxConcurrentNodes)
	}
}

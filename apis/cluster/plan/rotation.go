package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// WantedRotation returns spec.talos.rotateAuthorities, which starts a rotation when it changes.
func WantedRotation(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Talos == nil {
		return ""
	}
	return kc.Spec.Talos.RotateAuthorities
}

// IsRotating reports whether the status says that a rotation is under way.
func IsRotating(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Authorities != nil && kc.Status.Authorities.Phase != ""
}

// NeedsRotation reports whether a rotation is under way, or requested and not completed.
func NeedsRotation(kc *v1alpha1.KubernetesCluster) bool {
	wanted := WantedRotation(kc)
	return IsRotating(kc) || (wanted != "" && (kc.Status.Authorities == nil || kc.Status.Authorities.Completed != wanted))
}

// RotatingNode is what a node shows of its certificate authorities during a rotation.
type RotatingNode struct {
	Name         string
	ControlPlane bool
	// Leaving is whether the node is being removed, and so is not changed.
	Leaving bool
	// Answers is whether the Talos API of the node answers, Current whether the node runs the
	// authorities of the phase, and Ready whether its kubelet runs and its Node is Ready.
	Answers, Current, Ready bool
	// Talos is what the Talos API shows, and Kubernetes what the API server of a control plane shows.
	Talos, Kubernetes ShownAuthorities
}

// ShownAuthorities is what a server shows by the certificates that it serves and accepts.
type ShownAuthorities struct {
	ServesNext, AcceptsPresent, AcceptsNext bool
}

// isDone reports whether a node has completed a phase: it runs the authorities of the phase, and
// its servers show that.
//
//	Accepting            accept clients of the next authorities
//	Issuing              serve certificates of the next authorities
//	RemovingKubernetes   the API server refuses clients of the present authority
//	RemovingTalos        the Talos API refuses clients of the present authority
func (n RotatingNode) isDone(phase v1alpha1.RotationPhase) bool {
	if !n.Answers || !n.Current || !n.Ready {
		return false
	}
	switch phase {
	case v1alpha1.RotationAccepting:
		return n.Talos.AcceptsNext && (!n.ControlPlane || n.Kubernetes.AcceptsNext)
	case v1alpha1.RotationIssuing:
		return n.Talos.ServesNext && n.Talos.AcceptsNext && (!n.ControlPlane || (n.Kubernetes.ServesNext && n.Kubernetes.AcceptsNext))
	case v1alpha1.RotationRemovingKubernetes:
		return !n.ControlPlane || (n.Kubernetes.AcceptsNext && !n.Kubernetes.AcceptsPresent)
	case v1alpha1.RotationRemovingTalos:
		return n.Talos.AcceptsNext && !n.Talos.AcceptsPresent
	default:
		return true
	}
}

// RotationStep is what a rotation does next.
type RotationStep struct {
	// Change are the nodes that get the authorities of the phase, and Next is the phase that
	// follows, empty while this one lasts.
	Change []string
	Next   v1alpha1.RotationPhase
	// Renew are the workers that have the authorities of the phase and a certificate from a
	// control plane without them. Talos requests another certificate only when the authorities
	// of a worker change.
	Renew []string
	// Done is the number of nodes that have completed the phase, and WaitsFor says what the phase
	// waits for.
	Done     int
	WaitsFor string
}

// PhaseAfter has the phase that follows each phase.
var PhaseAfter = map[v1alpha1.RotationPhase]v1alpha1.RotationPhase{
	v1alpha1.RotationAccepting:          v1alpha1.RotationIssuing,
	v1alpha1.RotationIssuing:            v1alpha1.RotationRemovingKubernetes,
	v1alpha1.RotationRemovingKubernetes: v1alpha1.RotationRemovingTalos,
	v1alpha1.RotationRemovingTalos:      v1alpha1.RotationFinishing,
}

// DecideRotation decides what a rotation does next in a phase. credentials is whether the
// kubeconfig and the talosconfig in the Secrets are accepted in this phase.
//
// Control planes change one at a time, because the API server of each restarts. They come before
// the workers, whose certificates they sign. In RemovingKubernetes the workers come first: a
// kubelet with a certificate of the present authority is refused as soon as one API server no
// longer accepts it.
//
// While a node does not answer, no control plane changes and the phase does not end. Nodes that
// are NotReady are changed too, because the change may make them Ready.
func DecideRotation(phase v1alpha1.RotationPhase, nodes []RotatingNode, credentials bool) RotationStep {
	s := countDone(phase, nodes)
	if !credentials && phase != v1alpha1.RotationIssuing {
		s.WaitsFor = "waiting for a kubeconfig and a talosconfig that this phase accepts"
		return s
	}
	turns := []bool{true, false}
	if phase == v1alpha1.RotationRemovingKubernetes {
		turns = []bool{false, true}
	}
	for _, controlPlanes := range turns {
		group := slices.DeleteFunc(slices.Clone(nodes), func(n RotatingNode) bool { return n.Leaving || n.ControlPlane != controlPlanes })
		if s.Change, s.WaitsFor = changeGroup(phase, group); len(s.Change) > 0 || s.WaitsFor != "" {
			return s
		}
	}
	at := slices.IndexFunc(nodes, func(n RotatingNode) bool { return n.Leaving })
	switch {
	case at >= 0:
		s.WaitsFor = fmt.Sprintf("waiting for Machine %s to be gone", nodes[at].Name)
	case !credentials:
		s.WaitsFor = "waiting for a kubeconfig of the new authority"
	default:
		s.Next = PhaseAfter[phase]
	}
	return s
}

// countDone counts the nodes that have completed a phase, and lists the workers that need a new
// certificate for that.
func countDone(phase v1alpha1.RotationPhase, nodes []RotatingNode) (s RotationStep) {
	for _, n := range nodes {
		switch {
		case n.Leaving:
		case n.isDone(phase):
			s.Done++
		case !n.ControlPlane && n.Answers && n.Current && n.Ready:
			s.Renew = append(s.Renew, n.Name)
		}
	}
	return s
}

// changeGroup decides which nodes of the control plane or of the workers change now, and what
// the other nodes wait for.
func changeGroup(phase v1alpha1.RotationPhase, group []RotatingNode) (change []string, waits string) {
	most, under := MaxConcurrentNodes, 0
	for _, n := range group {
		if n.ControlPlane {
			most = 1
		}
		switch {
		case !n.Answers:
			waits = fmt.Sprintf("waiting for node %s, which does not answer: start it, or delete Machine %s", n.Name, n.Name)
			if n.ControlPlane {
				return nil, waits
			}
		case n.Current && !n.isDone(phase):
			under++
			if waits == "" {
				waits = fmt.Sprintf("waiting for node %s to %s", n.Name, n.awaited(phase))
			}
		}
	}
	for _, n := range group {
		if n.Answers && !n.Current && under < most {
			under++
			change = append(change, n.Name)
		}
	}
	if len(change) > 0 && waits == "" {
		waits = "changes node " + change[0]
	}
	return change, waits
}

// awaited returns what a node that runs the authorities of a phase does not show yet.
func (n RotatingNode) awaited(phase v1alpha1.RotationPhase) string {
	switch {
	case !n.Ready:
		return "be Ready"
	case phase == v1alpha1.RotationIssuing:
		return "serve certificates of the new authorities"
	case phase == v1alpha1.RotationAccepting:
		return "accept certificates of the new authorities"
	default:
		return "refuse certificates of the old authority"
	}
}

// RotationProgress says for each phase what the nodes that have completed it do.
var RotationProgress = map[v1alpha1.RotationPhase]string{
	v1alpha1.RotationAccepting:          "accept the new authorities",
	v1alpha1.RotationIssuing:            "use certificates of the new authorities",
	v1alpha1.RotationRemovingKubernetes: "refuse the old authority of Kubernetes",
	v1alpha1.RotationRemovingTalos:      "refuse the old authority of the Talos API",
}

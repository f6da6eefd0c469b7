package plan

import (
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// WantedRotation is the value of the field that starts a rotation.
func WantedRotation(kc *v1alpha1.KubernetesCluster) string {
	if kc.Spec.Talos == nil {
		return ""
	}
	return kc.Spec.Talos.RotateAuthorities
}

// IsRotating reports whether a rotation is under way, by what the status says.
func IsRotating(kc *v1alpha1.KubernetesCluster) bool {
	return kc.Status.Authorities != nil && kc.Status.Authorities.Phase != ""
}

// NeedsRotation reports whether a rotation is under way, or the spec asks for one that is not
// done.
func NeedsRotation(kc *v1alpha1.KubernetesCluster) bool {
	wanted := WantedRotation(kc)
	return IsRotating(kc) || (wanted != "" && (kc.Status.Authorities == nil || kc.Status.Authorities.Completed != wanted))
}

// RotatingNode is what a node shows of the authorities during a rotation.
type RotatingNode struct {
	Name         string
	ControlPlane bool
	// Leaving is whether its Machine goes, so that the node is left as it is.
	Leaving bool
	// Answers is whether the Talos API of the node answers, current whether the node runs the
	// authorities of the phase, and ready whether its kubelet runs and its Node is Ready.
	Answers, Current, Ready bool
	// Talos is what the Talos API shows, kubernetes the API server of a control plane.
	Talos, Kubernetes ShownAuthorities
}

// ShownAuthorities is what a server shows of authorities by the certificates that it serves
// and accepts.
type ShownAuthorities struct {
	ServesNext, AcceptsPresent, AcceptsNext bool
}

// isDone reports whether a node has come through a phase: it runs the authorities of the phase,
// and its servers show so.
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
	// Change are the nodes that are given the authorities of the phase, and next the phase
	// that follows, empty while this one lasts.
	Change []string
	Next   v1alpha1.RotationPhase
	// Renew are the workers that have the authorities of the phase, and a certificate from a
	// control plane that did not have them. Talos asks for another one only when the
	// authorities of a worker change.
	Renew []string
	// done counts the nodes that have come through the phase, and waits says for what the
	// phase lasts.
	Done     int
	WaitsFor string
}

// PhaseAfter is the order of the phases.
var PhaseAfter = map[v1alpha1.RotationPhase]v1alpha1.RotationPhase{
	v1alpha1.RotationAccepting:          v1alpha1.RotationIssuing,
	v1alpha1.RotationIssuing:            v1alpha1.RotationRemovingKubernetes,
	v1alpha1.RotationRemovingKubernetes: v1alpha1.RotationRemovingTalos,
	v1alpha1.RotationRemovingTalos:      v1alpha1.RotationFinishing,
}

// DecideRotation decides what a rotation does next in a phase. credentials is whether the
// Secrets for people and for etcd-backup serve in this phase.
//
// Control planes change one at a time, since the API server of each restarts. They come before
// the workers, which accept what the control plane names that certifies them. In
// RemovingKubernetes the workers come first: a kubelet with a certificate of the present
// authority is refused as soon as one API server no longer accepts it.
//
// A node that does not answer keeps the control planes as they are, and the phase from its
// end. Others on the way to a phase may be NotReady, and are changed nevertheless: the change
// may be what mends them.
func DecideRotation(phase v1alpha1.RotationPhase, nodes []RotatingNode, credentials bool) RotationStep {
	s := countDone(phase, nodes)
	if !credentials && phase != v1alpha1.RotationIssuing {
		s.WaitsFor = "waits for a kubeconfig and a talosconfig that this phase accepts"
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
		s.WaitsFor = fmt.Sprintf("waits for Machine %s to be gone", nodes[at].Name)
	case !credentials:
		s.WaitsFor = "waits for a kubeconfig of the new authority"
	default:
		s.Next = PhaseAfter[phase]
	}
	return s
}

// countDone counts the nodes that have come through a phase, and lists the workers whose certificates
// keep them from that.
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

// changeGroup decides which nodes of the control plane or of the workers change now, and for
// what the others wait.
func changeGroup(phase v1alpha1.RotationPhase, group []RotatingNode) (change []string, waits string) {
	most, under := MaxConcurrentNodes, 0
	for _, n := range group {
		if n.ControlPlane {
			most = 1
		}
		switch {
		case !n.Answers:
			waits = fmt.Sprintf("waits for node %s, which does not answer: start it, or delete Machine %s", n.Name, n.Name)
			if n.ControlPlane {
				return nil, waits
			}
		case n.Current && !n.isDone(phase):
			under++
			if waits == "" {
				waits = fmt.Sprintf("waits for node %s to %s", n.Name, n.awaited(phase))
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

// awaited says what a node that runs the authorities of a phase does not show yet.
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

// RotationProgress say what the nodes that are done with a phase do.
var RotationProgress = map[v1alpha1.RotationPhase]string{
	v1alpha1.RotationAccepting:          "accept the new authorities",
	v1alpha1.RotationIssuing:            "use certificates of the new authorities",
	v1alpha1.RotationRemovingKubernetes: "refuse the old authority of Kubernetes",
	v1alpha1.RotationRemovingTalos:      "refuse the old authority of the Talos API",
}

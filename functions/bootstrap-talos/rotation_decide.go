package main

import (
	"fmt"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// rotatingNode is what a node shows of the authorities during a rotation.
type rotatingNode struct {
	name         string
	controlPlane bool
	// leaving is whether its Machine goes, so that the node is left as it is.
	leaving bool
	// answers is whether the Talos API of the node answers, current whether the node runs the
	// authorities of the phase, and ready whether its kubelet runs and its Node is Ready.
	answers, current, ready bool
	// talos is what the Talos API shows, kubernetes the API server of a control plane.
	talos, kubernetes shownAuthorities
}

// shownAuthorities is what a server shows of authorities by the certificates that it serves
// and accepts.
type shownAuthorities struct {
	servesNext, acceptsPresent, acceptsNext bool
}

// hasCome reports whether a node has come through a phase: it runs the authorities of the phase,
// and its servers show so.
//
//	Accepting            accept clients of the next authorities
//	Issuing              serve certificates of the next authorities
//	RemovingKubernetes   the API server refuses clients of the present authority
//	RemovingTalos        the Talos API refuses clients of the present authority
func (n rotatingNode) hasCome(phase v1alpha1.RotationPhase) bool {
	if !n.answers || !n.current || !n.ready {
		return false
	}
	switch phase {
	case v1alpha1.RotationAccepting:
		return n.talos.acceptsNext && (!n.controlPlane || n.kubernetes.acceptsNext)
	case v1alpha1.RotationIssuing:
		return n.talos.servesNext && n.talos.acceptsNext && (!n.controlPlane || (n.kubernetes.servesNext && n.kubernetes.acceptsNext))
	case v1alpha1.RotationRemovingKubernetes:
		return !n.controlPlane || (n.kubernetes.acceptsNext && !n.kubernetes.acceptsPresent)
	case v1alpha1.RotationRemovingTalos:
		return n.talos.acceptsNext && !n.talos.acceptsPresent
	default:
		return true
	}
}

// rotationStep is what a rotation does next.
type rotationStep struct {
	// change are the nodes that are given the authorities of the phase, and next the phase
	// that follows, empty while this one lasts.
	change []string
	next   v1alpha1.RotationPhase
	// renew are the workers that have the authorities of the phase, and a certificate from a
	// control plane that did not have them. Talos asks for another one only when the
	// authorities of a worker change.
	renew []string
	// done counts the nodes that have come through the phase, and waits says for what the
	// phase lasts.
	done  int
	waits string
}

// phaseAfter is the order of the phases.
var phaseAfter = map[v1alpha1.RotationPhase]v1alpha1.RotationPhase{
	v1alpha1.RotationAccepting:          v1alpha1.RotationIssuing,
	v1alpha1.RotationIssuing:            v1alpha1.RotationRemovingKubernetes,
	v1alpha1.RotationRemovingKubernetes: v1alpha1.RotationRemovingTalos,
	v1alpha1.RotationRemovingTalos:      v1alpha1.RotationFinishing,
}

// decideRotation decides what a rotation does next in a phase. credentials is whether the
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
func decideRotation(phase v1alpha1.RotationPhase, nodes []rotatingNode, credentials bool) rotationStep {
	s := tally(phase, nodes)
	if !credentials && phase != v1alpha1.RotationIssuing {
		s.waits = "waits for a kubeconfig and a talosconfig that this phase accepts"
		return s
	}
	turns := []bool{true, false}
	if phase == v1alpha1.RotationRemovingKubernetes {
		turns = []bool{false, true}
	}
	for _, controlPlanes := range turns {
		group := slices.DeleteFunc(slices.Clone(nodes), func(n rotatingNode) bool { return n.leaving || n.controlPlane != controlPlanes })
		if s.change, s.waits = changeGroup(phase, group); len(s.change) > 0 || s.waits != "" {
			return s
		}
	}
	at := slices.IndexFunc(nodes, func(n rotatingNode) bool { return n.leaving })
	switch {
	case at >= 0:
		s.waits = fmt.Sprintf("waits for Machine %s to be gone", nodes[at].name)
	case !credentials:
		s.waits = "waits for a kubeconfig of the new authority"
	default:
		s.next = phaseAfter[phase]
	}
	return s
}

// tally counts the nodes that have come through a phase, and lists the workers whose certificates
// keep them from that.
func tally(phase v1alpha1.RotationPhase, nodes []rotatingNode) (s rotationStep) {
	for _, n := range nodes {
		switch {
		case n.leaving:
		case n.hasCome(phase):
			s.done++
		case !n.controlPlane && n.answers && n.current && n.ready:
			s.renew = append(s.renew, n.name)
		}
	}
	return s
}

// changeGroup decides which nodes of the control plane or of the workers change now, and for
// what the others wait.
func changeGroup(phase v1alpha1.RotationPhase, group []rotatingNode) (change []string, waits string) {
	most, under := atOnce, 0
	for _, n := range group {
		if n.controlPlane {
			most = 1
		}
		switch {
		case !n.answers:
			waits = fmt.Sprintf("waits for node %s, which does not answer: start it, or delete Machine %s", n.name, n.name)
			if n.controlPlane {
				return nil, waits
			}
		case n.current && !n.hasCome(phase):
			under++
			if waits == "" {
				waits = fmt.Sprintf("waits for node %s to %s", n.name, n.awaited(phase))
			}
		}
	}
	for _, n := range group {
		if n.answers && !n.current && under < most {
			under++
			change = append(change, n.name)
		}
	}
	if len(change) > 0 && waits == "" {
		waits = "changes node " + change[0]
	}
	return change, waits
}

// awaited says what a node that runs the authorities of a phase does not show yet.
func (n rotatingNode) awaited(phase v1alpha1.RotationPhase) string {
	switch {
	case !n.ready:
		return "be Ready"
	case phase == v1alpha1.RotationIssuing:
		return "serve certificates of the new authorities"
	case phase == v1alpha1.RotationAccepting:
		return "accept certificates of the new authorities"
	default:
		return "refuse certificates of the old authority"
	}
}

// rotationWords say what the nodes that are done with a phase do.
var rotationWords = map[v1alpha1.RotationPhase]string{
	v1alpha1.RotationAccepting:          "accept the new authorities",
	v1alpha1.RotationIssuing:            "use certificates of the new authorities",
	v1alpha1.RotationRemovingKubernetes: "refuse the old authority of Kubernetes",
	v1alpha1.RotationRemovingTalos:      "refuse the old authority of the Talos API",
}

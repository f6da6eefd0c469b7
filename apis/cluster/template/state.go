package template

import (
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// State is where a cluster is in the rollout of its ClusterTemplate.
type State string

// States. A cluster is New until it gets the content of the template for the first time, and Stopped if it keeps
// the rollout from continuing.
const (
	StateNew      State = "New"
	StateCurrent  State = "Current"
	StateUpdating State = "Updating"
	StateStopped  State = "Stopped"
	StateWaiting  State = "Waiting"
	StatePaused   State = "Paused"
)

// States are all states, in the order in which a cluster passes through them.
var States = []State{StateNew, StateWaiting, StatePaused, StateUpdating, StateStopped, StateCurrent}

// StateOf returns where a cluster is in the rollout of a revision of the ClusterTemplate with a name. updating are the
// updates that the status of the ClusterTemplate has recorded:
//
//	no content of the template                           New
//	recorded or another revision, and paused             Paused
//	recorded, Ready with its spec and the revision       Current
//	recorded, Stalled with the revision, or refused      Stopped
//	recorded otherwise                                   Updating
//	another revision                                     Waiting
//	the revision                                         Current
func StateOf(m Member, name, revision string, updating []v1alpha1.TemplateUpdate) State {
	has := m.Revision == revision
	i := slices.IndexFunc(updating, func(u v1alpha1.TemplateUpdate) bool { return u.UID == m.UID && u.Revision == revision })
	isRecorded := i >= 0
	switch {
	case m.Template != name:
		return StateNew
	case m.Held && (isRecorded || !has):
		return StatePaused
	case isRecorded && (has && m.Stalled || !has && updating[i].Message != ""):
		return StateStopped
	case isRecorded && !(has && m.Done):
		return StateUpdating
	case has:
		return StateCurrent
	default:
		return StateWaiting
	}
}

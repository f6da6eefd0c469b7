// Package due decides when an object has to be reconciled although no event asks for
// it. The function resync and the gateway decide alike: the gateway sees what is due and
// asks for a round, and resync sends an event for each object that is due.
package due

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Kinds are the kinds whose objects can be due.
var Kinds = []string{
	"NetworkNamespace", "NetworkConfiguration", "IPAllocation", "Machine", "MachineProvider", "KubernetesCluster", "EtcdBackup", "ClusterTemplate",
}

// idleReasons holds, for each kind that has one, the reason for which an object that is not
// Ready needs no reconcile: nothing happens to it until its spec changes.
var idleReasons = map[string]string{"IPAllocation": "Lapsed", "Machine": "Stopped"}

// Status is the part of an object's status that the decision reads. The status of each
// kind decodes into it.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	NextCheckTime      *metav1.Time       `json:"nextCheckTime"`
	Conditions         []metav1.Condition `json:"conditions"`
	// Provider is the MachineProvider of a Machine, and MachineCount the number of
	// Machines that a MachineProvider has counted.
	Provider     string `json:"provider"`
	MachineCount int    `json:"machineCount"`
}

// Need says when an object is due.
type Need struct {
	// Never is true for an object that only a full round reconciles.
	Never bool
	// At is the time from which on the object is due. It is zero for one that is due now.
	At time.Time
}

// Due reports whether an object with this need is due at a time.
func (n Need) Due(now time.Time) bool { return !n.Never && !now.Before(n.At) }

// Decode reads the status of an object from JSON.
func Decode(raw []byte) (Status, error) {
	var s Status
	if err := json.Unmarshal(raw, &s); err != nil {
		return Status{}, fmt.Errorf("read status: %w", err)
	}
	return s, nil
}

// Decide returns when an object is due:
//
//	annotated with vitistack.io/reconcile    now
//	being deleted                            now
//	spec newer than the status               now
//	status.nextCheckTime                     then
//	Ready                                    never
//	not Ready, with the idle reason of the kind  never
//	not Ready                                now
func Decide(kind string, meta *metav1.ObjectMeta, s Status) Need {
	_, requested := meta.Annotations[v1alpha1.AnnotationReconcile]
	ready := s.Ready()
	switch {
	case requested || meta.DeletionTimestamp != nil || s.ObservedGeneration < meta.Generation:
		return Need{}
	case s.NextCheckTime != nil:
		return Need{At: s.NextCheckTime.Time}
	case ready.Status == metav1.ConditionTrue:
		return Need{Never: true}
	default:
		return Need{Never: idleReasons[kind] != "" && ready.Reason == idleReasons[kind]}
	}
}

// Ready returns the condition Ready, or an empty one.
func (s Status) Ready() metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == v1alpha1.ConditionReady {
			return c
		}
	}
	return metav1.Condition{}
}

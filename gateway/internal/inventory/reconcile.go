package inventory

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/due"
)

// Reconcile is when an object is due, and what it is due for.
type Reconcile struct {
	due.Need
	// Provider is the MachineProvider that counts a Machine, and Counted the number of
	// Machines that a MachineProvider has counted.
	Provider string
	Counted  int
}

// reconcileOf returns when an object is due, or nil for a kind that no function
// reconciles.
func reconcileOf(o *Object, m *metav1.ObjectMeta) (*Reconcile, error) {
	if !strings.HasPrefix(o.APIVersion, vitistack) {
		return nil, nil
	}
	status, err := due.Decode(o.Status)
	if err != nil {
		return nil, err
	}
	return &Reconcile{Need: due.Decide(string(o.Kind), m, status), Provider: status.Provider, Counted: status.MachineCount}, nil
}

// Due returns the objects, in the order of the layers, that are due at a time and were last written more than grace before, so that the event
// of their last write has been delivered. A MachineProvider is due too if it has miscounted Machines older than grace: newer ones are still
// being created, and an inspection of their hypervisor would delay them.
func (s *Store) Due(now time.Time, grace time.Duration) (found []*Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	machines, settled := map[string]int{}, map[string]int{}
	for _, m := range s.objects.byKind[KindMachine] {
		machines[m.Reconcile.Provider]++
		if now.Sub(m.Created) >= grace {
			settled[m.Reconcile.Provider]++
		}
	}
	for _, name := range due.Kinds {
		for _, o := range s.objects.byKind[Kind(name)] {
			if now.Sub(o.Updated) < grace {
				continue
			}
			isMiscounted := o.Kind == KindProvider && (o.Reconcile.Counted < settled[o.Name] || o.Reconcile.Counted > machines[o.Name])
			if o.Reconcile.Due(now) || isMiscounted {
				found = append(found, o)
			}
		}
	}
	return found
}

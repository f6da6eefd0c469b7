package inventory

import (
	"maps"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Kinds of dependencies, as /health and the metrics name them.
const (
	DependencyDatabase    = "database"
	DependencyCache       = "cache"
	DependencyBroker      = "broker"
	DependencyEventSource = "eventSource"
	DependencyResync      = "resync"
)

// Unknown is the status of a dependency that the gateway has not observed for long enough.
const Unknown = "unknown"

// Dependency is a part of the installation that the whole stack depends on. In JSON it is part of the summary and of
// /health/dependencies.
type Dependency struct {
	Kind string `json:"kind"`
	// Name is the object, if there are several of the kind.
	Name string `json:"name,omitempty"`
	// Status is Healthy, Unhealthy or Unknown.
	Status  string `json:"status"`
	Owner   string `json:"owner"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when Status last changed.
	Since time.Time `json:"since,omitzero"`
	// LastSeen is the time of the last heartbeat, to the minute while the dependency is healthy.
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// Lease is when a Lease was last renewed.
type Lease struct {
	Renewed time.Time
}

func fromLease(l *coordinationv1.Lease) (*Object, error) {
	facts := &Lease{}
	if l.Spec.RenewTime != nil {
		facts.Renewed = l.Spec.RenewTime.UTC()
	}
	o, err := newObject(KindLease, "coordination.k8s.io/v1", &l.ObjectMeta, facts, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Annotations = nil
	return o, nil
}

// SetDependencies stores the dependencies that one observer reports. A dependency whose status has not changed keeps its Since, and its
// LastSeen for a minute, so that a heartbeat is no news to every client of the stream.
func (s *Store) SetDependencies(observer string, all []Dependency) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.dependencies[observer]
	next := slices.Clone(all)
	for i := range next {
		at := slices.IndexFunc(before, func(d Dependency) bool { return d.Kind == next[i].Kind && d.Name == next[i].Name })
		if at < 0 || before[at].Status != next[i].Status {
			continue
		}
		next[i].Since = before[at].Since
		if next[i].LastSeen.Sub(before[at].LastSeen) < seenInterval {
			next[i].LastSeen = before[at].LastSeen
		}
	}
	if !slices.Equal(before, next) {
		s.dependencies[observer] = next
		s.signal()
	}
}

// allDependencies returns the dependencies of all observers, in the order of the observers' names.
func (s *Store) allDependencies() (all []Dependency) {
	for _, observer := range slices.Sorted(maps.Keys(s.dependencies)) {
		all = append(all, s.dependencies[observer]...)
	}
	return all
}

// Dependencies returns what the whole stack depends on, as far as it is observed.
func (s *Snapshot) Dependencies() []Dependency { return s.dependencies }

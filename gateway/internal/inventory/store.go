package inventory

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Store holds the current objects and commits snapshots of them. Put, Remove and Replace are safe for concurrent use; calls of Commit
// must not overlap.
type Store struct {
	epoch   string
	current atomic.Pointer[Snapshot]

	mu      sync.Mutex
	objects *objectSet
	changes *changeSet
	// changed receives a value after a change since the last commit.
	changed chan struct{}
	probes  map[string]Probe
	// reachability is by the UID of clusters.
	reachability map[string]NodeReachability
	// dependencies are by what observes them.
	dependencies map[string][]Dependency
}

// NewStore returns an empty store. epoch identifies its snapshots among those of other processes.
func NewStore(epoch string) *Store {
	objects := newObjectSet()
	s := &Store{
		epoch:   epoch,
		objects: objects, changes: newChangeSet(objects), changed: make(chan struct{}, 1),
		probes: map[string]Probe{}, dependencies: map[string][]Dependency{},
	}
	first := &Snapshot{Epoch: epoch, collections: map[Topic]*Collection{}}
	for _, t := range Topics {
		first.collections[t] = &Collection{Topic: t, Tally: tally(nil)}
	}
	first.finish()
	s.current.Store(first)
	return s
}

// Current returns the snapshot of the last commit.
func (s *Store) Current() *Snapshot { return s.current.Load() }

// Objects returns the objects of a kind, in no order.
func (s *Store) Objects(kind Kind) []*Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects.list(kind)
}

// Changed returns a channel that receives a value after a change since the last commit.
func (s *Store) Changed() <-chan struct{} { return s.changed }

// Put stores an object. The same UID and resourceVersion again change nothing.
func (s *Store) Put(o *Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.put(o) {
		s.signal()
	}
}

// Remove removes an object.
func (s *Store) Remove(kind Kind, key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.remove(kind, key) {
		s.signal()
	}
}

// Replace replaces all objects of a kind.
func (s *Store) Replace(kind Kind, objects []*Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := make(map[Key]struct{}, len(objects))
	changed := false
	for _, o := range objects {
		kept[o.Key] = struct{}{}
		changed = s.put(o) || changed
	}
	for key := range s.objects.byKind[kind] {
		if _, ok := kept[key]; !ok {
			changed = s.remove(kind, key) || changed
		}
	}
	if changed {
		s.signal()
	}
}

// SetProbe stores the response of an operator's own endpoint.
func (s *Store) SetProbe(operator string, p Probe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probes[operator] = p
	s.signal()
}

// seenInterval is how exact LastSeen is. More would be news to every client of the stream each time.
const seenInterval = time.Minute

// SetNodeReachability stores what the probes of a round at a time have shown, by the UID of clusters.
func (s *Store) SetNodeReachability(found map[string]NodeReachability, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]NodeReachability, len(found))
	for uid, r := range found {
		r.Since = now.UTC()
		r.LastSeen = r.LastSeen.UTC()
		old, known := s.reachability[uid]
		if known && old.Answering == r.Answering && old.Silent == r.Silent {
			r.Since = old.Since
			if r.LastSeen.Sub(old.LastSeen) < seenInterval {
				r.LastSeen = old.LastSeen
			}
		}
		next[uid] = r
	}
	if !maps.Equal(s.reachability, next) {
		s.reachability = next
		s.signal()
	}
}

func (s *Store) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// put stores an object, and reports whether it has changed.
func (s *Store) put(o *Object) bool {
	old := s.objects.byKind[o.Kind][o.Key]
	if old != nil && old.UID == o.UID && old.ResourceVersion == o.ResourceVersion {
		return false
	}
	s.changes.remember(o.Kind, o.Key, old)
	s.objects.put(o)
	return true
}

// remove removes an object, and reports whether it existed.
func (s *Store) remove(kind Kind, key Key) bool {
	old := s.objects.byKind[kind][key]
	if old == nil {
		return false
	}
	s.changes.remember(kind, key, old)
	s.objects.remove(kind, key)
	return true
}

// Commit returns a snapshot of the current objects, and the changes since the last one. Without changes it returns the last snapshot.
func (s *Store) Commit(now time.Time) (*Snapshot, []Change) {
	s.mu.Lock()
	items := s.changes.takeItems()
	probes, reachability := maps.Clone(s.probes), s.reachability // SetNodeReachability replaces the map
	functions := s.objects.list(KindFunction)
	providers := s.objects.list(KindProvider)
	orphans, orphanCounts := orphanGroups(providers, s.objects.list(KindReport))
	servers := serversOf(s.objects.list(KindBackends), providers)
	dependencies := s.allDependencies()
	backups := backupStates(s.objects.list(KindBackup))
	s.mu.Unlock()

	last := s.Current()
	next := &Snapshot{Epoch: s.epoch, Version: last.Version + 1, Time: now, collections: map[Topic]*Collection{}, functions: functionsOf(functions), orphans: orphans, orphanCounts: orphanCounts, servers: servers, backups: backups, dependencies: dependencies}
	var changes []Change
	replaced := !slices.Equal(last.functions, next.functions) || !slices.Equal(last.orphans, next.orphans) || !maps.Equal(last.orphanCounts, next.orphanCounts)
	step := func(topic Topic, changed map[string]*Item) {
		c, change := last.collections[topic].apply(changed, next.Version)
		next.collections[topic] = c
		replaced = replaced || c != last.collections[topic]
		if !change.Empty() {
			changes = append(changes, change)
		}
	}
	for _, topic := range Topics {
		if topic != TopicOperators {
			step(topic, items[topic])
		}
	}
	all := operators(next, reachability, functions, probes)
	step(TopicOperators, operatorChanges(last.collections[TopicOperators], all, now))
	next.addTalos(all)
	if !replaced && slices.Equal(last.servers, next.servers) && slices.Equal(last.backups, next.backups) && slices.Equal(last.dependencies, next.dependencies) {
		return last, nil
	}
	next.finish()
	s.current.Store(next)
	return next, changes
}

package inventory

import (
	"maps"
	"time"
)

// Reach is what the gateway's own probes have shown of the addresses of a cluster. Only addresses that have answered once count,
// because others may be out of the gateway's reach.
type Reach struct {
	// Answering and Silent count the addresses.
	Answering, Silent int
	// LastSeen is when one of them last answered, and Since is when the counts last changed.
	LastSeen, Since time.Time
}

// isSilent reports whether no address answers any more.
func (r Reach) isSilent() bool { return r.Silent > 0 && r.Answering == 0 }

// seenInterval is how exact LastSeen is. More would be news to every client of the stream each time.
const seenInterval = time.Minute

// SetReach stores what the probes of a round at a time have shown, by the UID of clusters.
func (s *Store) SetReach(found map[string]Reach, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := make(map[string]Reach, len(found))
	for uid, r := range found {
		r.Since = now.UTC()
		r.LastSeen = r.LastSeen.UTC()
		old, known := s.reach[uid]
		if known && old.Answering == r.Answering && old.Silent == r.Silent {
			r.Since = old.Since
			if r.LastSeen.Sub(old.LastSeen) < seenInterval {
				r.LastSeen = old.LastSeen
			}
		}
		next[uid] = r
	}
	if !maps.Equal(s.reach, next) {
		s.reach = next
		s.signal()
	}
}

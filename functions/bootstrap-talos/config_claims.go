package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/plan"
)

// claimTime is how long a Machine stays claimed: long enough for create-vm to find its configuration and to say so in its status.
const claimTime = 5 * time.Second

// configClaims has the Machines that get their configurations from a delivery of this process. The events of a new cluster's Machines arrive
// together, and each of them, and the reconcile of the cluster, finds Machines without a configuration. It only saves requests: another
// process may provide the same configuration.
type configClaims struct {
	now     func() time.Time
	mu      sync.Mutex
	claimed map[types.UID]time.Time
}

func newConfigClaims(now func() time.Time) *configClaims {
	return &configClaims{now: now, claimed: map[types.UID]time.Time{}}
}

// claim returns the members whose configurations the caller provides: all whose Machines no other delivery has claimed. The caller releases those
// that it could not provide.
func (s *configClaims) claim(c *cluster, members []plan.Member) []plan.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	maps.DeleteFunc(s.claimed, func(_ types.UID, since time.Time) bool { return now.Sub(since) >= claimTime })
	return slices.DeleteFunc(slices.Clone(members), func(m plan.Member) bool {
		uid := c.observed.machines[m.Name].GetUID()
		_, isClaimed := s.claimed[uid]
		if !isClaimed {
			s.claimed[uid] = now
		}
		return isClaimed
	})
}

// release gives up the claim of a Machine without a configuration.
func (s *configClaims) release(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claimed, uid)
}

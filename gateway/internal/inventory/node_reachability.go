package inventory

import "time"

// NodeReachability is what the gateway's own probes have shown of the addresses of a cluster. Only addresses that have answered once count,
// because others may be out of the gateway's reach.
type NodeReachability struct {
	// Answering and Silent count the addresses.
	Answering, Silent int
	// LastSeen is when one of them last answered, and Since is when the counts last changed.
	LastSeen, Since time.Time
}

// isSilent reports whether no address answers any more.
func (r NodeReachability) isSilent() bool { return r.Silent > 0 && r.Answering == 0 }

package cause

import "time"

// MaxWait is how long an object may wait before the wait counts as a problem.
const MaxWait = 3 * time.Minute

// IsStuck reports whether an object that is not Ready needs attention at a time: a person has to act, or the object has
// waited for longer than MaxWait. In contrast, IsStalled is about a reason alone, whatever time has passed. The page decides
// the same in problems.js.
func IsStuck(l Link, now time.Time) bool {
	return l.Owner != NoAction || isOverdue(l, now)
}

// isOverdue reports whether an object has waited for longer than MaxWait. A rollout of a ClusterTemplate may last for
// days.
func isOverdue(l Link, now time.Time) bool {
	return l.Kind != kindTemplate && now.Sub(l.Since) > MaxWait
}

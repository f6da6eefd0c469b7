// Package backendhealth publishes whether the servers of backends answer. Functions find that out by their own requests, and a
// function that has scaled to zero cannot be asked, so the last findings are in the ConfigMap backends.
package backendhealth

import (
	"time"

	"github.com/vitistack/stack/apis/backend"
)

// seenInterval is how often the time at which a server last answered is written.
const seenInterval = time.Minute

// Finding is what one request has shown of a server.
type Finding struct {
	Health backend.Health
	// Reason and Message say why the server is not healthy, in the words of a condition.
	Reason, Message string
	// Inspection is whether the request has inspected the server as a whole. Its success ends what any other request has shown.
	Inspection bool
	// Began and Ended are when the request was sent, and when it was answered or failed.
	Began, Ended time.Time
}

// Healthy returns the Finding of a server that has answered.
func Healthy(began, ended time.Time) Finding {
	return Finding{Health: backend.Healthy, Began: began, Ended: ended}
}

// FindingOf returns the Finding of a request that failed with a reason. It is false for a reason that says nothing about the
// backend.
func FindingOf(reason, message string, began, ended time.Time) (Finding, bool) {
	health, ok := backend.OutageOf(reason)
	return Finding{Health: health, Reason: reason, Message: message, Began: began, Ended: ended}, ok
}

// answered reports whether the server has answered, correctly or not.
func (f Finding) answered() bool { return f.Health != backend.Unreachable }

// decide returns the Report of a server after a Finding, and whether it has to be written:
//
//	nothing is known                                  yes
//	the server has answered since the request began   no, because the request was a slow or an old one
//	another health or reason                          yes
//	the same, answered, last seen a minute ago        yes, for the time alone
//	the same                                          no
//
// Report.Since stays while the health stays.
func decide(held backend.Report, known bool, f Finding) (backend.Report, bool) {
	ended := f.Ended.UTC().Truncate(time.Second)
	next := backend.Report{Health: f.Health, Reason: f.Reason, Message: f.Message, Since: ended, LastSeen: held.LastSeen}
	if f.answered() && ended.After(held.LastSeen) {
		next.LastSeen = ended
	}
	switch {
	case !known:
		return next, true
	case f.Health != backend.Healthy && held.Health == backend.Healthy && held.LastSeen.After(f.Began):
		return held, false
	case held.Health != f.Health:
		return next, true
	}
	next.Since = held.Since
	return next, held.Reason != f.Reason || next.LastSeen.Sub(held.LastSeen) >= seenInterval
}

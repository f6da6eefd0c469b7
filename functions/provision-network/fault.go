package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/vitistack/stack/functions/internal/wire"
)

// refused says that there will be no segment until the owner of the network changes
// its spec, or another network makes room. reason is one word, message says what
// to change.
type refused struct{ reason, message string }

func (r refused) Error() string { return r.reason + ": " + r.message }

// fault says why a source gives no segment, or does not take it back, now. A
// segment that has been provided before stays.
type fault struct {
	// reason is one word, message says what is waited for, or what to change.
	reason, message string
	// final is whether somebody has to change something. Otherwise waiting helps.
	final bool
	// after is how long to wait at least before the source is asked again.
	after time.Duration
	// longest is how long to wait at most where the source does not ask for more, and
	// longestWait where it is zero.
	longest time.Duration
}

func (f fault) Error() string { return f.reason + ": " + f.message }

// working says that a source is at work, and has to be asked again to learn the end
// of it. That is not put off by what was wrong before the source took the work.
func working(message string, after time.Duration) fault {
	return fault{reason: reasonWorking, message: message, after: after, longest: longestWork}
}

// backend is how people know a source that is a server.
type backend struct {
	// name is for sentences, for example NetBox.
	name string
	// url and access say where to correct either.
	url, access string
}

// faultOf turns what went wrong with a request to a backend into a fault:
//
//	Unreachable, Timeout, ServerFault  SourceUnavailable       is asked again, less and less often
//	Throttled                          SourceThrottled         is asked again when it says
//	Unauthorized                       SourceUnauthorized      correct the credentials
//	Untrusted                          SourceUntrusted         correct the certificates
//	NotFound, Redirected               SourceNotFound          correct the address
//	Conflict                           SourceConflict          what the source says
//	Rejected                           SourceRejected          what the source says
//	Malformed                          SourceUnexpectedAnswer  there is something else at the address
func faultOf(b backend, err error) error {
	var e *wire.Error
	if !errors.As(err, &e) {
		return err
	}
	said := ""
	if detail := e.Detail(); detail != "" {
		said = ": " + detail
	}
	switch e.Kind {
	case wire.Unreachable, wire.Timeout, wire.ServerFault:
		return fault{reason: "SourceUnavailable", message: fmt.Sprintf("%s is not available: %s", b.name, e), after: e.RetryAfter}
	case wire.Throttled:
		return fault{reason: "SourceThrottled", message: b.name + " has too much to do, and is asked again later", after: cmp.Or(e.RetryAfter, throttled)}
	case wire.Unauthorized:
		return final("SourceUnauthorized", "%s does not let this installation in (%s): correct %s", b.name, e, b.access)
	case wire.Untrusted:
		return final("SourceUntrusted", "%s: correct the certificates of %s, or %s", e, b.name, b.url)
	case wire.NotAllowed:
		return final("SourceNotAllowed", "%s", e)
	case wire.NotFound, wire.Redirected:
		return final("SourceNotFound", "%s is not there (%s): correct %s", b.name, e, b.url)
	case wire.Conflict:
		return final("SourceConflict", "%s has made another segment for this network, or is in conflict about it%s", b.name, said)
	case wire.Rejected:
		return final("SourceRejected", "%s does not make such a segment%s", b.name, cmp.Or(said, " ("+e.Error()+")"))
	default:
		return unexpected(b, e.Error())
	}
}

func final(reason, format string, args ...any) fault {
	return fault{reason: reason, message: fmt.Sprintf(format, args...), final: true}
}

// unexpected says that a backend's answer is not one to build on.
func unexpected(b backend, what string) fault {
	return final("SourceUnexpectedAnswer", "%s gives an answer that cannot be right: %s", b.name, what)
}

const (
	reasonAsking  = "Asking"
	reasonWorking = "Provisioning"
	// throttled is for a source that has too much to do and does not say for how long.
	throttled = 30 * time.Second
	// firstWait and longestWait bound the time between two tries. In between they
	// are as far apart as the first try is ago, so that nothing has to be counted.
	firstWait   = time.Second
	longestWait = 5 * time.Minute
	// longestWork is how late the end of a source's work is seen.
	longestWork = 30 * time.Second
	// soon is what the broker's redeliveries last for; what is later is resync's.
	soon = 15 * time.Second
)

// wait is how long to leave a source alone that gave f and has been giving no
// segment for a while.
func (f fault) wait(lasting time.Duration) time.Duration {
	if f.final {
		return longestWait
	}
	return min(max(f.after, firstWait, lasting), max(f.after, cmp.Or(f.longest, longestWait)))
}

package provider

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// Reasons of Errors that more than one package uses.
const (
	// ReasonWorking is the reason while a provider creates or removes a segment.
	ReasonWorking = "Provisioning"
	// ReasonGone is the reason of a network whose provider no longer has its segment.
	ReasonGone = "SegmentGone"
	// ReasonFailed is the reason of a provider that gives no reason of its own.
	ReasonFailed = "SourceFailed"
)

const (
	// minDelay is the shortest delay before a provider is asked again. The delay grows to as
	// long as the network has been failing, so that no counter is needed.
	minDelay = time.Second
	// MaxDelay bounds that delay.
	MaxDelay = 5 * time.Minute
	// MaxWorkDelay bounds how late the end of a provider's work is noticed.
	MaxWorkDelay = 30 * time.Second
	// throttledDelay is for a provider that throttles and does not say for how long.
	throttledDelay = 30 * time.Second
)

// reasonUnexpectedAnswer is the reason for an invalid response.
const reasonUnexpectedAnswer = "SourceUnexpectedAnswer"

// Error says why a provider has no segment, or does not release one, now. A segment that
// was provided before stays.
type Error struct {
	// Reason is one word in CamelCase, for a condition. Message says what is waited for, or
	// what to change.
	Reason, Message string
	// Permanent is whether the error stays until a user or the platform team changes something.
	Permanent bool
	// RetryAfter is the shortest delay before the provider is asked again.
	RetryAfter time.Duration
	// MaxDelay is the longest delay unless RetryAfter is longer. Zero means the package's
	// MaxDelay.
	MaxDelay time.Duration
	// Outdated is whether the provider has a segment of an earlier request of the network, which has to be released before it can
	// provide the requested one.
	Outdated bool
}

func (e Error) Error() string { return e.Reason + ": " + e.Message }

// Delay returns how long to wait before the provider is asked again, for a network that
// has been failing for a duration. An invalid response may be the only one, so the provider is asked
// again soon at first, and ever more rarely. Refused credentials are not sent again soon, because
// that can lock an account.
func (e Error) Delay(failing time.Duration) time.Duration {
	if e.Permanent && e.Reason != reasonUnexpectedAnswer {
		return MaxDelay
	}
	return min(max(e.RetryAfter, minDelay, failing), max(e.RetryAfter, cmp.Or(e.MaxDelay, MaxDelay)))
}

// PermanentError returns an Error that stays until a user or the platform team changes something.
func PermanentError(reason, format string, args ...any) Error {
	return Error{Reason: reason, Message: fmt.Sprintf(format, args...), Permanent: true}
}

// Working returns the Error of a provider that has accepted the work and has to be asked
// again for its result. Failures before that do not lengthen its delay.
func Working(message string, after time.Duration) Error {
	return Error{Reason: ReasonWorking, Message: message, RetryAfter: after, MaxDelay: MaxWorkDelay}
}

// OutdatedError returns the Error of a provider that has a segment of an earlier request of a network. A late request for an earlier
// spec gets it too, so the segment is only released after a look at the present spec.
func OutdatedError(name string) Error {
	e := Working(name+" has removed the segment of the earlier spec; requesting another", time.Second)
	e.Outdated = true
	return e
}

// Backend is how messages name a provider, and what to correct to reach it.
type Backend struct {
	// Name is for sentences, for example NetBox.
	Name string
	// URL and Access name the settings of its address and of its credentials.
	URL, Access string
}

// RequestError returns the Error for a failed request to the backend:
//
//	Unreachable, Timeout, ServerFault  SourceUnavailable       retried with a growing delay
//	Throttled                          SourceThrottled         retried after the delay that the backend asks for
//	Unauthorized                       SourceUnauthorized      correct the credentials
//	Untrusted                          SourceUntrusted         correct the certificates
//	NotAllowed                         SourceNotAllowed        correct ALLOWED_ENDPOINTS
//	NotFound, Redirected               SourceNotFound          correct the address
//	Conflict                           SourceConflict          see the backend's message
//	Rejected                           SourceRejected          see the backend's message
//	Malformed                          SourceUnexpectedAnswer  something else answers at the address
//
// It returns any other error unchanged.
func (b Backend) RequestError(err error) error {
	var e *httpclient.Error
	if !errors.As(err, &e) {
		return err
	}
	said := ""
	if detail := e.Detail(); detail != "" {
		said = ": " + detail
	}
	switch e.Kind {
	case httpclient.Unreachable, httpclient.Timeout, httpclient.ServerFault:
		return Error{Reason: "SourceUnavailable", Message: fmt.Sprintf("%s is not available: %s", b.Name, e), RetryAfter: e.RetryAfter}
	case httpclient.Throttled:
		return Error{Reason: "SourceThrottled", Message: b.Name + " throttles requests; retrying later", RetryAfter: cmp.Or(e.RetryAfter, throttledDelay)}
	case httpclient.Unauthorized:
		return PermanentError("SourceUnauthorized", "%s refuses the credentials (%s): correct %s", b.Name, e, b.Access)
	case httpclient.Untrusted:
		return PermanentError("SourceUntrusted", "%s: correct the certificates of %s, or %s", e, b.Name, b.URL)
	case httpclient.NotAllowed:
		return PermanentError("SourceNotAllowed", "%s", e)
	case httpclient.NotFound, httpclient.Redirected:
		return PermanentError("SourceNotFound", "%s was not found at the address (%s): correct %s", b.Name, e, b.URL)
	case httpclient.Conflict:
		return PermanentError("SourceConflict", "%s reports a conflict about the segment of this network%s", b.Name, said)
	case httpclient.Rejected:
		return PermanentError("SourceRejected", "%s rejected the request%s", b.Name, cmp.Or(said, " ("+e.Error()+")"))
	default:
		return b.InvalidResponse(e.Error())
	}
}

// IsKind reports whether err is a failed request of a kind.
func IsKind(err error, kind httpclient.Kind) bool {
	var e *httpclient.Error
	return errors.As(err, &e) && e.Kind == kind
}

// IsNotFound reports whether a backend says that an object does not exist. A 404 counts only
// with a detail, as APIs send it, because a proxy that does not know the address answers
// 404 as well.
func IsNotFound(err error) bool {
	var e *httpclient.Error
	return errors.As(err, &e) && e.Kind == httpclient.NotFound && e.Detail() != ""
}

// InvalidResponse returns the Error for a response that cannot be used.
func (b Backend) InvalidResponse(problem string) Error {
	return PermanentError(reasonUnexpectedAnswer, "invalid response from %s: %s", b.Name, problem)
}

// SegmentGone returns the Error for a part of the segment of a network that the backend no longer
// has. uid is the UID that the backend knows the network by. Nothing is created in its place, because that would be another segment.
func (b Backend) SegmentGone(uid types.UID, part string) Error {
	return PermanentError(ReasonGone, "%s no longer has the %s of this network. The network keeps it, because machines may use it: restore it there with the UID %s, or delete this network and create it again",
		b.Name, part, uid)
}

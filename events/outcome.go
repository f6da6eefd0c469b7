package events

import (
	"errors"
	"net/http"
)

// Permanent marks an error that a redelivery cannot resolve. The Broker sends the event to
// the dead letter sink. Write a problem of the object itself into its conditions too.
// After any other error the Broker redelivers the event.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent reports whether err, or an error that it wraps, is Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Status codes of the outcomes: done, with or without an event in reply, retry, and failed. Knative redelivers on 404, 408, 409, 429 and 5xx, so
// the code of a permanent error must be none of them.
const (
	statusDone      = http.StatusAccepted
	statusReply     = http.StatusOK
	statusTransient = http.StatusServiceUnavailable
	statusPermanent = http.StatusUnprocessableEntity
)

// outcome returns the name and the status code of a delivery's outcome.
func outcome(err error) (string, int) {
	switch {
	case err == nil:
		return "done", statusDone
	case IsPermanent(err):
		return "failed", statusPermanent
	default:
		return "retry", statusTransient
	}
}

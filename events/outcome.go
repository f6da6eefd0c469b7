package events

import (
	"errors"
	"net/http"
)

// Permanent marks an error that no redelivery mends. The delivery ends in the
// dead letters; a fault of the object itself also belongs into its conditions.
// Every other error is transient, and the broker delivers again.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return permanent{err}
}

// IsPermanent tells whether err, or an error that it wraps, is Permanent.
func IsPermanent(err error) bool {
	var p permanent
	return errors.As(err, &p)
}

type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// Status codes by which a function answers its three outcomes. Knative delivers
// again on 404, 408, 409, 429 and 5xx, so a permanent fault must be none of them.
const (
	statusDone      = http.StatusAccepted
	statusReply     = http.StatusOK
	statusTransient = http.StatusServiceUnavailable
	statusPermanent = http.StatusUnprocessableEntity
)

// outcome names what became of a delivery, and its status code.
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

// Package reconcile handles the result of a delivery in every function: it distinguishes
// mistakes of users from failures, and writes status, Event and log line together.
package reconcile

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

// UserError is the error of package usererror, under the name that the functions use.
type UserError = usererror.Error

// AsUserError returns the first UserError that err wraps.
func AsUserError(err error) (UserError, bool) {
	var found UserError
	ok := errors.As(err, &found)
	return found, ok
}

// MostUrgent returns the first UserError of errs, and without one the first error. It returns nil
// if all are nil.
func MostUrgent(errs ...error) error {
	var first error
	for _, err := range errs {
		if _, ok := AsUserError(err); ok {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// WaitError says what an object waits for. The change that ends the wait causes an event
// of its own, so the delivery has succeeded, unless Requeue is set.
type WaitError struct {
	// Reason is one word in CamelCase, for a condition.
	Reason string
	// Message names what is waited for.
	Message string
	// Requeue is whether nothing sends an event when the wait ends, so that the object has to be
	// reconciled again.
	Requeue bool
}

func (e WaitError) Error() string { return e.Reason + ": " + e.Message }

// Retried returns Requeue.
func (e WaitError) Retried() bool { return e.Requeue }

// Retried reports whether the event of a delivery that ended with err has to be delivered again.
// An error decides that itself by a method Retried, as UserError and WaitError do. Any other error is a
// request that has failed, and is retried. Nil is not.
func Retried(err error) bool {
	var known interface{ Retried() bool }
	if errors.As(err, &known) {
		return known.Retried()
	}
	return err != nil
}

// Outcome is what a delivery has written into the condition Ready of an object.
type Outcome struct {
	Reason, Message string
	// Warning is whether the Event is of type Warning. That of a Stalled object always is.
	Warning bool
	// Changed is whether the status or the reason of the condition is another than before.
	// Only then is an Event recorded.
	Changed bool
}

// SetReady writes the condition Ready and returns the Outcome.
func SetReady(conditions *[]metav1.Condition, generation int64, ready bool, reason, message string) Outcome {
	changed := kube.SetReady(conditions, generation, ready, reason, message)
	return Outcome{Reason: reason, Message: message, Changed: changed}
}

// PatchStatus writes the status of after if it differs from that of before, records the
// Outcome as an Event if it has changed, and adds it to the delivery's log line beside
// phase. It reports whether the status was written. A second call with the same status
// sends no request. An error is that of the API server; then no Event is recorded.
func PatchStatus(ctx context.Context, client *kube.Client, before, after kube.Object, phase string, o Outcome) (bool, error) {
	wrote, err := client.PatchStatus(ctx, before, after)
	if err != nil {
		return wrote, err
	}
	if o.Changed {
		client.RecordEvent(ctx, after, o.Warning || kube.IsStalled(after), o.Reason, o.Message)
	}
	events.Report(ctx, phase, o.Message)
	return wrote, nil
}

// SecretsError returns a UserError for a request for a Secret or a ConfigMap that RBAC
// refuses to a function, and any other error unchanged.
func SecretsError(err error, function string) error {
	if message, ok := kube.SecretsForbidden(err, function); ok {
		return UserError{Reason: "SecretsNotAllowed", Message: message}
	}
	return err
}

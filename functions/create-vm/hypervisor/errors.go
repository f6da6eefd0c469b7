package hypervisor

import (
	"errors"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// ErrGone is the error of Observe if the virtual machine does not exist.
var ErrGone = errors.New("the virtual machine is gone")

// RetriedUserError is a UserError that may resolve itself: it is reported, and the delivery is
// repeated.
type RetriedUserError struct{ reconcile.UserError }

// Unwrap returns the UserError.
func (e RetriedUserError) Unwrap() error { return e.UserError }

// Retried returns true.
func (e RetriedUserError) Retried() bool { return true }

// NotInstalledError is the UserError of a hypervisor that is not installed, or is being
// installed.
type NotInstalledError struct{ reconcile.UserError }

// Unwrap returns the UserError.
func (e NotInstalledError) Unwrap() error { return e.UserError }

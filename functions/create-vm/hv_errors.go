package main

import (
	"errors"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// errGone is the error of Observe if the virtual machine does not exist.
var errGone = errors.New("the virtual machine is gone")

// retriedUserError is a UserError that may resolve itself: it is reported, and the delivery is
// repeated.
type retriedUserError struct{ reconcile.UserError }

// Unwrap returns the UserError.
func (e retriedUserError) Unwrap() error { return e.UserError }

// notInstalledError is the UserError of a hypervisor that is not installed, or is being
// installed.
type notInstalledError struct{ reconcile.UserError }

// Unwrap returns the UserError.
func (e notInstalledError) Unwrap() error { return e.UserError }

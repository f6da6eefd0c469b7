package main

import (
	"errors"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// isRetried reports whether another delivery may resolve an error.
func isRetried(err error) bool {
	_, isUserError := asUserError(err)
	return err != nil && !errors.As(err, new(reconcile.WaitError)) && (!isUserError || errors.As(err, new(hypervisor.RetriedUserError)))
}

// asUserError returns the UserError that err wraps. An endpoint that the outbound rules refuse is
// one as well, because the platform team has to change either.
func asUserError(err error) (reconcile.UserError, bool) {
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}, true
	}
	return reconcile.AsUserError(err)
}

package main

import (
	"errors"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// isRetried reports whether another delivery may resolve an error.
func isRetried(err error) bool {
	_, isFault := asUserError(err)
	return err != nil && !errors.As(err, new(reconcile.WaitError)) && (!isFault || errors.As(err, new(hypervisor.RetriedUserError)))
}

func asUserError(err error) (reconcile.UserError, bool) {
	var f reconcile.UserError
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}, true
	}
	return f, errors.As(err, &f)
}

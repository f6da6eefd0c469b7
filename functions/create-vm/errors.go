package main

import (
	"crypto/x509"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// asUserError returns the UserError that err wraps. An endpoint that the outbound rules refuse is
// one as well, because the platform team has to change either.
func asUserError(err error) (reconcile.UserError, bool) {
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return reconcile.UserError{Reason: "EndpointNotAllowed", Message: denied.Error()}, true
	}
	return reconcile.AsUserError(err)
}

// stableMessage returns the part of an error that is the same at every attempt, so that it can
// stand in a condition: the innermost error of the network, without ports, or the words of the
// server.
func stableMessage(err error) string {
	var status apierrors.APIStatus
	var timeout net.Error
	var op *net.OpError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &status):
		return status.Status().Message
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the request timed out"
	case errors.As(err, &unknown):
		return "its certificate is signed by an authority that is not trusted: write that into spec.endpoint.caBundle"
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	}
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}

package proxmox

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	wireclient "github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// maxErrorBody bounds what is read of an error, in bytes.
const maxErrorBody = 64 << 10

// apiError is an error that Proxmox VE answers.
type apiError struct {
	status int
	// message is the whole error, on one line.
	message string
}

// Error implements error.
func (e *apiError) Error() string { return fmt.Sprintf("%d %s", e.status, e.message) }

// errorTransport returns an apiError for every answer with an error status. The library keeps the
// reason phrase of some answers and nothing of others.
type errorTransport struct{ under http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t errorTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.under.RoundTrip(r)
	if err != nil || response.StatusCode < http.StatusMultipleChoices {
		return response, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxErrorBody))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Message string            `json:"message"`
		Errors  map[string]string `json:"errors"`
	}
	e := &apiError{status: response.StatusCode, message: strings.TrimSpace(strings.TrimPrefix(response.Status, fmt.Sprint(response.StatusCode)))}
	if json.Unmarshal(body, &answer) == nil && answer.Message != "" {
		e.message = answer.Message
	}
	var wrong []string
	for name, what := range answer.Errors {
		wrong = append(wrong, name+": "+what)
	}
	slices.Sort(wrong)
	e.message = strings.Join(strings.Fields(e.message+" "+strings.Join(wrong, ", ")), " ")
	return nil, e
}

// hasMessage reports whether an error is an apiError that contains a text.
func hasMessage(err error, text string) bool {
	var e *apiError
	return errors.As(err, &e) && strings.Contains(e.message, text)
}

// isMissing reports whether an error says that a virtual machine does not exist. Proxmox VE has no
// status of its own for that.
func isMissing(err error) bool {
	return hasMessage(err, "Configuration file 'nodes/") && hasMessage(err, "does not exist")
}

// isHostFailure reports whether an error may mean that a host does not answer, or does not exist any more. The host that the stack
// speaks to then answers 595, or 500 if it finds no address, or waits longer than the client.
func isHostFailure(err error) bool {
	var e *apiError
	var timeout net.Error
	return (errors.As(err, &e) && e.status >= http.StatusInternalServerError) || (errors.As(err, &timeout) && timeout.Timeout())
}

// isForbidden reports whether an error says that the user lacks a privilege.
func isForbidden(err error) bool {
	var e *apiError
	return errors.As(err, &e) && e.status == http.StatusForbidden
}

// isModified reports whether an error says that the configuration has changed since it was read.
func isModified(err error) bool {
	return hasMessage(err, "checksum mismatch") || hasMessage(err, "detected modified configuration")
}

// toUserError returns a UserError for what Proxmox VE refuses, and any other error as it is.
func (s settings) toUserError(err error) error {
	var e *apiError
	if !errors.As(err, &e) {
		if untrusted := wireclient.Untrustworthy(err); untrusted != "" {
			return reconcile.UserError{Reason: "EndpointUntrusted", Message: fmt.Sprintf("MachineProvider %s: %s: write its authority into spec.endpoint.caBundle, or into ca.crt of its Secret", s.provider.Name, untrusted)}
		}
		return err
	}
	switch {
	case e.status == http.StatusUnauthorized:
		return hypervisor.UnusableSecret(s.provider, "Proxmox VE does not accept its credentials: "+e.message)
	case e.status == http.StatusForbidden:
		return reconcile.UserError{Reason: "PermissionDenied", Message: "Proxmox VE: " + e.message + ": grant that privilege to the user, and to its token if privileges are separated"}
	case e.status == http.StatusBadRequest, e.status == http.StatusNotImplemented && !hasMessage(err, "Service Unavailable"):
		return reconcile.UserError{Reason: "ProxmoxApiError", Message: "Proxmox VE: " + e.message}
	case e.status == http.StatusInternalServerError:
		return hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "ProxmoxApiError", Message: "Proxmox VE: " + e.message}}
	default:
		return err
	}
}

// errConflict is the error of a write that another write has overtaken.
var errConflict = errors.New("the machine has changed meanwhile")

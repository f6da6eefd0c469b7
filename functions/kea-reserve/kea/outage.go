package kea

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// Outage has the errors of the servers that could not do what was needed.
type Outage []ServerError

// Outage returns what is wrong with the servers that are down.
func (p Connections) Outage() Outage {
	var all Outage
	for _, s := range p.Down() {
		all = append(all, Classify(s.Err))
	}
	return all
}

// ServerError says in a condition why a server cannot do what is needed.
type ServerError struct {
	Reason, Message string
	// Transient is whether waiting may help.
	Transient bool
}

// Classify says in a condition what to do about an error of a server:
//
//	refused, timeout, 408, 429, 5xx, DHCP server offline   KeaUnavailable       wait
//	401, 403                                               KeaUnauthorized      change credentials
//	certificate of either side                             KeaUntrusted         change certificates
//	a server that ALLOWED_ENDPOINTS leaves out             KeaNotAllowed        change the list, or the URL
//	404, other 3xx and 4xx, not JSON, not Kea's JSON       KeaUnexpectedAnswer  change the URL
//	result 2 for a command that is needed                  KeaUnsupported       load hooks
//	any other result of config-write                       KeaNotPersisted      let Kea write its file
//	any other result                                       KeaRefused           see Kea's words
func Classify(err error) ServerError {
	var e *httpclient.Error
	var no CommandError
	text := err.Error()
	switch {
	case errors.As(err, new(offlineError)):
		return ServerError{"KeaUnavailable", text + ": start kea-dhcp4", true}
	case errors.As(err, new(unsupportedError)):
		return ServerError{"KeaUnsupported", fmt.Sprintf(
			"%s: load libdhcp_host_cmds.so and libdhcp_subnet_cmds.so, or allow config-get, config-test, config-set and config-write", text), false}
	case errors.As(err, &no) && no.Command == "config-write":
		return ServerError{"KeaNotPersisted", text + ": let the user that Kea runs as write its configuration file and the folder of it", false}
	case errors.As(err, &no):
		return ServerError{"KeaRefused", text, false}
	case !errors.As(err, &e):
		return ServerError{"KeaUnexpectedAnswer", text + urlAdvice, false}
	case e.Transient():
		return ServerError{"KeaUnavailable", text, true}
	case e.Kind == httpclient.Unauthorized:
		return ServerError{"KeaUnauthorized", text + ": set KEA_BASIC_AUTH_USERNAME and KEA_BASIC_AUTH_PASSWORD, or the client certificate, to ones that the server accepts", false}
	case e.Kind == httpclient.Untrusted:
		return ServerError{"KeaUntrusted", text + ": set KEA_TLS_ENABLED to true, and KEA_TLS_CA_FILE, KEA_TLS_CERT_FILE and KEA_TLS_KEY_FILE, or KEA_TLS_SECRET_NAME, to certificates that both sides trust", false}
	case e.Kind == httpclient.NotAllowed:
		return ServerError{"KeaNotAllowed", text, false}
	default:
		return ServerError{"KeaUnexpectedAnswer", text + urlAdvice, false}
	}
}

const urlAdvice = ": set KEA_URL and KEA_SECONDARY_URL to Kea's control agent, or to a control socket of type http"

func (o Outage) Error() string {
	text := ""
	for i, f := range o {
		if i > 0 {
			text += "; "
		}
		text += f.Message
	}
	return text
}

// Reason returns the reason of the first server that needs a change by the platform team, or
// else of the first server.
func (o Outage) Reason() string {
	for _, f := range o {
		if !f.Transient {
			return f.Reason
		}
	}
	return o[0].Reason
}

// Retried reports whether waiting may help for one of the servers.
func (o Outage) Retried() bool {
	return slices.ContainsFunc(o, func(f ServerError) bool { return f.Transient })
}

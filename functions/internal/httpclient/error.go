package httpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/vitistack/stack/events/outbound"
)

// Kind is what went wrong with a request, by what can be done about it.
type Kind string

// The kinds of errors. A retry may resolve Unreachable, Timeout, Throttled and ServerFault.
// The others need a change by a user or by the platform team.
const (
	// Unreachable is a host that is not found, refuses, or breaks the connection.
	Unreachable Kind = "Unreachable"
	// Timeout is an answer that did not come in time.
	Timeout Kind = "Timeout"
	// Untrusted is a certificate that the server or the client does not accept.
	Untrusted Kind = "Untrusted"
	// Unauthorized is 401 or 403.
	Unauthorized Kind = "Unauthorized"
	// NotFound is 404 or 410.
	NotFound Kind = "NotFound"
	// Conflict is 409 or 412.
	Conflict Kind = "Conflict"
	// Rejected is any other status from 400 to 499.
	Rejected Kind = "Rejected"
	// Throttled is 429.
	Throttled Kind = "Throttled"
	// ServerFault is 408, or a status from 500.
	ServerFault Kind = "ServerFault"
	// NotAllowed is a server that ALLOWED_ENDPOINTS leaves out.
	NotAllowed Kind = "NotAllowed"
	// Redirected is a status from 300 to 399. Redirects are not followed, since the
	// request holds credentials.
	Redirected Kind = "Redirected"
	// Malformed is an answer that is not what the API says, or is too large.
	Malformed Kind = "Malformed"
)

// Error is the error of a request without an answer of the API, or with an answer that is an
// error. Its text is stable for a condition: it has no port, socket address, time, secret, or
// part of the answer.
type Error struct {
	Kind Kind
	// Method and Where describe the request. Where is host and path.
	Method, Where string
	// Status is the HTTP status, and 0 where there was none.
	Status int
	// RetryAfter is how long the server asks to wait, and 0 where it does not ask.
	RetryAfter time.Duration
	// Body is the beginning of an answer that is an error.
	Body []byte

	what  string
	cause error
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s: %s", e.Method, e.Where, e.what) }

// Unwrap returns the error of the standard library, whose text may vary.
func (e *Error) Unwrap() error { return e.cause }

// Transient reports whether a retry may succeed.
func (e *Error) Transient() bool {
	switch e.Kind {
	case Unreachable, Timeout, Throttled, ServerFault:
		return true
	default:
		return false
	}
}

// Detail returns the message of the server, from the field detail, message, text, error or
// title of a JSON object, cut to one short line. It may vary between requests, so use it in a
// condition only for an API with stable messages.
func (e *Error) Detail() string {
	var fields map[string]json.RawMessage
	if json.Unmarshal(e.Body, &fields) != nil {
		return ""
	}
	for _, name := range []string{"detail", "message", "text", "error", "title"} {
		var s string
		if json.Unmarshal(fields[name], &s) == nil && s != "" {
			return oneLine(s)
		}
	}
	return ""
}

func oneLine(s string) string {
	const limit = 300
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return s
}

func (e *Error) as(kind Kind, what string, cause error) *Error {
	e.Kind, e.what, e.cause = kind, what, cause
	return e
}

// status turns an answer that is no success into an error.
func (e *Error) status(res *http.Response, body []byte) *Error {
	e.Status, e.RetryAfter = res.StatusCode, retryAfter(res.Header)
	e.Body = body[:min(len(body), maxErrorBody)]
	what := "the server answered " + strings.TrimSpace(fmt.Sprintf("%d %s", e.Status, http.StatusText(e.Status)))
	return e.as(statusKind(e.Status), what, nil)
}

func statusKind(status int) Kind {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return Unauthorized
	case status == http.StatusNotFound, status == http.StatusGone:
		return NotFound
	case status == http.StatusConflict, status == http.StatusPreconditionFailed:
		return Conflict
	case status == http.StatusTooManyRequests:
		return Throttled
	case status == http.StatusRequestTimeout, status >= 500:
		return ServerFault
	case status >= 400:
		return Rejected
	case status >= 300:
		return Redirected
	default:
		return Malformed
	}
}

// transport turns a failure to get an answer into an error.
func (e *Error) transport(err error) *Error {
	var denied *outbound.Denied
	if errors.As(err, &denied) {
		return e.as(NotAllowed, denied.Error(), err)
	}
	kind, what := unanswered(err)
	return e.as(kind, what, err)
}

// Unanswered returns why a request has no answer. Like the text of an Error it is stable for a condition.
func Unanswered(err error) string {
	_, what := unanswered(err)
	return what
}

func unanswered(err error) (kind Kind, what string) {
	if what := Untrustworthy(err); what != "" {
		return Untrusted, what
	}
	var (
		timeout net.Error
		lookup  *net.DNSError
	)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &timeout) && timeout.Timeout():
		return Timeout, "the request timed out"
	case errors.As(err, &lookup):
		return Unreachable, "the host name is not found"
	case errors.Is(err, syscall.ECONNREFUSED):
		return Unreachable, "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Unreachable, "no route to the host"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Unreachable, "the server closed the connection before it had answered"
	default:
		return Unreachable, "the connection failed"
	}
}

// remoteAlert is how crypto/tls marks what the other side complains about.
const remoteAlert = "remote error"

// Untrustworthy returns the problem with a certificate, or nothing for another error.
func Untrustworthy(err error) string {
	var (
		alert   *net.OpError
		record  tls.RecordHeaderError
		unknown x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		verify  *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &unknown):
		return "the server's certificate is signed by an authority that is not trusted"
	case errors.As(err, &host):
		return "the server's certificate is for another host name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired, or is not valid yet"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return "the server's certificate is not valid"
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "the server does not speak TLS: write http instead of https, or turn TLS on at the server"
	case errors.As(err, &alert) && alert.Op == remoteAlert:
		return "the server does not accept the client certificate, or none was given"
	default:
		return ""
	}
}

// Package problem turns errors of handlers into responses as RFC 9457 (application/problem+json) specifies.
package problem

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gofiber/fiber/v2"
)

// Problem is an error that a caller may read. Handlers return it as their error.
type Problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Request  string       `json:"requestId,omitempty"`
	Errors   []FieldError `json:"errors,omitempty"`

	// retryAfter is the value of Retry-After in seconds. 0 sends no header.
	retryAfter int
}

// FieldError describes what is wrong with one field, parameter or header of a request.
type FieldError struct {
	// Pointer is a JSON pointer into the body.
	Pointer string `json:"pointer,omitempty"`
	// Parameter is the name of a query parameter or header.
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"`
}

// Error returns the problem in one line.
func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Title, p.Detail) }

// New returns a problem with an HTTP status. detail says what is wrong and what to do instead; it is a format if there are args.
func New(status int, detail string, args ...any) *Problem {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// Parameter returns a problem with status 400 about one query parameter or header.
func Parameter(name, detail string, args ...any) *Problem {
	detail = fmt.Sprintf(detail, args...)
	p := New(http.StatusBadRequest, "the parameter %s cannot be used: %s", name, detail)
	p.Errors = []FieldError{{Parameter: name, Detail: detail}}
	return p
}

// Repeated returns a problem with status 400 about a query parameter that a request has more than once.
func Repeated(name string) *Problem {
	return Parameter(name, "the request has it more than once: write it once, with commas between alternative values")
}

// WithRetryAfter sets the header Retry-After, in seconds, and returns p.
func (p *Problem) WithRetryAfter(seconds int) *Problem {
	p.retryAfter = seconds
	return p
}

// From turns any error of a handler into a problem. An error that is neither a problem nor Fiber's becomes a 500 without
// its text, because the text may be secret.
func From(err error) *Problem {
	var p *Problem
	if errors.As(err, &p) {
		copied := *p
		return &copied
	}
	var f *fiber.Error
	if errors.As(err, &f) {
		return New(f.Code, "%s", f.Message)
	}
	return New(http.StatusInternalServerError, "the gateway could not answer; its log says why, under the request's id")
}

// Send writes the problem as the response to the request with this identifier.
func (p *Problem) Send(c *fiber.Ctx, requestID string) {
	p.Request, p.Instance = requestID, c.Path()
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500}`)
	}
	h := &c.Context().Response.Header
	h.Del(fiber.HeaderETag)
	h.Set(fiber.HeaderCacheControl, "no-store")
	if p.retryAfter > 0 {
		h.Set(fiber.HeaderRetryAfter, strconv.Itoa(p.retryAfter))
	}
	c.Status(p.Status)
	h.SetContentType("application/problem+json")
	c.Context().Response.SetBodyRaw(body)
}

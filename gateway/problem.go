package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"
)

// problem is an error as RFC 9457 has it. As an error it is what handlers return.
type problem struct {
	Type     string       `json:"type"`
	Title    string       `json:"title"`
	Status   int          `json:"status"`
	Detail   string       `json:"detail,omitempty"`
	Instance string       `json:"instance,omitempty"`
	Request  string       `json:"requestId,omitempty"`
	Errors   []fieldError `json:"errors,omitempty"`

	// retryAfter is in seconds; 0 means that it is not said.
	retryAfter int
}

// fieldError says what is wrong with one field.
type fieldError struct {
	// Pointer is a JSON pointer into the body, Parameter the name of a query
	// parameter or header.
	Pointer   string `json:"pointer,omitempty"`
	Parameter string `json:"parameter,omitempty"`
	Detail    string `json:"detail"`
}

// Error is the problem in one line.
func (p *problem) Error() string { return fmt.Sprintf("%s: %s", p.Title, p.Detail) }

// refuse makes a problem. detail says what is wrong and what to do instead.
func refuse(status int, detail string, args ...any) *problem {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// refuseParameter is a problem with one query parameter or header.
func refuseParameter(name, detail string, args ...any) *problem {
	detail = fmt.Sprintf(detail, args...)
	p := refuse(http.StatusBadRequest, "the parameter %s cannot be used: %s", name, detail)
	p.Errors = []fieldError{{Parameter: name, Detail: detail}}
	return p
}

// asProblem turns any error of a handler into a problem. What is not meant for
// callers is not told to them.
func asProblem(err error) *problem {
	var p *problem
	if errors.As(err, &p) {
		copied := *p
		return &copied
	}
	var f *fiber.Error
	if errors.As(err, &f) {
		return refuse(f.Code, "%s", f.Message)
	}
	return refuse(http.StatusInternalServerError, "the gateway could not answer; its log says why, under the request's id")
}

// send writes the problem as the response.
func (p *problem) send(c *fiber.Ctx, requestID string) {
	p.Request, p.Instance = requestID, c.Path()
	body, err := json.Marshal(p)
	if err != nil {
		body = []byte(`{"type":"about:blank","title":"Internal Server Error","status":500}`)
	}
	h := &c.Context().Response.Header
	h.Del(fiber.HeaderETag)
	h.Set(fiber.HeaderCacheControl, "no-store")
	if p.retryAfter > 0 {
		h.Set(fiber.HeaderRetryAfter, fmt.Sprint(p.retryAfter))
	}
	c.Status(p.Status)
	h.SetContentType("application/problem+json")
	c.Context().Response.SetBodyRaw(body)
}

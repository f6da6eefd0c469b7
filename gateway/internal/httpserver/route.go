package httpserver

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/openapi"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// Route is one route of the server, and what the server does around its handler.
type Route struct {
	Method, Path string
	Handler      fiber.Handler
	// Access is what the route requires of its callers. The zero value admits all callers.
	Access auth.Requirement
	// RateLimited counts requests against the rate limit.
	RateLimited bool
	// OwnBucket counts requests in a token bucket of their own, so that a page which sends many requests can still connect.
	OwnBucket bool
	// Internal is for routes that only the Broker and functions call. They may use any host name for the gateway.
	Internal bool
	// Encoded permits a Content-Encoding. The handler bounds the decoded size.
	Encoded bool
	// Bodies bounds how many bodies are read at once. Without it the server reads no body.
	Bodies *Bodies
	// Parameters reports that the handler checks the query parameters. Other routes refuse every parameter.
	Parameters bool
	// CheckHead refuses a request by its head before the body is read. It may be nil.
	CheckHead fiber.Handler

	// label is the path in metrics.
	label string
}

// Open returns a route for GET that anonymous callers may use, without a rate limit.
func Open(path string, handler fiber.Handler) Route {
	return Route{Method: fiber.MethodGet, Path: path, Handler: handler}
}

// Read returns a route for GET that requires the scope read and counts against the rate limit.
func Read(path string, handler fiber.Handler) Route {
	return Route{Method: fiber.MethodGet, Path: path, Handler: handler, Access: auth.Requirement{Scope: auth.ScopeRead}, RateLimited: true}
}

// WithParameters returns the route with a handler that checks the query parameters.
func (r Route) WithParameters() Route {
	r.Parameters = true
	return r
}

// ReadByNamespace returns a route like Read, whose handler shows a limited caller only its namespaces.
func ReadByNamespace(path string, handler fiber.Handler) Route {
	r := Read(path, handler)
	r.Access.ByNamespace = true
	return r
}

var parameter = regexp.MustCompile(`:(\w+)`)

// labelOf returns a path without the prefix of the API and with its parameters in braces.
func labelOf(path string) string {
	if short := strings.TrimPrefix(path, openapi.BasePath); short != "" {
		path = short
	}
	return parameter.ReplaceAllString(path, "{$1}")
}

// serve returns the handler of a route with everything around it: request identifier, headers, checks, errors as problems,
// metrics and log.
func (s *Server) serve(r Route) fiber.Handler {
	observe := s.Meter(r.label)
	return func(c *fiber.Ctx) error {
		start := time.Now()
		id := requestID(c.Get(fiber.HeaderXRequestID))
		h := &c.Context().Response.Header
		h.Set(fiber.HeaderXRequestID, id)
		h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		s.logReceived(c, id)
		s.allowOrigin(c)
		err := s.check(c, &r)
		if err == nil {
			served := connlimit.Serving(c.Context().Conn())
			err = s.call(r.Handler, c, id)
			served()
		}
		if err != nil {
			problem.From(err).Send(c, id)
		}
		s.closeUnread(c)
		took := time.Since(start)
		observe(c.Method(), c.Response().StatusCode(), took)
		s.logAccess(c, id, took)
		return nil
	}
}

// check refuses a request that the handler must not see, and reads the body of the others. The cheap checks come first.
func (s *Server) check(c *fiber.Ctx, r *Route) error {
	if err := checkLength(c); err != nil {
		return err
	}
	if !r.Internal {
		if err := s.checkHost(c); err != nil {
			return err
		}
	}
	if err := s.admit(c, r); err != nil {
		return err
	}
	if !r.Parameters && !r.Internal && len(c.Request().URI().QueryString()) > 0 {
		return refuseParameters(c)
	}
	if !r.Encoded && len(c.Request().Header.ContentEncoding()) > 0 {
		return problem.New(fiber.StatusUnsupportedMediaType, "a body in another encoding is not unpacked here: send it without Content-Encoding")
	}
	if r.CheckHead != nil {
		if err := r.CheckHead(c); err != nil {
			return err
		}
	}
	if r.Bodies == nil {
		return nil
	}
	return r.Bodies.read(c, s.Settings.MaxBodyBytes)
}

// refuseParameters returns a problem that names the first query parameter of a request to a route that has none.
func refuseParameters(c *fiber.Ctx) error {
	values, err := url.ParseQuery(utils.CopyString(string(c.Request().URI().QueryString())))
	if err != nil || len(values) == 0 {
		return problem.New(fiber.StatusBadRequest, "the query cannot be read, and this path has no parameters: leave it out")
	}
	return problem.Parameter(slices.Min(slices.Collect(maps.Keys(values))), "this path has no parameters: leave it out")
}

// admit limits the rate of a caller and then authenticates it. The rate limit comes before requests to the API server, so that
// callers cannot make the gateway flood it.
func (s *Server) admit(c *fiber.Ctx, r *Route) error {
	var who auth.Caller
	var token string
	isRequired := s.Auth.IsRequired(r.Access)
	if isRequired || s.limiter.byKey {
		who, token = s.Auth.Identify(c)
	}
	if r.RateLimited {
		if err := s.limitRate(c, r, who); err != nil {
			return err
		}
	}
	if !isRequired {
		return nil
	}
	return s.Auth.Admit(c, who, token, r.Access)
}

// checkLength refuses a request whose length is ambiguous, because a proxy may have read the other length and taken the rest for
// another request (RFC 9112, 6.3). The server closes the connection.
func checkLength(c *fiber.Ctx) error {
	lengths, encodings := 0, 0
	for line := range bytes.Lines(c.Request().Header.RawHeaders()) {
		name, _, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte(fiber.HeaderContentLength)):
			lengths++
		case bytes.EqualFold(name, []byte(fiber.HeaderTransferEncoding)):
			encodings++
		}
	}
	if lengths+encodings < 2 {
		return nil
	}
	c.Context().SetConnectionClose()
	return problem.New(fiber.StatusBadRequest, "the request has several lengths of its body: send one Content-Length, or Transfer-Encoding")
}

// call runs a handler. It logs a panic and turns it into an error inside of serve, so that metrics and access log count the
// request; Fiber's middleware recover would skip them.
func (s *Server) call(handler fiber.Handler, c *fiber.Ctx, id string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			s.Log.Error("Handler panicked", "requestId", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	err = handler(c)
	if err != nil && problem.From(err).Status == fiber.StatusInternalServerError {
		s.Log.Error("Request failed", "requestId", id, "error", err.Error())
	}
	return err
}

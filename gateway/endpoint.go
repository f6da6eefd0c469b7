package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// endpoint is one route and what is done around its handler.
type endpoint struct {
	method, path string
	handle       fiber.Handler
	// label is the path as the metrics have it.
	label string
	// scope is what a caller has to be allowed; 0 means that anybody may call.
	scope scopes
	// limited tells whether calls count against the rate limit.
	limited bool
	// staying has calls counted apart from the others, so that a page which asks for
	// much is not kept from connecting again.
	staying bool
	// byNamespace tells whether the handler shows a caller that is limited to namespaces
	// nothing of others. Such a caller is refused elsewhere.
	byNamespace bool
	// metrics tells whether the answer is sums over all namespaces, with their names. It needs
	// a key as soon as a key is limited to namespaces.
	metrics bool
	// inside tells whether only the Broker and functions call, whose name for the gateway
	// may have any domain.
	inside bool
	// packed tells whether bodies may have a Content-Encoding. The handler bounds
	// what becomes of them.
	packed bool
	// bodies bounds the bodies that are read at once; nil means that a request has
	// no body, and that none is read.
	bodies *bodies
	// early refuses by the head alone what the handler would refuse, before the body
	// is read. It may be nil.
	early fiber.Handler
}

// base is what all paths of the API begin with.
const base = "/api/v1"

var parameter = regexp.MustCompile(`:(\w+)`)

// labelOf is a route's path without the base, and with its parameters in braces.
func labelOf(path string) string {
	if short := strings.TrimPrefix(path, base); short != "" {
		path = short
	}
	return parameter.ReplaceAllString(path, "{$1}")
}

// serveEndpoint is the handler of an endpoint with everything around it: request
// identifier, headers, errors as problems, metrics and log.
func (g *gateway) serveEndpoint(e endpoint) fiber.Handler {
	meter := g.metrics.endpoint(e.label)
	return func(c *fiber.Ctx) error {
		start := time.Now()
		id := requestID(c.Get(fiber.HeaderXRequestID))
		h := &c.Context().Response.Header
		h.Set(fiber.HeaderXRequestID, id)
		h.Set(fiber.HeaderXContentTypeOptions, "nosniff")
		if g.log.Enabled(c.Context(), slog.LevelDebug) && !excluded(g.config.Logging.ExcludePaths, c.Path()) {
			g.log.LogAttrs(c.Context(), slog.LevelDebug, "Received request", slog.String("component", "httpserver"), slog.String("requestId", id),
				slog.String("method", c.Method()), slog.String("path", c.Path()))
		}
		g.allowOrigin(c)
		err := measured(c)
		if err == nil && !e.inside {
			err = g.checkHost(c)
		}
		if err == nil {
			err = g.admit(c, &e)
		}
		if err == nil && !e.packed && len(c.Request().Header.ContentEncoding()) > 0 {
			err = problem.New(fiber.StatusUnsupportedMediaType, "a body in another encoding is not unpacked here: send it without Content-Encoding")
		}
		if err == nil && e.early != nil {
			err = e.early(c)
		}
		if err == nil && e.bodies != nil {
			err = g.readBody(c, e.bodies)
		}
		if err == nil {
			served := connlimit.Serving(c.Context().Conn())
			err = g.call(e.handle, c, id)
			served()
		}
		if err != nil {
			problem.From(err).Send(c, id)
		}
		closeUnread(c)
		took := time.Since(start)
		meter.done(c.Method(), c.Response().StatusCode(), took)
		g.logAccess(c, id, took)
		return nil
	}
}

// measured refuses a request whose length can be read in two ways, since a proxy
// before the gateway may have taken the other, and what follows for another request
// (RFC 9112, 6.3). Nothing more is read from its connection.
func measured(c *fiber.Ctx) error {
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
	return problem.New(fiber.StatusBadRequest, "the length of the body is told more than once: send one Content-Length, or Transfer-Encoding")
}

// call runs a handler. A panic is logged, and is an error for the caller.
func (g *gateway) call(handle fiber.Handler, c *fiber.Ctx, id string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			g.log.Error("Handler panicked", "component", "httpserver", "requestId", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	err = handle(c)
	if err != nil && problem.From(err).Status == fiber.StatusInternalServerError {
		g.log.Error("Request failed", "component", "httpserver", "requestId", id, "error", err.Error())
	}
	return err
}

// logAccess writes a request's line into the access log.
func (g *gateway) logAccess(c *fiber.Ctx, id string, took time.Duration) {
	l := &g.config.Logging
	path := c.Path()
	if !l.Enabled || excluded(l.ExcludePaths, path) {
		return
	}
	status := c.Response().StatusCode()
	level, message := slog.LevelInfo, "Request completed successfully"
	switch {
	case status >= fiber.StatusInternalServerError:
		level, message = slog.LevelError, "Request failed"
	case status >= fiber.StatusBadRequest:
		level, message = slog.LevelWarn, "Request refused"
	}
	attrs := []slog.Attr{
		slog.String("component", "httpserver"),
		slog.String("requestId", id),
		slog.String("method", c.Method()),
		slog.String("path", path),
		slog.Int("statusCode", status),
		slog.String("duration", took.Round(time.Microsecond).String()),
		slog.String("userAgent", c.Get(fiber.HeaderUserAgent)),
	}
	if l.IncludeHeaders {
		attrs = append(attrs, slog.Any("headers", shownHeaders(c, g.config.Auth.KeyHeader)))
	}
	g.log.LogAttrs(c.Context(), level, message, attrs...)
}

// excluded tells whether a path is one of those, or below one.
func excluded(paths []string, path string) bool {
	for _, p := range paths {
		if path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

// shownHeaders are a request's headers without credentials, of which one is in
// keyHeader.
func shownHeaders(c *fiber.Ctx, keyHeader string) map[string]string {
	secret := []string{fiber.HeaderAuthorization, fiber.HeaderCookie, fiber.HeaderProxyAuthorization, standardwebhooks.HeaderSignature, keyHeader}
	headers := map[string]string{}
	c.Request().Header.VisitAll(func(name, value []byte) {
		n := string(name)
		headers[n] = string(value)
		if slices.ContainsFunc(secret, func(s string) bool { return strings.EqualFold(s, n) }) {
			headers[n] = "(redacted)"
		}
	})
	return headers
}

// requestID is the caller's identifier of a request if it can be one, or else a
// new one.
func requestID(given string) string {
	if isRequestID(given) {
		return utils.CopyString(given)
	}
	return newRequestID()
}

func isRequestID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

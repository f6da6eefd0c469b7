// Package httpserver serves routes: it bounds connections, rates and bodies, checks hosts, origins and callers, and turns errors
// into problems. It knows nothing of what the routes serve.
package httpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// shutdownTimeout is the time for requests to complete after SIGTERM.
const shutdownTimeout = 15 * time.Second

// Options are the settings and parts of a Server.
type Options struct {
	Settings  config.Server
	Logging   config.Logging
	CORS      config.CORS
	RateLimit config.RateLimit
	Auth      *auth.Authenticator
	// Meter returns a function that counts the requests of a route, by the route's label.
	Meter func(route string) func(method string, status int, took time.Duration)
	Log   *slog.Logger
}

// Server serves routes on listeners.
type Server struct {
	Options
	limiter *limiter
	proxies proxies
	// displaced counts the connections that were closed to make room for others.
	displaced atomic.Uint64
}

// New returns a Server. An invalid setting is an error that names its key.
func New(o Options) (*Server, error) {
	trusted, err := parseProxies(o.Settings.TrustedProxies)
	if err != nil {
		return nil, err
	}
	return &Server{Options: o, limiter: newLimiter(o.RateLimit), proxies: trusted}, nil
}

// Displaced returns how many connections were closed to make room for others.
func (s *Server) Displaced() uint64 { return s.displaced.Load() }

// Limit bounds the connections of a listener, in all and from one address.
func (s *Server) Limit(l net.Listener) net.Listener {
	return s.limit(l, connlimit.Limits{Total: s.Settings.MaxConnections, PerAddress: s.Settings.MaxConnectionsPerAddress, Exempt: s.proxies.contain})
}

// LimitTotal bounds the connections of a listener in all, and not from one address, because few addresses connect to it, such as
// the Broker's.
func (s *Server) LimitTotal(l net.Listener) net.Listener {
	return s.limit(l, connlimit.Limits{Total: s.Settings.MaxConnections})
}

func (s *Server) limit(l net.Listener, limits connlimit.Limits) net.Listener {
	return connlimit.New(l, limits, func() { s.displaced.Add(1) })
}

// Port is a listener and the routes that it serves.
type Port struct {
	Listener net.Listener
	Routes   []Route
}

// Serve answers on all ports until ctx ends. It then calls drain, which ends streams, and waits for the requests in progress.
func (s *Server) Serve(ctx context.Context, ports []Port, drain func()) error {
	served := make(chan error, len(ports))
	apps := make([]*fiber.App, len(ports))
	for i, p := range ports {
		apps[i] = s.app(p.Routes)
		go func() { served <- apps[i].Listener(p.Listener) }()
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	drain()
	for _, app := range apps {
		if err := app.ShutdownWithTimeout(shutdownTimeout); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("drain: %w", err)
		}
	}
	return nil
}

// app returns a Fiber app with these routes.
func (s *Server) app(routes []Route) *fiber.App {
	app := fiber.New(fiber.Config{
		AppName:               "vitistack-gateway",
		DisableStartupMessage: true,
		ReadTimeout:           s.Settings.ReadTimeout,
		WriteTimeout:          s.Settings.WriteTimeout,
		IdleTimeout:           s.Settings.IdleTimeout,
		// The buffer holds the whole head of a request.
		ReadBufferSize: s.Settings.MaxHeaderBytes,
		BodyLimit:      s.Settings.MaxBodyBytes,
		// Handlers run before the body is read. Do not set ReduceMemoryUsage too: fasthttp would give the buffer to another
		// connection while the body is still read through it. fasthttp would also read forms into memory.
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ErrorHandler:                 s.handleError,
	})
	// A stream closes its connection itself, and leaves the buffers to others.
	app.Server().KeepHijackedConns = true
	for _, r := range routes {
		r.label = labelOf(r.Path)
		app.Add(r.Method, r.Path, s.serve(r))
		if r.Method == fiber.MethodGet {
			app.Add(fiber.MethodHead, r.Path, s.serve(r))
		}
	}
	app.Use(s.serve(Route{Handler: s.handleUnknown, label: "other", RateLimited: true, Parameters: true}))
	s.refuseUnknownMethods(app)
	return app
}

// methodPattern matches a method as RFC 9110 (9.1) defines it.
var methodPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// refuseUnknownMethods answers requests with a method that HTTP does not define with a problem. Fiber would answer with a text.
func (s *Server) refuseUnknownMethods(app *fiber.App) {
	next := app.Handler()
	refuse := s.serve(Route{label: "other", RateLimited: true, Parameters: true, Handler: func(c *fiber.Ctx) error {
		if !methodPattern.Match(c.Context().Method()) {
			return problem.New(fiber.StatusBadRequest, "the request does not begin with a method: send HTTP, such as GET / HTTP/1.1")
		}
		return problem.New(fiber.StatusNotImplemented, "the method of the request is unknown: use GET, HEAD, POST, DELETE or OPTIONS")
	}})
	app.Server().Handler = func(ctx *fasthttp.RequestCtx) {
		if slices.Contains(fiber.DefaultMethods, string(ctx.Method())) {
			next(ctx)
			return
		}
		connlimit.Unread(ctx.Conn())
		c := app.AcquireCtx(ctx)
		defer app.ReleaseCtx(c)
		_ = refuse(c)
	}
}

// handleUnknown answers a request that no route serves. Fiber knows whether the path has a route for another method.
func (s *Server) handleUnknown(c *fiber.Ctx) error {
	if c.Method() == fiber.MethodOptions {
		return s.preflight(c)
	}
	var missed *fiber.Error
	if errors.As(c.Next(), &missed) && missed.Code == fiber.StatusMethodNotAllowed {
		return problem.New(missed.Code, "%s is not served here: use %s", c.Method(), c.GetRespHeader(fiber.HeaderAllow))
	}
	return problem.New(fiber.StatusNotFound, "nothing is served at this path: /api/v1/docs lists what is")
}

// handleError answers a request that Fiber refuses before it finds a route. No handler reads the rest of the request.
func (s *Server) handleError(c *fiber.Ctx, err error) error {
	connlimit.Unread(c.Context().Conn())
	id := newRequestID()
	c.Set(fiber.HeaderXRequestID, id)
	p := problem.From(err)
	switch p.Status {
	case fiber.StatusRequestHeaderFieldsTooLarge:
		p = problem.New(p.Status, "the request line and the headers have more than %d bytes: send fewer, or raise server.maxHeaderBytes", s.Settings.MaxHeaderBytes)
	case fiber.StatusRequestEntityTooLarge:
		p = bodyTooLarge(s.Settings.MaxBodyBytes)
	}
	p.Send(c, id)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/page"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// drainTimeout is for requests to come to their end after SIGTERM.
const drainTimeout = 15 * time.Second

// serve answers on the listeners until ctx ends, and then ends the streams and
// waits for the requests that are under way. broker is nil where the Broker
// delivers to the same port as everybody.
func (g *gateway) serve(ctx context.Context, listener, broker net.Listener) error {
	apps := map[*fiber.App]net.Listener{}
	if broker == nil {
		apps[g.app(g.everyEndpoint())] = listener
	} else {
		apps[g.app(g.endpoints())] = listener
		apps[g.app(g.brokerEndpoints())] = broker
	}
	served := make(chan error, len(apps))
	for app, l := range apps {
		go func() { served <- app.Listener(l) }()
	}
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	g.health.drain()
	g.hub.Close()
	for app := range apps {
		if err := app.ShutdownWithTimeout(drainTimeout); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("drain: %w", err)
		}
	}
	return nil
}

// app serves these endpoints.
func (g *gateway) app(endpoints []endpoint) *fiber.App {
	s := &g.config.Server
	app := fiber.New(fiber.Config{
		AppName:               "vitistack-gateway",
		DisableStartupMessage: true,
		ReadTimeout:           s.ReadTimeout,
		WriteTimeout:          s.WriteTimeout,
		IdleTimeout:           s.IdleTimeout,
		// The buffer holds the whole head of a request.
		ReadBufferSize: s.MaxHeaderBytes,
		BodyLimit:      s.MaxBodyBytes,
		// Handlers run before the body is read. fasthttp must not be told to
		// ReduceMemoryUsage as well: it would give the buffer to another connection
		// while the body is still read through it. It would also read forms whole.
		StreamRequestBody:            true,
		DisablePreParseMultipartForm: true,
		ErrorHandler:                 g.outerError,
	})
	// A stream closes its connection itself, and leaves the buffers to others.
	app.Server().KeepHijackedConns = true
	for _, e := range endpoints {
		e.label = labelOf(e.path)
		app.Add(e.method, e.path, g.serveEndpoint(e))
		if e.method == fiber.MethodGet {
			app.Add(fiber.MethodHead, e.path, g.serveEndpoint(e))
		}
	}
	app.Use(g.serveEndpoint(endpoint{handle: g.unknown, label: "other", limited: true}))
	return app
}

// unknown answers for what no route serves. Fiber knows whether another method
// would be served at the path.
func (g *gateway) unknown(c *fiber.Ctx) error {
	if c.Method() == fiber.MethodOptions {
		return g.preflight(c)
	}
	var missed *fiber.Error
	if errors.As(c.Next(), &missed) && missed.Code == fiber.StatusMethodNotAllowed {
		return problem.New(missed.Code, "%s is not served here: use %s", c.Method(), c.GetRespHeader(fiber.HeaderAllow))
	}
	return problem.New(fiber.StatusNotFound, "nothing is served at this path: /api/v1/docs lists what is")
}

// outerError answers for requests that do not come as far as a route.
func (g *gateway) outerError(c *fiber.Ctx, err error) error {
	id := newRequestID()
	c.Set(fiber.HeaderXRequestID, id)
	problem.From(err).Send(c, id)
	return nil
}

// endpoints are all routes that the Broker does not need.
func (g *gateway) endpoints() []endpoint {
	all := []endpoint{
		open("/", servePage(func(*fiber.Ctx) string { return "index.html" })),
		open("/page/:file", servePage(func(c *fiber.Ctx) string { return c.Params("file") })),
		{method: fiber.MethodGet, path: "/events/stream", handle: g.streamEvents, scope: scopeRead, limited: true, staying: true},
		{method: fiber.MethodGet, path: base + "/stream", handle: g.streamEvents, scope: scopeRead, limited: true, staying: true},
		reading(base+"/infrastructure", g.infrastructure),
		byNamespace(reading(base+"/clusters", g.list(inventory.TopicClusters))),
		byNamespace(reading(base+"/clusters/:id", g.showCluster)),
		byNamespace(reading(base+"/clusters/:id/timeline", g.showTimeline)),
		byNamespace(reading(base+"/clusters/:id/manifests", g.showManifests)),
		byNamespace(reading(base+"/resources", g.listResources)),
		byNamespace(reading(base+"/resources/:id", g.showResource)),
		byNamespace(reading(base+"/events", g.listEvents)),
		reading(base+"/dead-letters", g.listDeadLetters),
		{method: fiber.MethodPost, path: base + "/preview", handle: g.makePreview, scope: scopeRead, limited: true, bodies: g.bodies, byNamespace: true},
		{method: fiber.MethodPost, path: base + "/events", handle: g.ingestEvents, limited: true, bodies: g.bodies, early: g.mayBringEvents},
		{method: fiber.MethodGet, path: base + "/session", handle: g.showSession, limited: true, staying: true},
		{method: fiber.MethodPost, path: base + "/session", handle: g.beginSession, limited: true, bodies: g.bodies},
		{method: fiber.MethodDelete, path: base + "/session", handle: g.endSession, limited: true},
	}
	for _, topic := range inventory.Topics {
		if topic != inventory.TopicClusters {
			path := base + "/" + string(topic)
			several, one := reading(path, g.list(topic)), reading(path+"/:id", g.item(topic))
			if _, inNamespaces := topicResources[topic]; inNamespaces {
				several, one = byNamespace(several), byNamespace(one)
			}
			all = append(all, several, one)
		}
	}
	all = append(all, aboutEndpoints()...)
	for _, prefix := range []string{"", base} {
		all = append(all,
			open(prefix+"/health", func(c *fiber.Ctx) error { return g.health.report.Load().overall.Send(c) }),
			open(prefix+"/health/live", g.live),
			open(prefix+"/health/operators", func(c *fiber.Ctx) error { return g.health.report.Load().operators.Send(c) }),
			open(prefix+"/health/database", func(c *fiber.Ctx) error { return g.health.report.Load().database.Send(c) }),
			open(prefix+"/health/cache", func(c *fiber.Ctx) error { return g.health.report.Load().cache.Send(c) }),
			open(prefix+"/ready", g.isReady),
		)
		if g.config.Metrics.Enabled {
			e := open(prefix+"/metrics", g.serveMetrics)
			e.metrics = true
			if g.config.Auth.Metrics {
				e.scope = scopeRead
			}
			all = append(all, e)
		}
	}
	return all
}

// brokerEndpoints are where the Broker and the functions deliver.
func (g *gateway) brokerEndpoints() []endpoint {
	return []endpoint{
		{method: fiber.MethodPost, path: "/events", handle: g.receiveEvent, inside: true, early: g.authenticateDelivery, bodies: g.brokerBodies},
		{method: fiber.MethodPost, path: "/dead-letters", handle: g.receiveDeadLetter, inside: true, early: g.authenticateDelivery, bodies: g.brokerBodies},
		{method: fiber.MethodPost, path: base + "/import/prometheus", handle: g.takeMetrics, inside: true, packed: true, bodies: g.brokerBodies},
	}
}

// everyEndpoint is all routes.
func (g *gateway) everyEndpoint() []endpoint { return append(g.endpoints(), g.brokerEndpoints()...) }

// open is an endpoint that anybody may call as often as they like.
func open(path string, handle fiber.Handler) endpoint {
	return endpoint{method: fiber.MethodGet, path: path, handle: handle}
}

// reading is an endpoint for those who may read.
func reading(path string, handle fiber.Handler) endpoint {
	return endpoint{method: fiber.MethodGet, path: path, handle: handle, scope: scopeRead, limited: true}
}

// byNamespace is an endpoint that shows a caller with a limit nothing of other namespaces.
func byNamespace(e endpoint) endpoint {
	e.byNamespace = true
	return e
}

// servePage serves the file of the status page that a request names. Files that
// cannot be read are a fault of the build, and stop the start.
func servePage(name func(*fiber.Ctx) string) fiber.Handler {
	files, err := page.Files()
	if err != nil {
		panic("load the status page: " + err.Error())
	}
	handlers := map[string]fiber.Handler{}
	for _, file := range files {
		handlers[file.Name] = response.Static(file.ContentType, func() ([]byte, error) { return file.Content, nil }, page.Protect)
	}
	return func(c *fiber.Ctx) error {
		handle, ok := handlers[name(c)]
		if !ok {
			return problem.New(fiber.StatusNotFound, "the status page has no such file")
		}
		return handle(c)
	}
}

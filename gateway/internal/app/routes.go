package app

import (
	"crypto/tls"
	"net"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/handlers"
	"github.com/vitistack/stack/gateway/internal/httpserver"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/openapi"
)

const base = openapi.BasePath

// ports returns the listeners with their routes. Without a listener of its own the Broker uses that of callers.
func (a *app) ports(listener, brokerListener net.Listener) ([]httpserver.Port, error) {
	callerRoutes, brokerRoutes, err := a.routes()
	if err != nil {
		return nil, err
	}
	listener, brokerListener = a.limited(listener, brokerListener)
	if brokerListener == nil {
		return []httpserver.Port{{Listener: listener, Routes: append(callerRoutes, brokerRoutes...)}}, nil
	}
	return []httpserver.Port{{Listener: listener, Routes: callerRoutes}, {Listener: brokerListener, Routes: brokerRoutes}}, nil
}

// routes returns the routes for callers, and those for the Broker and functions. Their bodies have separate bounds, so that callers
// cannot keep the Broker out.
func (a *app) routes() (callers, broker []httpserver.Route, err error) {
	page, err := handlers.NewPage()
	if err != nil {
		return nil, nil, err
	}
	inv := &handlers.Inventory{
		Store: a.store, IsReady: a.health.IsReady, Access: a.auth,
		Pages: &listing.PageCache{Count: func(hit bool) { a.metrics.Cached(cache.Memory, hit) }},
	}
	measure := &handlers.Metrics{Metrics: a.metrics, Replicas: a.replicas}
	callers = []httpserver.Route{
		httpserver.Open("/", page.Index).WithParameters(),
		httpserver.Open("/page/:file", page.File).WithParameters(),
	}
	for path, handler := range handlers.Description() {
		callers = append(callers, httpserver.Open(base+path, handler))
	}
	callers = append(callers, a.readRoutes(inv)...)
	callers = append(callers, a.callerRoutes(inv)...)
	callers = append(callers, a.operationRoutes(measure)...)
	return callers, a.brokerRoutes(measure), nil
}

// readRoutes serve the inventory and the history.
func (a *app) readRoutes(inv *handlers.Inventory) []httpserver.Route {
	past := &handlers.History{Store: a.history, Inventory: inv, Access: a.auth, Resend: a.deliverer.Resend, Timeout: a.config.APITimeout, Log: a.component("history")}
	manifests := &handlers.Manifests{
		Inventory: inv, API: a.kubernetes, Cache: a.cache, CacheTTL: a.config.Cache.TTL, Timeout: a.config.APITimeout, Log: a.component("httpserver"),
	}
	objects := &handlers.Objects{
		Inventory: inv, API: a.kubernetes, Cache: a.cache, CacheTTL: a.config.Cache.TTL, Timeout: a.config.APITimeout, Log: a.component("httpserver"),
	}
	classes := &handlers.MachineClasses{API: a.kubernetes, Cache: a.cache, CacheTTL: a.config.Cache.TTL, Timeout: a.config.APITimeout, Log: a.component("httpserver")}
	all := []httpserver.Route{
		httpserver.ReadByNamespace(base+"/objects/:id", objects.Show),
		httpserver.ReadByNamespace(base+"/machine-classes", classes.List),
		httpserver.Read(base+"/infrastructure", inv.ShowInfrastructure),
		httpserver.ReadByNamespace(base+"/clusters", inv.List(inventory.TopicClusters)).WithParameters(),
		httpserver.ReadByNamespace(base+"/resources", inv.ListResources).WithParameters(),
		httpserver.ReadByNamespace(base+"/events", past.ListEvents).WithParameters(),
		httpserver.Read(base+"/dead-letters", past.ListDeadLetters).WithParameters(),
		httpserver.Read(base+"/dead-letters/:sequence", past.ShowDeadLetter),
		writeRoute(http.MethodDelete, "/dead-letters/:sequence", past.DiscardDeadLetter),
		writeRoute(http.MethodPost, "/dead-letters/:sequence/resend", past.ResendDeadLetter),
	}
	all = append(all, byIdentifier("/clusters", "/timeline", past.ShowTimeline)...)
	all = append(all, byIdentifier("/clusters", "/manifests", manifests.Show)...)
	all = append(all, byIdentifier("/clusters", "/conditions", inv.ShowConditions)...)
	all = append(all, byIdentifier("/clusters", "", inv.ShowCluster)...)
	all = append(all, byIdentifier("/resources", "", inv.ShowResource)...)
	for _, topic := range inventory.Topics {
		path := "/" + string(topic)
		switch {
		case topic == inventory.TopicClusters:
		case topic == inventory.TopicTemplates:
			all = append(all, httpserver.Read(base+path, inv.List(topic)).WithParameters(), httpserver.Read(base+path+"/:id", inv.ShowTemplate))
		case handlers.HasNamespaces(topic):
			all = append(all, httpserver.ReadByNamespace(base+path, inv.List(topic)).WithParameters())
			all = append(all, byIdentifier(path, "", inv.Show(topic))...)
		default:
			all = append(all, httpserver.Read(base+path, inv.List(topic)).WithParameters(), httpserver.Read(base+path+"/:id", inv.Show(topic)))
		}
	}
	return all
}

// byIdentifier returns the routes of one object, which its identifier or its namespace and name select. part is a part of the object, or
// empty. A cluster with the name of a part needs namespace%2Fname.
func byIdentifier(path, part string, handler fiber.Handler) []httpserver.Route {
	return []httpserver.Route{
		httpserver.ReadByNamespace(base+path+"/:id"+part, handler),
		httpserver.ReadByNamespace(base+path+"/:namespace/:name"+part, handler),
	}
}

// writeRoute returns a route that changes something. It needs a key of the scope write, also if auth.enabled is off.
func writeRoute(method, path string, handler fiber.Handler) httpserver.Route {
	return httpserver.Route{Method: method, Path: base + path, Handler: handler, Access: auth.Requirement{Scope: auth.ScopeWrite, Always: true}, RateLimited: true}
}

// callerRoutes serve the stream, previews, sessions, and events of external systems.
func (a *app) callerRoutes(inv *handlers.Inventory) []httpserver.Route {
	streams := &handlers.Stream{Inventory: inv, Hub: a.hub, ClientAddress: a.server.ClientAddress}
	settings, talos := previewSettings(a.config.Preview)
	preview := &handlers.Preview{Inventory: inv, API: a.kubernetes, Settings: settings, DefaultTalos: talos, Timeout: a.config.APITimeout}
	bodies := httpserver.NewBodies(a.config.Server.MaxBodies)
	read := auth.Requirement{Scope: auth.ScopeRead}
	return []httpserver.Route{
		{Method: http.MethodGet, Path: "/events/stream", Handler: streams.Serve, Access: read, RateLimited: true, OwnBucket: true, Parameters: true},
		{Method: http.MethodGet, Path: base + "/stream", Handler: streams.Serve, Access: read, RateLimited: true, OwnBucket: true, Parameters: true},
		{Method: http.MethodPost, Path: base + "/preview", Handler: preview.Show, Access: auth.Requirement{Scope: auth.ScopeRead, ByNamespace: true}, RateLimited: true, Bodies: bodies, Parameters: true},
		{Method: http.MethodPost, Path: base + "/events", Handler: a.external.Receive, RateLimited: true, Bodies: bodies, CheckHead: a.external.CheckHead},
		{Method: http.MethodGet, Path: base + "/session", Handler: a.auth.ShowSession, RateLimited: true, OwnBucket: true},
		{Method: http.MethodPost, Path: base + "/session", Handler: a.auth.BeginSession, RateLimited: true, Bodies: bodies},
		// A logout has no rate limit: a browser whose logout is refused still has the session.
		{Method: http.MethodDelete, Path: base + "/session", Handler: a.auth.EndSession},
	}
}

// operationRoutes serve health and metrics, each at the root and below the API.
func (a *app) operationRoutes(measure *handlers.Metrics) (all []httpserver.Route) {
	for _, prefix := range []string{"", base} {
		all = append(all,
			httpserver.Open(prefix+"/health", a.health.ShowOverall),
			httpserver.Open(prefix+"/health/live", a.health.ShowLive),
			httpserver.Open(prefix+"/health/operators", a.health.ShowOperators),
			httpserver.Open(prefix+"/health/backends", a.health.ShowBackends),
			httpserver.Open(prefix+"/health/dependencies", a.health.ShowDependencies),
			httpserver.Open(prefix+"/health/database", a.health.ShowDatabase),
			httpserver.Open(prefix+"/health/cache", a.health.ShowCache),
			httpserver.Open(prefix+"/ready", a.health.ShowReady),
			httpserver.Open(prefix+"/version", handlers.Version(a.version)),
		)
		if a.config.Metrics.Enabled {
			r := httpserver.Open(prefix+"/metrics", measure.Show)
			r.Access.Metrics = true
			if a.config.Auth.Metrics {
				r.Access.Scope = auth.ScopeRead
			}
			all = append(all, r)
		}
	}
	return all
}

// brokerRoutes receive what the Broker delivers and what functions push.
func (a *app) brokerRoutes(measure *handlers.Metrics) []httpserver.Route {
	bodies := httpserver.NewBodies(a.config.Server.MaxBodies)
	return []httpserver.Route{
		{Method: http.MethodPost, Path: "/events", Handler: a.deliveries.Receive, Internal: true, CheckHead: a.deliveries.Authenticate, Bodies: bodies},
		{Method: http.MethodPost, Path: "/heartbeats", Handler: a.deliveries.ReceiveHeartbeat, Internal: true, CheckHead: a.deliveries.Authenticate, Bodies: bodies},
		{Method: http.MethodPost, Path: "/dead-letters", Handler: a.deliveries.ReceiveDeadLetter, Internal: true, CheckHead: a.deliveries.Authenticate, Bodies: bodies},
		{Method: http.MethodPost, Path: base + "/import/prometheus", Handler: measure.Push, Internal: true, Encoded: true, Bodies: bodies, Parameters: true},
	}
}

// limited bounds the connections of both listeners, and adds TLS to the one of callers.
func (a *app) limited(listener, brokerListener net.Listener) (forCallers, forBroker net.Listener) {
	forCallers = a.server.Limit(listener)
	if a.certificates != nil {
		forCallers = tls.NewListener(forCallers, a.certificates.Config())
	}
	if brokerListener != nil {
		forBroker = a.server.LimitTotal(brokerListener)
	}
	return forCallers, forBroker
}

package app

import (
	"crypto/tls"
	"net"
	"net/http"

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
		httpserver.Open("/", page.Index),
		httpserver.Open("/page/:file", page.File),
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
	past := &handlers.History{Store: a.history, Inventory: inv, Access: a.auth, Timeout: a.config.APITimeout, Log: a.component("history")}
	manifests := &handlers.Manifests{
		Inventory: inv, API: a.kubernetes, Cache: a.cache, CacheTTL: a.config.Cache.TTL, Timeout: a.config.APITimeout, Log: a.component("httpserver"),
	}
	all := []httpserver.Route{
		httpserver.Read(base+"/infrastructure", inv.ShowInfrastructure),
		httpserver.ReadByNamespace(base+"/clusters", inv.List(inventory.TopicClusters)),
		httpserver.ReadByNamespace(base+"/clusters/:id", inv.ShowCluster),
		httpserver.ReadByNamespace(base+"/clusters/:id/timeline", past.ShowTimeline),
		httpserver.ReadByNamespace(base+"/clusters/:id/manifests", manifests.Show),
		httpserver.ReadByNamespace(base+"/resources", inv.ListResources),
		httpserver.ReadByNamespace(base+"/resources/:id", inv.ShowResource),
		httpserver.ReadByNamespace(base+"/events", past.ListEvents),
		httpserver.Read(base+"/dead-letters", past.ListDeadLetters),
	}
	for _, topic := range inventory.Topics {
		if topic == inventory.TopicClusters {
			continue
		}
		route := httpserver.Read
		if handlers.HasNamespaces(topic) {
			route = httpserver.ReadByNamespace
		}
		path := base + "/" + string(topic)
		all = append(all, route(path, inv.List(topic)), route(path+"/:id", inv.Show(topic)))
	}
	return all
}

// callerRoutes serve the stream, previews, sessions, and events of external systems.
func (a *app) callerRoutes(inv *handlers.Inventory) []httpserver.Route {
	streams := &handlers.Stream{Inventory: inv, Hub: a.hub, ClientAddress: a.server.ClientAddress}
	bodies := httpserver.NewBodies(a.config.Server.MaxBodies)
	read := auth.Requirement{Scope: auth.ScopeRead}
	return []httpserver.Route{
		{Method: http.MethodGet, Path: "/events/stream", Handler: streams.Serve, Access: read, RateLimited: true, OwnBucket: true},
		{Method: http.MethodGet, Path: base + "/stream", Handler: streams.Serve, Access: read, RateLimited: true, OwnBucket: true},
		{Method: http.MethodPost, Path: base + "/preview", Handler: inv.Preview, Access: auth.Requirement{Scope: auth.ScopeRead, ByNamespace: true}, RateLimited: true, Bodies: bodies},
		{Method: http.MethodPost, Path: base + "/events", Handler: a.external.Receive, RateLimited: true, Bodies: bodies, CheckHead: a.external.CheckHead},
		{Method: http.MethodGet, Path: base + "/session", Handler: a.auth.ShowSession, RateLimited: true, OwnBucket: true},
		{Method: http.MethodPost, Path: base + "/session", Handler: a.auth.BeginSession, RateLimited: true, Bodies: bodies},
		{Method: http.MethodDelete, Path: base + "/session", Handler: a.auth.EndSession, RateLimited: true},
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
			httpserver.Open(prefix+"/health/database", a.health.ShowDatabase),
			httpserver.Open(prefix+"/health/cache", a.health.ShowCache),
			httpserver.Open(prefix+"/ready", a.health.ShowReady),
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
		{Method: http.MethodPost, Path: "/dead-letters", Handler: a.deliveries.ReceiveDeadLetter, Internal: true, CheckHead: a.deliveries.Authenticate, Bodies: bodies},
		{Method: http.MethodPost, Path: base + "/import/prometheus", Handler: measure.Push, Internal: true, Encoded: true, Bodies: bodies},
	}
}

// limited bounds the connections of both listeners, and adds TLS to the one of callers.
func (a *app) limited(listener, brokerListener net.Listener) (forCallers, forBroker net.Listener) {
	forCallers = a.server.Limit(listener)
	if a.certificates != nil {
		forCallers = tls.NewListener(forCallers, a.certificates.Config())
	}
	if brokerListener != nil {
		forBroker = a.server.LimitAll(brokerListener)
	}
	return forCallers, forBroker
}

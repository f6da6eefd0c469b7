package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	victoria "github.com/VictoriaMetrics/metrics"
	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// meters are the gateway's metrics.
type meters struct {
	registry   metrics.Registry
	pushed     metrics.Pushed
	requests   *metrics.Family
	durations  *metrics.Family
	events     *metrics.Family
	deliveries *metrics.Family
	layers     map[inventory.Topic]*victoria.PrometheusHistogram
	hits       map[string]*victoria.Counter
	misses     map[string]*victoria.Counter
	commit     *victoria.PrometheusHistogram
	// once are the objects that have been ready, so that the time until then is
	// counted once.
	once map[string]struct{}
}

// fast are the bounds of durations of requests, and of other quick things; slow
// those of what a layer takes.
var (
	fast = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

// layerOf names the layers of the pipeline, by the topic of their objects.
var layerOf = map[inventory.Topic]string{
	inventory.TopicNetworks: "network", inventory.TopicAddresses: "address", inventory.TopicMachines: "machine", inventory.TopicClusters: "cluster",
}

func newMeters(g *gateway) *meters {
	m := &meters{once: map[string]struct{}{}, layers: map[inventory.Topic]*victoria.PrometheusHistogram{}}
	m.registry.Fresh = g.config.Handlers.MetricsInterval
	r := &m.registry
	gauge := func(name, help string, labels []string, collect func(add addSeries)) {
		r.Collected(metrics.Gauge, name, help, labels, func(add func(float64, ...string)) { collect(add) })
	}
	gauge("vitistack_operator_info", "Operator information", []string{"version"}, func(add addSeries) { add(1, version) })
	gauge("vitistack_operator_clusters_total", "Total number of managed clusters", []string{"status", "type"},
		func(add addSeries) { countClusters(g.store.Current(), add) })
	gauge("vitistack_operator_machines_total", "Total number of managed machines", []string{"operator", "status", "cluster"},
		func(add addSeries) { countMachines(g.store.Current(), g.config.Metrics.MaxSeries, add) })
	m.requests = r.Counter("vitistack_operator_api_requests_total", "Total API requests", "method", "endpoint", "status")
	m.durations = r.Histogram("vitistack_operator_api_request_duration_seconds", "API request duration", fast, "method", "endpoint")
	hits := r.Counter("vitistack_operator_cache_hits_total", "Cache hit count", "cache_type")
	misses := r.Counter("vitistack_operator_cache_misses_total", "Cache miss count", "cache_type")
	m.hits = map[string]*victoria.Counter{cache.Memory: hits.Count(cache.Memory), cache.Redis: hits.Count(cache.Redis)}
	m.misses = map[string]*victoria.Counter{cache.Memory: misses.Count(cache.Memory), cache.Redis: misses.Count(cache.Redis)}
	gauge("vitistack_operator_operator_status", "Operator health status", []string{"operator", "status"},
		func(add addSeries) { countOperators(g.store.Current(), add) })
	m.events = r.Counter("vitistack_operator_events_processed_total", "Processed event count", "event_type", "status")
	gauge("vitistack_operator_database_connections", "Database connection count", []string{"state"}, func(add addSeries) {
		s := g.history.Stats()
		add(float64(s.OpenConnections), "open")
		add(float64(s.InUse), "in_use")
		add(float64(s.Idle), "idle")
	})
	m.pipeline(g, gauge)
	m.stream(g, gauge)
	r.Collected(metrics.Counter, "vitistack_operator_pushed_series_refused_total", "Series of functions that were left out, being none, invalid or too many", nil,
		func(add func(float64, ...string)) { add(float64(m.pushed.Refused())) })
	processMeters(r, float64(g.started.UnixMilli())/1000)
	return m
}

// addSeries tells one series of a family.
type addSeries = func(value float64, labels ...string)

// pipeline adds what the layers take, who waits for what, and what is free.
func (m *meters) pipeline(g *gateway, gauge func(string, string, []string, func(addSeries))) {
	layers := m.registry.Histogram("vitistack_pipeline_layer_duration_seconds", "Time from an object's creation until it was ready, by layer", slow, "layer")
	for topic, layer := range layerOf {
		m.layers[topic] = layers.Observe(layer)
	}
	gauge("vitistack_pipeline_waiting_objects", "Objects that are not ready, by layer and reason", []string{"layer", "reason"},
		func(add addSeries) { countWaiting(g.store.Current(), add) })
	gauge("vitistack_network_free_addresses", "Addresses of a network that can be given out", []string{"namespace", "network"},
		func(add addSeries) { countFree(g.store.Current(), g.config.Metrics.MaxSeries, add) })
	gauge("vitistack_orphans", "Things that the stack made at a backend for objects that do not exist", []string{"backend"}, func(add addSeries) {
		for _, backend := range inventory.OrphanBackends {
			add(float64(g.store.Current().Orphans(backend)), backend)
		}
	})
	m.deliveries = m.registry.Counter("vitistack_operator_event_deliveries_total", "Tries to tell an endpoint of an event, by outcome: delivered, retried or dead", "endpoint", "outcome")
	m.commit = m.registry.Histogram("vitistack_operator_snapshot_duration_seconds", "Time to make a snapshot", fast).Observe()
}

// stream adds the event stream.
func (m *meters) stream(g *gateway, gauge func(string, string, []string, func(addSeries))) {
	gauge("vitistack_operator_sse_clients", "Clients of the event stream", nil, func(add addSeries) { add(float64(g.hub.Stats().Clients)) })
	counter := func(name, help string, value func() uint64) {
		m.registry.Collected(metrics.Counter, name, help, nil, func(add func(float64, ...string)) { add(float64(value())) })
	}
	counter("vitistack_operator_sse_frames_total", "Frames published to the event stream", func() uint64 { return g.hub.Stats().Frames })
	counter("vitistack_operator_sse_snapshots_total", "Snapshots sent to clients of the event stream", func() uint64 { return g.hub.Stats().Snapshots })
	counter("vitistack_operator_sse_resumed_total", "Clients of the event stream that went on where they were", func() uint64 { return g.hub.Stats().Resumed })
	counter("vitistack_operator_sse_lagging_total", "Times that a client of the event stream fell behind and got a fresh snapshot", func() uint64 { return g.hub.Stats().Lagging })
	counter("vitistack_operator_connections_displaced_total", "Connections that were closed to make room for others", g.displaced.Load)
	counter("vitistack_operator_sse_refused_total", "Clients of the event stream that were one too many", func() uint64 { return g.hub.Stats().Refused })
}

// event counts what became of an event.
func (m *meters) event(g *gateway, eventType, outcome string, n int) {
	if g.config.Handlers.Metrics {
		m.events.Count(eventType, outcome).Add(n)
	}
}

// cached counts a look at a level of the cache.
func (m *meters) cached(level string, hit bool) {
	if hit {
		m.hits[level].Inc()
	} else {
		m.misses[level].Inc()
	}
}

// begin takes note of the objects that are ready at the start: how long they took
// was counted by whoever was there.
func (m *meters) begin(s *inventory.Snapshot) {
	for topic := range m.layers {
		for _, i := range s.Collection(topic).Items {
			if i.Story.Ready {
				m.once[i.ID] = struct{}{}
			}
		}
	}
}

// observe counts how long objects took that have just become ready.
func (m *meters) observe(changes []inventory.Change) {
	for _, change := range changes {
		histogram := m.layers[change.Topic]
		if histogram == nil {
			continue
		}
		for _, i := range change.Became {
			if _, before := m.once[i.ID]; !before {
				m.once[i.ID] = struct{}{}
				histogram.Update(max(i.Story.Since.Sub(i.Created).Seconds(), 0))
			}
		}
		for _, i := range change.Removes {
			delete(m.once, i.ID)
		}
	}
}

// endpointMeter counts the requests of one endpoint.
type endpointMeter struct {
	meters *meters
	label  string
	// counts has the counters of the usual methods and status codes, so that a
	// request need not look one up by its name.
	counts    [2][600]atomic.Pointer[victoria.Counter]
	durations [2]*victoria.PrometheusHistogram
}

func (m *meters) endpoint(label string) *endpointMeter {
	return &endpointMeter{meters: m, label: label, durations: [2]*victoria.PrometheusHistogram{
		m.durations.Observe(fiber.MethodGet, label), m.durations.Observe(fiber.MethodPost, label),
	}}
}

func (e *endpointMeter) done(method string, status int, took time.Duration) {
	kind := -1
	switch method {
	case fiber.MethodGet:
		kind = 0
	case fiber.MethodPost:
		kind = 1
	case fiber.MethodHead, fiber.MethodOptions, fiber.MethodPut, fiber.MethodDelete, fiber.MethodPatch:
	default:
		method = "other"
	}
	if kind < 0 || status >= 600 {
		e.meters.requests.Count(method, e.label, strconv.Itoa(status)).Inc()
		e.meters.durations.Observe(method, e.label).Update(took.Seconds())
		return
	}
	counter := e.counts[kind][status].Load()
	if counter == nil {
		counter = e.meters.requests.Count(method, e.label, strconv.Itoa(status))
		e.counts[kind][status].Store(counter)
	}
	counter.Inc()
	e.durations[kind].Update(took.Seconds())
}

// serveMetrics writes all metrics.
func (g *gateway) serveMetrics(c *fiber.Ctx) error {
	var b bytes.Buffer
	g.metrics.registry.Write(&b)
	g.metrics.pushed.Write(&b)
	c.Context().Response.Header.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	c.Context().Response.SetBodyRaw(b.Bytes())
	return nil
}

// mostPushed bounds what a function pushes at once.
const mostPushed = 1 << 20

// takeMetrics takes what a function has counted, so that it is not lost when the
// function scales to zero.
func (g *gateway) takeMetrics(c *fiber.Ctx) error {
	var body io.Reader = bytes.NewReader(bytes.Clone(c.Request().Body()))
	if strings.EqualFold(c.Get(fiber.HeaderContentEncoding), "gzip") {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return problem.New(http.StatusBadRequest, "the body is no gzip")
		}
		body = unpacked
	}
	text, err := io.ReadAll(io.LimitReader(body, mostPushed+1))
	push := pushedMetrics{Text: string(text), Ended: c.QueryBool("ended")}
	if err != nil || len(text) > mostPushed || g.addMetrics(push) != nil {
		return problem.New(http.StatusBadRequest, "the body cannot be read: push metrics in the text format of Prometheus, of 1 MiB at most")
	}
	g.share(sharedEvent{Metrics: &push})
	c.Status(http.StatusNoContent)
	return nil
}

// pushedMetrics is what a process has counted, and whether it has ended.
type pushedMetrics struct {
	Text  string `json:"text"`
	Ended bool   `json:"ended,omitempty"`
}

func (g *gateway) addMetrics(p pushedMetrics) error {
	if _, err := g.metrics.pushed.Take(strings.NewReader(p.Text), p.Ended, time.Now()); err != nil {
		return err
	}
	g.hub.Deliver(g.metrics.pushed.Deliveries())
	return nil
}

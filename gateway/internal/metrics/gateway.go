package metrics

import (
	"database/sql"
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// Sources are where the metrics of the gateway's state are read at each scrape.
type Sources struct {
	Snapshot func() *inventory.Snapshot
	Stream   func() stream.Stats
	Database func() sql.DBStats
	// DatabaseUp reports whether the database works.
	DatabaseUp func() bool
	// Displaced returns how many connections were closed to make room for others.
	Displaced func() uint64
	// Heartbeats returns the dependencies whose heartbeats the gateway expects, with the exact times of the last ones.
	Heartbeats func() []inventory.Dependency
}

// Options are the settings of Gateway.
type Options struct {
	Version string
	Started time.Time
	// Fresh is the time for which metrics of the inventory are not computed again.
	Fresh time.Duration
	// MaxSeries bounds the values of labels that come from objects.
	MaxSeries int
	// CountEvents counts events by type and outcome.
	CountEvents bool
}

// Gateway holds the metrics of the gateway, and the metrics that functions push to it.
type Gateway struct {
	// Pushed are the metrics of functions.
	Pushed Pushed

	countEvents bool
	registry    Registry
	requests    *Family
	durations   *Family
	events      *Family
	deliveries  *Family
	nodeEvents  *Family
	forwarded   *Family
	refused     *Family
	layers      map[inventory.Topic]*metrics.PrometheusHistogram
	hits        map[string]*metrics.Counter
	misses      map[string]*metrics.Counter
	commit      *metrics.PrometheusHistogram
	// timed are the ids of objects that have been ready, so that the time until then is counted once.
	timed map[string]struct{}
}

// Bounds of histograms in seconds: fast for requests and snapshots, slow for the layers.
var (
	fast = []float64{.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow = []float64{.1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600}
)

// layerOf returns the layer of the pipeline that the objects of a topic belong to.
var layerOf = map[inventory.Topic]string{
	inventory.TopicNetworks: "network", inventory.TopicAddresses: "address", inventory.TopicMachines: "machine", inventory.TopicClusters: "cluster",
}

// addSeries adds one series of a family.
type addSeries = func(value float64, labels ...string)

// NewGateway declares all metrics, in the order in which Write writes them.
func NewGateway(o Options, from Sources) *Gateway {
	m := &Gateway{countEvents: o.CountEvents, timed: map[string]struct{}{}, layers: map[inventory.Topic]*metrics.PrometheusHistogram{}}
	m.registry.Fresh = o.Fresh
	r := &m.registry
	r.gauge("vitistack_operator_info", "Operator information", []string{"version"}, func(add addSeries) { add(1, o.Version) })
	r.gauge("vitistack_operator_clusters_total", "Total number of managed clusters", []string{"status", "type"},
		func(add addSeries) { countClusters(from.Snapshot(), add) })
	r.gauge("vitistack_operator_machines_total", "Total number of managed machines", []string{"operator", "status", "cluster"},
		func(add addSeries) { countMachines(from.Snapshot(), o.MaxSeries, add) })
	m.requests = r.Counter("vitistack_operator_api_requests_total", "Total API requests", "method", "endpoint", "status")
	m.durations = r.Histogram("vitistack_operator_api_request_duration_seconds", "API request duration", fast, "method", "endpoint")
	hits := r.Counter("vitistack_operator_cache_hits_total", "Cache hit count", "cache_type")
	misses := r.Counter("vitistack_operator_cache_misses_total", "Cache miss count", "cache_type")
	m.hits = map[string]*metrics.Counter{cache.Memory: hits.Count(cache.Memory), cache.Redis: hits.Count(cache.Redis)}
	m.misses = map[string]*metrics.Counter{cache.Memory: misses.Count(cache.Memory), cache.Redis: misses.Count(cache.Redis)}
	r.gauge("vitistack_operator_operator_status", "Operator health status", []string{"operator", "status"},
		func(add addSeries) { countOperators(from.Snapshot(), add) })
	m.events = r.Counter("vitistack_operator_events_processed_total", "Processed event count", "event_type", "status")
	r.gauge("vitistack_operator_database_connections", "Database connection count", []string{"state"}, func(add addSeries) {
		s := from.Database()
		add(float64(s.OpenConnections), "open")
		add(float64(s.InUse), "in_use")
		add(float64(s.Idle), "idle")
	})
	r.gauge("vitistack_operator_database_up", "Whether the database of the history works", nil, func(add addSeries) {
		up := 0.0
		if from.DatabaseUp() {
			up = 1
		}
		add(up)
	})
	r.gauge("vitistack_backend_up", "Whether a server of a backend answers and can be used", []string{"backend", "server"},
		func(add addSeries) { addServers(from.Snapshot(), add) })
	r.gauge("vitistack_backend_last_seen_timestamp_seconds", "Time at which a server of a backend last answered, to the minute", []string{"backend", "server"},
		func(add addSeries) { addLastSeen(from.Snapshot(), add) })
	r.gauge("vitistack_heartbeat_up", "Whether the Broker, an ApiServerSource or resync works, by its last heartbeat. No series while that is unknown", []string{"dependency", "name"},
		func(add addSeries) { addHeartbeats(from.Heartbeats(), add) })
	r.gauge("vitistack_heartbeat_last_timestamp_seconds", "Time of the last heartbeat of the Broker, an ApiServerSource or resync", []string{"dependency", "name"},
		func(add addSeries) { addLastHeartbeats(from.Heartbeats(), add) })
	r.gauge("vitistack_etcd_backup_ready", "Whether an EtcdBackup is Ready", []string{"namespace", "backup"},
		func(add addSeries) { addBackups(from.Snapshot(), o.MaxSeries, add) })
	r.gauge("vitistack_etcd_backup_last_success_timestamp_seconds", "Time at which the newest snapshot of an EtcdBackup with a schedule was due. No series while it is suspended", []string{"namespace", "backup"},
		func(add addSeries) { addLastBackups(from.Snapshot(), o.MaxSeries, add) })
	r.gauge("vitistack_cluster_template_clusters", "Clusters of a ClusterTemplate, by their state in the rollout", []string{"template", "state"},
		func(add addSeries) { countFollowers(from.Snapshot(), o.MaxSeries, add) })
	m.addPipeline(from.Snapshot, o.MaxSeries)
	m.addStream(from)
	m.nodeEvents = r.Counter("vitistack_operator_node_events_received_total", "Events that Talos nodes have sent, by outcome", "outcome")
	m.forwarded = r.Counter("vitistack_operator_node_events_forwarded_total", "Requests for a reconcile of a cluster because of events of its nodes, by outcome: sent or failed", "outcome")
	m.refused = r.Counter("vitistack_operator_node_connections_refused_total", "Connections for events of nodes that were closed at once, by reason: unknown_address or limit", "reason")
	r.counter("vitistack_operator_pushed_series_refused_total", "Pushed series that were refused, because they are unknown, invalid or too many", m.Pushed.Refused)
	addProcess(r, float64(o.Started.UnixMilli())/1000)
	return m
}

// Description is what the reference says about a family.
type Description struct {
	Name, Kind, Help string
	Labels           []string
}

// Describe returns the families that the gateway declares, in the order in which Write writes them. Pushed metrics are not among them.
func (m *Gateway) Describe() []Description {
	var all []Description
	for _, f := range m.registry.Families() {
		all = append(all, Description{f.Name, f.Kind, f.Help, f.labels})
	}
	return all
}

// gauge declares a gauge that is read at each scrape.
func (r *Registry) gauge(name, help string, labels []string, collect func(addSeries)) {
	r.Collected(Gauge, name, help, labels, collect)
}

// counter declares a counter without labels that is read at each scrape.
func (r *Registry) counter(name, help string, value func() uint64) {
	r.Collected(Counter, name, help, nil, func(add func(float64, ...string)) { add(float64(value())) })
}

// addPipeline declares the metrics of the layers, of objects that are not ready, of free addresses and of deliveries.
func (m *Gateway) addPipeline(snapshot func() *inventory.Snapshot, maxSeries int) {
	r := &m.registry
	layers := r.Histogram("vitistack_pipeline_layer_duration_seconds", "Time from an object's creation until it was ready, by layer", slow, "layer")
	for topic, layer := range layerOf {
		m.layers[topic] = layers.Observe(layer)
	}
	r.gauge("vitistack_pipeline_waiting_objects", "Objects that are not ready, by layer and reason", []string{"layer", "reason"},
		func(add addSeries) { countWaiting(snapshot(), add) })
	r.gauge("vitistack_pipeline_overdue_objects", "Objects that have not been ready for an hour, by layer and reason", []string{"layer", "reason"},
		func(add addSeries) { countOverdue(snapshot(), time.Now(), add) })
	r.gauge("vitistack_network_free_addresses", "Addresses of a network that can be allocated", []string{"namespace", "network"},
		func(add addSeries) {
			countAddresses(snapshot(), maxSeries, func(n *inventory.Network) int64 { return n.Free }, add)
		})
	r.gauge("vitistack_network_addresses", "Addresses of a network, allocated or not", []string{"namespace", "network"},
		func(add addSeries) {
			countAddresses(snapshot(), maxSeries, func(n *inventory.Network) int64 { return n.Total }, add)
		})
	r.gauge("vitistack_orphans", "Resources that the stack created at a backend for objects that do not exist", []string{"backend"}, func(add addSeries) {
		for _, backend := range inventory.OrphanBackends {
			add(float64(snapshot().Orphans(backend)), backend)
		}
	})
	m.deliveries = r.Counter("vitistack_operator_event_deliveries_total", "Attempts to deliver an event to an endpoint, by outcome: delivered, retried or dead", "endpoint", "outcome")
	m.commit = r.Histogram("vitistack_operator_snapshot_duration_seconds", "Time to make a snapshot", fast).Observe()
}

// addStream declares the metrics of the stream and of connections.
func (m *Gateway) addStream(from Sources) {
	r := &m.registry
	r.gauge("vitistack_operator_sse_clients", "Clients of the event stream", nil, func(add addSeries) { add(float64(from.Stream().Clients)) })
	r.counter("vitistack_operator_sse_frames_total", "Frames published to the event stream", func() uint64 { return from.Stream().Frames })
	r.counter("vitistack_operator_sse_snapshots_total", "Snapshots sent to clients of the event stream", func() uint64 { return from.Stream().Snapshots })
	r.counter("vitistack_operator_sse_resumed_total", "Clients of the event stream that resumed", func() uint64 { return from.Stream().Resumed })
	r.counter("vitistack_operator_sse_lagging_total", "Clients of the event stream that fell behind and got a new snapshot", func() uint64 { return from.Stream().Lagging })
	r.counter("vitistack_operator_connections_displaced_total", "Connections that were closed to make room for others", from.Displaced)
	r.counter("vitistack_operator_sse_refused_total", "Clients of the event stream that were refused by a limit", func() uint64 { return from.Stream().Refused })
}

// Write writes all metrics in the text format of Prometheus.
func (m *Gateway) Write(w io.Writer) {
	m.registry.Write(w)
	m.Pushed.DropStale(time.Now())
	m.Pushed.Write(w)
}

// Event counts n events of a type with an outcome.
func (m *Gateway) Event(eventType, outcome string, n int) {
	if m.countEvents {
		m.events.Count(eventType, outcome).Add(n)
	}
}

// DeclareEvents makes the counters of types of events with an outcome exist at 0, because an alert on their increase does not see the
// first event of a counter that begins with it.
func (m *Gateway) DeclareEvents(outcome string, types ...string) {
	for _, t := range types {
		m.Event(t, outcome, 0)
	}
}

// DeclareDeliveries makes the counter of an endpoint with an outcome exist at 0.
func (m *Gateway) DeclareDeliveries(endpoint, outcome string) { m.deliveries.Count(endpoint, outcome) }

// Delivery counts an attempt to deliver an event to an endpoint.
func (m *Gateway) Delivery(endpoint, outcome string) { m.deliveries.Count(endpoint, outcome).Inc() }

// DeclareNodeEvents makes the counters of events of nodes exist at 0.
func (m *Gateway) DeclareNodeEvents(outcomes, forwarded, refused []string) {
	for family, values := range map[*Family][]string{m.nodeEvents: outcomes, m.forwarded: forwarded, m.refused: refused} {
		for _, v := range values {
			family.Count(v)
		}
	}
}

// NodeEvent counts an event of a node.
func (m *Gateway) NodeEvent(outcome string) { m.nodeEvents.Count(outcome).Inc() }

// NodeEventForwarded counts a request for a reconcile because of events of nodes.
func (m *Gateway) NodeEventForwarded(outcome string) { m.forwarded.Count(outcome).Inc() }

// NodeConnectionRefused counts a connection for events of nodes that was closed at once.
func (m *Gateway) NodeConnectionRefused(reason string) { m.refused.Count(reason).Inc() }

// Commit observes the time that a snapshot took.
func (m *Gateway) Commit(took time.Duration) { m.commit.Update(took.Seconds()) }

// Cached counts a lookup in a level of the cache.
func (m *Gateway) Cached(level string, hit bool) {
	if hit {
		m.hits[level].Inc()
	} else {
		m.misses[level].Inc()
	}
}

// Begin marks the objects that are ready at the start as timed. An earlier process has counted them.
func (m *Gateway) Begin(s *inventory.Snapshot) {
	for topic := range m.layers {
		for _, i := range s.Collection(topic).Items {
			if i.Readiness.Ready {
				m.timed[i.ID] = struct{}{}
			}
		}
	}
}

// Changed observes the time until objects became ready. Calls must not overlap.
func (m *Gateway) Changed(changes []inventory.Change) {
	for _, change := range changes {
		histogram := m.layers[change.Topic]
		if histogram == nil {
			continue
		}
		for _, i := range change.Became {
			if _, before := m.timed[i.ID]; !before {
				m.timed[i.ID] = struct{}{}
				histogram.Update(max(i.Readiness.Since.Sub(i.Created).Seconds(), 0))
			}
		}
		for _, i := range change.Removes {
			delete(m.timed, i.ID)
		}
	}
}

package config

import (
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/cluster/addons"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
)

// Keys are all the settings, each bound to its place in c, in the order in which
// they are documented.
func (c *Config) Keys() []Key {
	return join(
		c.general(), c.server(), c.middleware(), c.stream(), c.operators(),
		c.database(), c.handlers(), c.cache(), c.auth(), c.tls(), c.ingest(), c.preview(), c.oidc(),
	)
}

func join(groups ...[]Key) []Key {
	var all []Key
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

func (c *Config) general() []Key {
	return []Key{
		text(&c.LogLevel, "log.level", "LOG_LEVEL", "info", "How much is logged: debug, info, warn or error.", "debug", "info", "warn", "error"),
		duration(&c.APITimeout, "api.timeout", "API_TIMEOUT", "30s", time.Second, "How long a request may take."),
		duration(&c.HealthCheckInterval, "health.checkInterval", "HEALTH_CHECK_INTERVAL", "30s", time.Second, "How often database, cache and operators are checked."),
		address(&c.SinkURL, "broker.sink", "K_SINK", "Address of the Broker, which a SinkBinding sets. Empty means that domain events are not sent to a Broker, and everything else to the address in the status of Broker vitistack."),
		duration(&c.ResyncPeriod, "resync.period", "RESYNC_PERIOD", "1m", time.Second, "Interval at which the gateway requests a reconcile of an object that stays due from the function resync. The first request follows a third of it after the last write of the object."),
		schedule(&c.HeartbeatSchedule, "heartbeat.schedule", "HEARTBEAT_SCHEDULE", "*/10 * * * * *", "Schedule of PingSource heartbeat, in its syntax. Without an event for three intervals, Broker or event source is unhealthy. Empty means that no heartbeat is expected."),
		schedule(&c.ResyncSchedule, "resync.schedule", "RESYNC_SCHEDULE", "*/10 * * * *", "Schedule of PingSource resync, in its syntax. Without a full round for three intervals, resync is unhealthy. Empty means that no round is expected."),
		duration(&c.NodeProbeInterval, "nodes.probeInterval", "NODE_PROBE_INTERVAL", "10s", time.Second, "How often the nodes and endpoints of Running clusters are dialled. A cluster is reconciled when one of them fails to answer twice."),
		hostPort(&c.NodeEventsAddress, "nodes.eventsAddress", "NODE_EVENTS_ADDRESS", "Address on which events of Talos nodes are received, such as :9993. Set NODE_EVENTS_ENDPOINT of bootstrap-talos to where nodes reach it. Empty means that none are received."),
		boolean(&c.Metrics.Enabled, "metrics.enabled", "METRICS_ENABLED", true, "Whether /metrics is served."),
		integer(&c.Metrics.MaxSeries, "metrics.maxSeries", "", 1000, bounds{1, 1_000_000}, "Clusters and networks with metric series of their own; the rest is counted as _other."),
	}
}

func (c *Config) server() []Key {
	s := &c.Server
	return []Key{
		text(&s.Host, "server.host", "", "0.0.0.0", "Address to listen on."),
		integer(&s.Port, "server.port", "PORT", 9991, bounds{0, 65535}, "Port to listen on. 0 means any free one."),
		duration(&s.ReadTimeout, "server.readTimeout", "", "30s", time.Second, "Read timeout of a request, head and body together."),
		duration(&s.WriteTimeout, "server.writeTimeout", "", "30s", time.Second, "Write timeout of a response."),
		duration(&s.IdleTimeout, "server.idleTimeout", "", "120s", time.Second, "Idle timeout of a connection."),
		integer(&s.MaxHeaderBytes, "server.maxHeaderBytes", "", 1<<20, bounds{4096, 16 << 20}, "Largest head of a request in bytes."),
		integer(&s.MaxBodyBytes, "server.maxBodyBytes", "", 2<<20, bounds{1024, 64 << 20}, "Largest body of a request in bytes."),
		integer(&s.MaxBodies, "server.maxBodies", "", 16, bounds{1, 10_000}, "Bodies above 8 KiB that are read at once, at each port. A new body ends the oldest one."),
		integer(&s.MaxConnections, "server.maxConnections", "", 512, bounds{16, 1_000_000}, "Connections at once, at each port, without those of the event stream. A new connection closes the one that has been idle longest."),
		integer(&s.MaxConnectionsPerAddress, "server.maxConnectionsPerAddress", "", 128, bounds{1, 1_000_000}, "Connections at once from one IPv4 address or IPv6 /64. Trusted proxies and the Broker's port are exempt."),
		list(&s.TrustedProxies, "server.trustedProxies", "", "Addresses or prefixes of proxies whose X-Forwarded-For is trusted."),
		list(&s.AllowedHosts, "server.allowedHosts", "", "Names by which browsers reach the gateway while auth.enabled is false, such as vitistack.example.com or *.example.com, beside addresses, localhost and names of Services."),
		integer(&s.BrokerPort, "server.brokerPort", "", 0, bounds{0, 65535}, "Separate port for the Broker, which a NetworkPolicy can protect. 0 means server.port."),
	}
}

func (c *Config) middleware() []Key {
	l, o, r := &c.Logging, &c.CORS, &c.RateLimit
	return []Key{
		boolean(&l.Enabled, "logging.enabled", "", true, "Whether each request is logged."),
		key("string", "logging.format", "LOGGING_FORMAT", "json", "Format of the access log. json is the only one.", only("json")),
		boolean(&l.IncludeHeaders, "logging.includeHeaders", "", false, "Whether the access log has the request's headers. Credentials are left out."),
		list(&l.ExcludePaths, "logging.excludePaths", "/health,/ready", "Paths that are not logged, with everything below them."),
		boolean(&o.Enabled, "cors.enabled", "", true, "Whether pages of other origins may call the API."),
		list(&o.AllowedOrigins, "cors.allowedOrigins", "*", "Origins that may call the API; * means any."),
		list(&o.AllowedMethods, "cors.allowedMethods", "GET,POST,PUT,DELETE", "Methods that these origins may use."),
		list(&o.AllowedHeaders, "cors.allowedHeaders", "Content-Type,Authorization,If-None-Match,Last-Event-ID,X-Request-ID", "Headers that these origins may send."),
		list(&o.ExposedHeaders, "cors.exposedHeaders", "X-Total-Count,ETag,Link,X-Request-ID,Retry-After,RateLimit,RateLimit-Policy", "Headers that these origins may read."),
		integer(&o.MaxAge, "cors.maxAge", "", 86400, bounds{0, 1<<31 - 1}, "Seconds for which a browser may cache these rules."),
		boolean(&r.Enabled, "rateLimit.enabled", "", true, "Whether the request rate is limited. Health, metrics, the page, logouts and the Broker's deliveries have no limit."),
		integer(&r.RequestsPerMinute, "rateLimit.requestsPerMinute", "", 60, bounds{1, 1_000_000}, "Requests per minute and caller."),
		integer(&r.BurstSize, "rateLimit.burstSize", "", 10, bounds{1, 1_000_000}, "Requests in a burst."),
		text(&r.KeyGenerator, "rateLimit.keyGenerator", "", "ip", "How callers are distinguished: ip by IPv4 address or IPv6 /64, key by API key or, without a key, by address.", "ip", "key"),
	}
}

func only(value string) func(string) error {
	var ignored string
	return text(&ignored, "", "", "", "", value).set
}

func (c *Config) stream() []Key {
	s := &c.Stream
	return []Key{
		integer(&s.MaxClients, "stream.maxClients", "", 10000, bounds{1, 1_000_000}, "Clients of the event stream at once."),
		integer(&s.MaxClientsPerAddress, "stream.maxClientsPerAddress", "", 20, bounds{1, 1_000_000}, "Clients of the event stream at once from one IPv4 address or IPv6 /64."),
		duration(&s.Heartbeat, "stream.heartbeat", "", "4s", time.Second, "Interval of heartbeats on a stream without changes."),
		duration(&s.Window, "stream.window", "", "200ms", time.Millisecond, "Time for which changes are collected into one frame after the first change."),
	}
}

// operators returns the keys for the endpoints of operators, which can be probed.
func (c *Config) operators() (all []Key) {
	if c.Operators == nil {
		c.Operators = map[string]*Operator{}
	}
	for _, kind := range backend.Operators() {
		o, name, env := &Operator{}, kind.Name, strings.ToUpper(kind.Name)
		interval := strconv.Itoa(int(kind.Operator.SyncInterval.Seconds())) + "s"
		c.Operators[name] = o
		all = append(all,
			address(&o.Endpoint, "operators."+name+".endpoint", env+"_OPERATOR_ENDPOINT", "Address of the "+name+" operator's API, which is polled for its status. Empty means that the status is derived from its resources."),
			text(&o.Namespace, "operators."+name+".namespace", env+"_OPERATOR_NAMESPACE", kind.Operator.Namespace, "Namespace of the "+name+" operator."),
			duration(&o.SyncInterval, "operators."+name+".syncInterval", env+"_SYNC_INTERVAL", interval, time.Second, "Interval of the polls."),
		)
	}
	return all
}

// preview returns the keys with the settings of the functions that previews decide by. Their variables are those of
// the functions, except for ALLOWED_ENDPOINTS, which the gateway has for its own connections.
func (c *Config) preview() []Key {
	p := &c.Preview
	endpoints := text(&p.AllowedEndpoints, "preview.allowedEndpoints", "", "", "ALLOWED_ENDPOINTS of create-vm, whose hosts may serve images.")
	endpoints.Env = append(endpoints.Env, outbound.Variable)
	return []Key{
		text(&p.NetworkPools, "preview.networkPools", segmentplan.PoolsVariable, "required", "NETWORK_POOLS of provision-network: whether a namespace needs a NetworkPool."),
		text(&p.SeparateDatacenters, "preview.separateDatacenters", segmentplan.DatacentersVariable, "", "SEPARATE_DATACENTERS of provision-network: data centres that share no bridge with another one."),
		text(&p.ImageHosts, "preview.imageHosts", machineplan.ImageHostsVariable, "", "ALLOWED_IMAGE_HOSTS of create-vm: hosts that may serve images."),
		text(&p.AddonHosts, "preview.addonHosts", addons.HostsVariable, "", "ALLOWED_ADDON_HOSTS of bootstrap-talos: hosts that may serve manifests of add-ons."),
		text(&p.ImageFactory, "preview.imageFactory", machineplan.ImageFactoryVariable, "", "IMAGE_FACTORY of create-vm, which may serve images."),
		endpoints,
		text(&p.TalosVersion, "preview.talosVersion", "TALOS_VERSION", versions.DefaultTalos, "TALOS_VERSION of bootstrap-talos: the version of clusters that name none."),
	}
}

func (c *Config) database() []Key {
	d := &c.Database
	return []Key{
		text(&d.URL, "database.url", "DATABASE_URL", "", "Database of the history: postgres://, mysql:// or sqlite://. Empty means an SQLite file in state.dir, memory: an in-memory database that ends with the process."),
		text(&d.StateDir, "state.dir", "", "", "Directory of the gateway's own data. Empty means /var/lib/vitistack if it is writable, or else vitistack in the user's state directory."),
		duration(&d.Retention, "history.retention", "", "720h", time.Hour, "How long events are kept."),
		integer(&d.MaxOpenConns, "db.maxOpenConns", "", 25, bounds{1, 10000}, "Connections to the database at once."),
		integer(&d.MaxIdleConns, "db.maxIdleConns", "", 5, bounds{0, 10000}, "Idle connections that are kept."),
		duration(&d.ConnMaxLifetime, "db.connMaxLifetime", "", "300s", 0, "Maximum lifetime of a connection. 0s means no limit."),
		duration(&d.ConnMaxIdleTime, "db.connMaxIdleTime", "", "60s", 0, "Maximum idle time of a connection. 0s means no limit."),
	}
}

func (c *Config) handlers() []Key {
	h, d, w := &c.Handlers, &c.Database, &c.Webhooks
	return []Key{
		boolean(&h.Database, "handlers.database.enabled", "", true, "Whether events are stored. If false, the history ends with the process."),
		integer(&d.BatchSize, "handlers.database.batchSize", "", 100, bounds{1, 10000}, "Events in one write to the database."),
		duration(&d.FlushInterval, "handlers.database.flushInterval", "", "10s", 10*time.Millisecond, "Longest time until an event is written that no sender waits for."),
		boolean(&w.Enabled, "handlers.webhook.enabled", "", false, "Whether events are sent to webhooks."),
		webhooks(&w.Endpoints, "handlers.webhook.endpoints", "Endpoints: name (the host and a hash of url), url, timeout (30s), retries (3; 410 and redirects are not retried), types, namespaces, secret or secretFile, which is read again when it changes."),
		boolean(&h.Metrics, "handlers.metrics.enabled", "", true, "Whether events are counted in the metrics."),
		duration(&h.MetricsInterval, "handlers.metrics.updateInterval", "", "5s", 0, "Maximum age of metrics that are computed from objects."),
	}
}

func (c *Config) cache() []Key {
	r := &c.Cache.Redis
	return []Key{
		duration(&c.Cache.TTL, "cache.ttl", "CACHE_TTL", "300s", time.Second, "Maximum time for which a value is cached."),
		text(&r.URL, "cache.redis.url", "REDIS_URL", "", "Redis, as redis://user:password@host:6379/0 or rediss:// for TLS. It overrides the keys below."),
		text(&r.Host, "cache.redis.host", "", "localhost", "Host of Redis. The gateway uses Redis if this or cache.redis.url is set."),
		integer(&r.Port, "cache.redis.port", "", 6379, bounds{1, 65535}, "Port of Redis."),
		integer(&r.DB, "cache.redis.db", "", 0, bounds{0, 1 << 16}, "Number of the database in Redis."),
		text(&r.Password, "cache.redis.password", "", "", "Password of Redis."),
		integer(&r.MaxRetries, "cache.redis.maxRetries", "", 3, bounds{0, 100}, "Retries of a request to Redis."),
		integer(&r.PoolSize, "cache.redis.poolSize", "", 10, bounds{1, 10000}, "Connections to Redis at once."),
	}
}

func (c *Config) auth() []Key {
	a := &c.Auth
	return []Key{
		boolean(&a.Enabled, "auth.enabled", "", false, "Whether the API requires a key. Health and the page's files need none."),
		text(&a.KeyHeader, "auth.keyHeader", "", "Authorization", "Header that the key is in."),
		text(&a.KeyPrefix, "auth.keyPrefix", "", "Bearer", "Scheme before the key in that header."),
		list(&a.Keys, "auth.keys", "", "API keys, each as: name sha256:HEX scope+scope namespaces=a+b, with the scopes read, write and events. Without namespaces a key is for the whole installation. gateway hash-key NAME SCOPES NAMESPACES makes such a line."),
		text(&a.KeysFile, "auth.keysFile", "", "", "File with one API key in each line. It is read again when it changes."),
		boolean(&a.TokenReview, "auth.tokenReview", "", false, "Whether tokens of the Kubernetes API server are accepted. Their owners read by namespace what they may get and list there. A ClusterRole grants more: get or post on the nonResourceURL /vitistack/api/v1 for the whole installation, or post on /vitistack/api/v1/events."),
		list(&a.CertificateScopes, "auth.certificateScopes", "read", "What the owner of a client certificate may do: read, write and events."),
		boolean(&a.Metrics, "auth.metrics", "", false, "Whether /metrics requires a key. It always does once a key is limited to namespaces."),
	}
}

func (c *Config) tls() []Key {
	t := &c.TLS
	return []Key{
		boolean(&t.Enabled, "tls.enabled", "", false, "Whether connections are secured by TLS."),
		text(&t.CertFile, "tls.certFile", "", "", "File with the certificate in PEM. It is read again when it changes."),
		text(&t.KeyFile, "tls.keyFile", "", "", "File with its private key in PEM."),
		text(&t.CAFile, "tls.caFile", "", "", "File with the authorities of client certificates in PEM."),
		text(&t.MinVersion, "tls.minVersion", "", "1.2", "Oldest version of TLS: 1.2 or 1.3.", "1.2", "1.3"),
		text(&t.ClientAuth, "tls.clientAuth", "", "verify", "With tls.caFile: verify accepts clients without a certificate, require refuses them.", "verify", "require"),
	}
}

// externalTypes are the types of events that external systems may send by default.
var externalTypes = []string{events.TypeNetworkProvisioned, events.TypeNetworkFailed, events.TypeWorkorderApproved, events.TypeWorkorderRejected}

func (c *Config) ingest() []Key {
	i := &c.Ingest
	return []Key{
		list(&i.AllowedTypes, "ingest.allowedTypes", strings.Join(externalTypes, ","), "Types of events that external systems may send."),
		list(&i.Secrets, "ingest.secrets", "", "Secrets of Standard Webhooks, as whsec_BASE64, that external systems may sign events with."),
		text(&i.SecretsFile, "ingest.secretsFile", "", "", "File with one such secret in each line. It is read again when it changes."),
		integer(&i.MaxBytes, "ingest.maxBytes", "", 1<<20, bounds{1024, 16 << 20}, "Largest event, or batch of events, in bytes."),
	}
}

func (c *Config) oidc() []Key {
	o := &c.OIDC
	return []Key{
		boolean(&o.Enabled, "oidc.enabled", "", false, "Whether deliveries of the Broker need the token of their Trigger, which Knative sends with authentication-oidc."),
		text(&o.Audience, "oidc.audience", "", "", "Audience of the token: spec.subscriber.audience of the Trigger, and spec.delivery.deadLetterSink.audience of the Broker."),
		list(&o.Subjects, "oidc.subjects", "", "ServiceAccounts of Triggers that may deliver events and dead letters, as system:serviceaccount:NAMESPACE:NAME. NAME may end in *."),
	}
}

// Package config reads the gateway's configuration from flags, the environment and a file, in that order of precedence. An unknown
// key or invalid value is an error that names the key.
package config

import (
	"time"

	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/events/triggerauth"
)

// Config is the whole configuration. It does not change after Load.
type Config struct {
	LogLevel            string
	APITimeout          time.Duration
	HealthCheckInterval time.Duration
	SinkURL             string
	// ResyncPeriod is the interval at which a reconcile of an object that stays due is requested from resync.
	ResyncPeriod time.Duration
	// HeartbeatSchedule and ResyncSchedule are when PingSources send heartbeats and start full rounds. They are nil if nothing expects them.
	HeartbeatSchedule, ResyncSchedule cron.Schedule
	// NodeProbeInterval is the time between two dials of a cluster's node.
	NodeProbeInterval time.Duration
	// NodeEventsAddress is the address of the event sink of Talos nodes. It is empty if there is none.
	NodeEventsAddress string

	Server    Server
	Logging   Logging
	CORS      CORS
	RateLimit RateLimit
	Metrics   Metrics
	Stream    Stream
	// Operators are the operators by name.
	Operators map[string]*Operator
	Database  Database
	Cache     Cache
	Webhooks  Webhooks
	Handlers  Handlers
	Auth      Auth
	TLS       TLS
	Ingest    Ingest
	Preview   Preview
	OIDC      triggerauth.Settings
}

// Auth configures authentication.
type Auth struct {
	Enabled   bool
	KeyHeader string
	KeyPrefix string
	// Keys and the lines of KeysFile are API keys: name sha256:HEX scope+scope namespaces=a+b.
	Keys     []string
	KeysFile string
	// TokenReview accepts tokens of the Kubernetes API server.
	TokenReview bool
	// CertificateScopes are the scopes of client certificates.
	CertificateScopes []string
	// Metrics requires a key for /metrics.
	Metrics bool
}

// TLS configures TLS.
type TLS struct {
	Enabled    bool
	CertFile   string
	KeyFile    string
	CAFile     string
	MinVersion string
	ClientAuth string
}

// Ingest configures events of external systems.
type Ingest struct {
	AllowedTypes []string
	// Secrets verify the signatures of systems without an API key. SecretsFile has one secret in each line.
	Secrets     []string
	SecretsFile string
	MaxBytes    int
}

// Preview has the settings of the functions by which previews decide.
type Preview struct {
	// NetworkPools is optional or required, and SeparateDatacenters a list.
	NetworkPools        string
	SeparateDatacenters string
	// ImageFactory is a URL. ImageHosts, AddonHosts and AllowedEndpoints are lists of hosts.
	ImageFactory     string
	ImageHosts       string
	AddonHosts       string
	AllowedEndpoints string
	TalosVersion     string
}

// Database configures the database of the history.
type Database struct {
	// URL is empty for an SQLite file in StateDir.
	URL             string
	StateDir        string
	MaxOpenConns    int
	MaxIdleConns    int
	ConnMaxLifetime time.Duration
	ConnMaxIdleTime time.Duration
	// BatchSize bounds the records of one write, FlushInterval the time until a record is written.
	BatchSize     int
	FlushInterval time.Duration
	// Retention is the time after which events are deleted.
	Retention time.Duration
}

// Cache configures the cache of answers of the Kubernetes API and of lists.
type Cache struct {
	TTL   time.Duration
	Redis Redis
}

// Redis configures the second level of the cache, which replicas share.
type Redis struct {
	// Used reports that the URL or host of Redis is configured.
	Used       bool
	URL        string
	Host       string
	Port       int
	DB         int
	Password   string
	MaxRetries int
	PoolSize   int
}

// Handlers configures the handling of events.
type Handlers struct {
	// Database stores events. Without it the history ends with the process.
	Database bool
	Metrics  bool
	// MetricsInterval is the maximum age of metrics that are computed from objects.
	MetricsInterval time.Duration
}

// Webhooks configures the endpoints that events are sent to.
type Webhooks struct {
	Enabled   bool
	Endpoints []Webhook
}

// Webhook is one endpoint.
type Webhook struct {
	// Name is the endpoint in logs, metrics and dead letters.
	Name    string   `json:"name"`
	URL     string   `json:"url"`
	Timeout Duration `json:"timeout"`
	// Retries is the number of attempts after the first.
	Retries *int `json:"retries"`
	// Types and Namespaces select the events; none means all. A type may end in *.
	Types      []string `json:"types"`
	Namespaces []string `json:"namespaces"`
	// Secret signs deliveries, in the form of Standard Webhooks. SecretFile is a file that contains it.
	Secret     string `json:"secret"`
	SecretFile string `json:"secretFile"`
}

// Duration is a duration in text form, for example 30s.
type Duration time.Duration

// UnmarshalText parses the text form.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Server configures the HTTP server.
type Server struct {
	Host           string
	Port           int
	ReadTimeout    time.Duration
	WriteTimeout   time.Duration
	IdleTimeout    time.Duration
	MaxHeaderBytes int
	MaxBodyBytes   int
	// MaxBodies, MaxConnections and MaxConnectionsPerAddress apply to each port.
	MaxBodies                int
	MaxConnections           int
	MaxConnectionsPerAddress int
	TrustedProxies           []string
	AllowedHosts             []string
	// BrokerPort is the port that the Broker delivers to; 0 means Port.
	BrokerPort int
}

// Logging configures the access log.
type Logging struct {
	Enabled        bool
	IncludeHeaders bool
	ExcludePaths   []string
}

// CORS configures which pages of other origins may call the API.
type CORS struct {
	Enabled        bool
	AllowedOrigins []string
	AllowedMethods []string
	AllowedHeaders []string
	ExposedHeaders []string
	MaxAge         int
}

// RateLimit configures the token bucket of each caller.
type RateLimit struct {
	Enabled           bool
	RequestsPerMinute int
	BurstSize         int
	KeyGenerator      string
}

// Metrics configures the Prometheus endpoint.
type Metrics struct {
	Enabled bool
	// MaxSeries bounds the values of labels that come from objects, such as cluster. Further values share one series.
	MaxSeries int
}

// Stream configures the stream of server-sent events.
type Stream struct {
	MaxClients           int
	MaxClientsPerAddress int
	Heartbeat            time.Duration
	// Window is the time for which changes are collected into one frame.
	Window time.Duration
}

// Operator is one operator. Endpoint is empty if nothing is polled.
type Operator struct {
	Endpoint     string
	Namespace    string
	SyncInterval time.Duration
}

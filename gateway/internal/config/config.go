// Package config reads the gateway's configuration out of flags, the
// environment and a file, in that order of precedence, and refuses what it does
// not understand by the name of the key.
package config

import (
	"time"

	"github.com/vitistack/stack/events/oidc"
)

// Config is the whole configuration. Load fills it in; afterwards nobody changes
// it.
type Config struct {
	LogLevel            string
	APITimeout          time.Duration
	HealthCheckInterval time.Duration
	SinkURL             string
	// ResyncPeriod is the least time between two rounds of resync that are asked for.
	ResyncPeriod time.Duration
	// NodeProbeInterval is the time between two dials of a cluster's node.
	NodeProbeInterval time.Duration

	Server    Server
	Logging   Logging
	CORS      CORS
	RateLimit RateLimit
	Metrics   Metrics
	Stream    Stream
	Operators Operators
	Database  Database
	Cache     Cache
	Webhooks  Webhooks
	Handlers  Handlers
	Auth      Auth
	TLS       TLS
	Ingest    Ingest
	OIDC      oidc.Settings
}

// Auth is who may use the API.
type Auth struct {
	Enabled   bool
	KeyHeader string
	KeyPrefix string
	// Keys and the lines of KeysFile are API keys, as ParseKey of the gateway reads
	// them.
	Keys     []string
	KeysFile string
	// TokenReview lets tokens of the Kubernetes API server in.
	TokenReview bool
	// CertificateScopes are what the owner of a client certificate may do.
	CertificateScopes []string
	// Metrics tells whether /metrics needs a key too.
	Metrics bool
}

// TLS is how connections are secured.
type TLS struct {
	Enabled    bool
	CertFile   string
	KeyFile    string
	CAFile     string
	MinVersion string
	ClientAuth string
}

// Ingest is what external systems may send.
type Ingest struct {
	AllowedTypes []string
	// Secrets sign what systems without an API key send. SecretsFile has one in each
	// line.
	Secrets     []string
	SecretsFile string
	MaxBytes    int
}

// Database is where the history is kept.
type Database struct {
	// URL is empty for an SQLite file in StateDir.
	URL             string
	StateDir        string
	MaxOpenConns    int
	MaxIdleConns    int
	ConnMaxLifetime time.Duration
	ConnMaxIdleTime time.Duration
	// BatchSize records are written at once, or what has come within
	// FlushInterval.
	BatchSize     int
	FlushInterval time.Duration
	// Retention is how long events are kept.
	Retention time.Duration
}

// Cache is what is kept for a while instead of being asked for again.
type Cache struct {
	TTL   time.Duration
	Redis Redis
}

// Redis is the second level of the cache.
type Redis struct {
	// Used tells whether anybody has said where Redis is.
	Used       bool
	URL        string
	Host       string
	Port       int
	DB         int
	Password   string
	MaxRetries int
	PoolSize   int
}

// Handlers switch what becomes of events.
type Handlers struct {
	// Database off means that the history ends with the process.
	Database bool
	Metrics  bool
	// MetricsInterval is how long a metric that is counted from objects is told
	// again before it is counted anew.
	MetricsInterval time.Duration
}

// Webhooks are the endpoints that are told of events.
type Webhooks struct {
	Enabled   bool
	Endpoints []Webhook
}

// Webhook is one endpoint.
type Webhook struct {
	URL     string   `json:"url"`
	Timeout Duration `json:"timeout"`
	// Retries are tried after the first try has failed.
	Retries *int `json:"retries"`
	// Types and Namespaces bound what the endpoint is told of; none means all. A
	// type may end in *.
	Types      []string `json:"types"`
	Namespaces []string `json:"namespaces"`
	// Secret signs what is sent, in the form that Standard Webhooks give it.
	// SecretFile is a file that has it.
	Secret     string `json:"secret"`
	SecretFile string `json:"secretFile"`
}

// Duration is written as text, for example 30s.
type Duration time.Duration

// UnmarshalText reads the text.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = Duration(parsed)
	return err
}

// Server is where and how HTTP is served.
type Server struct {
	Host           string
	Port           int
	ReadTimeout    time.Duration
	WriteTimeout   time.Duration
	IdleTimeout    time.Duration
	MaxHeaderBytes int
	MaxBodyBytes   int
	// MaxBodies, MaxConnections and MaxConnectionsPerAddress are for one port.
	MaxBodies                int
	MaxConnections           int
	MaxConnectionsPerAddress int
	TrustedProxies           []string
	AllowedHosts             []string
	// BrokerPort is where the Broker delivers; 0 means Port.
	BrokerPort int
}

// Logging is the access log.
type Logging struct {
	Enabled        bool
	IncludeHeaders bool
	ExcludePaths   []string
}

// CORS says which pages of other origins may call the API.
type CORS struct {
	Enabled        bool
	AllowedOrigins []string
	AllowedMethods []string
	AllowedHeaders []string
	ExposedHeaders []string
	MaxAge         int
}

// RateLimit is a token bucket for each caller.
type RateLimit struct {
	Enabled           bool
	RequestsPerMinute int
	BurstSize         int
	KeyGenerator      string
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	Enabled bool
	// MaxSeries bounds the values of labels that come from objects, such as
	// cluster; what is beyond is counted together.
	MaxSeries int
}

// Stream is the stream of server-sent events.
type Stream struct {
	MaxClients           int
	MaxClientsPerAddress int
	Heartbeat            time.Duration
	// Window is how long changes are gathered before they are sent together.
	Window time.Duration
}

// Operators are the four operators, of which an endpoint may be polled.
type Operators struct {
	Proxmox, Talos, Kea, KubeVirt Operator
}

// Operator is one operator. Endpoint is empty where nothing is polled.
type Operator struct {
	Endpoint     string
	Namespace    string
	SyncInterval time.Duration
}

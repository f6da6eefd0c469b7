package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/oidc"
	"github.com/vitistack/stack/gateway/internal/announce"
	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/ingest"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/signer"
	"github.com/vitistack/stack/gateway/internal/stream"
	"github.com/vitistack/stack/gateway/internal/watch"
	"github.com/vitistack/stack/gateway/internal/webhook"
)

// gateway is the parts that serve requests.
type gateway struct {
	config  *config.Config
	log     *slog.Logger
	store   *inventory.Store
	hub     *stream.Hub
	health  *health
	metrics *meters
	cache   *cache.Cache
	owed    debt
	views   views
	// kubernetes answers what is not watched.
	kubernetes *apiserver.Client
	// sink is the Broker, and signer signs what the gateway passes on to it.
	sink   *events.Sink
	signer *signer.Signer
	// verifier verifies deliveries of the Broker; nil where they need no token.
	verifier *oidc.Verifier

	history *history.Store
	// announcer and deliverer tell what has happened.
	announcer *announce.Announcer
	deliverer *webhook.Deliverer

	// checker, keys and secrets are for what comes from outside.
	checker           *ingest.Checker
	keys              keyring
	secrets           secrets
	certificates      *certificates
	certificateScopes scopes
	limiter           *limiter
	proxies           proxies
	// brokerBodies are apart, so that callers cannot keep the Broker out.
	bodies, brokerBodies *bodies
	// displaced counts the connections that were closed to make room for others.
	displaced atomic.Uint64

	// published is closed when the first snapshot is there.
	published chan struct{}
	// progress tells how far the watches have come.
	progress func() map[inventory.Kind]watch.Progress
	started  time.Time
}

// newGateway puts the parts together. A setting that cannot be used is an error
// that names it.
func newGateway(c *config.Config, kubernetes *rest.Config, store *inventory.Store, log *slog.Logger) (*gateway, error) {
	g := &gateway{
		config: c, log: log, store: store, started: time.Now(), published: make(chan struct{}),
		hub: stream.NewHub(store.Current(), stream.Limits{
			Clients: c.Stream.MaxClients, ClientsPerAddress: c.Stream.MaxClientsPerAddress, Heartbeat: c.Stream.Heartbeat,
		}),
		progress: func() map[inventory.Kind]watch.Progress { return nil },
		limiter:  newLimiter(c.RateLimit),
		bodies:   newBodies(c.Server.MaxBodies), brokerBodies: newBodies(c.Server.MaxBodies),
	}
	g.health = newHealth(store.Current)
	g.metrics = newMeters(g)
	var err error
	if g.kubernetes, err = apiserver.New(kubernetes); err != nil {
		return nil, err
	}
	g.sink = events.NewSink(c.SinkURL, func(ctx context.Context) (string, error) {
		return g.kubernetes.BrokerURL(ctx, platformNamespace())
	})
	g.signer = &signer.Signer{Store: g.kubernetes.SigningKeys(platformNamespace()), Now: time.Now}
	for _, set := range []func() error{g.cacheAnswers, g.keepHistory, func() error { return g.guard(kubernetes) }} {
		if err := set(); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// cacheAnswers sets up the cache.
func (g *gateway) cacheAnswers() error {
	var err error
	if g.cache, err = cache.New(g.config.Cache.Redis); err != nil {
		return err
	}
	g.cache.Count = g.metrics.cached
	g.views.hit = func() { g.metrics.cached(cache.Memory, true) }
	g.views.miss = func() { g.metrics.cached(cache.Memory, false) }
	g.health.cache = dependency{mode: g.cache.Mode(), check: g.cache.Ping}
	return nil
}

// guard sets up who may do what.
func (g *gateway) guard(kubernetes *rest.Config) error {
	c := g.config
	var err error
	if g.proxies, err = parseProxies(c.Server.TrustedProxies); err != nil {
		return err
	}
	if g.checker, err = ingest.NewChecker(c.Ingest.AllowedTypes); err != nil {
		return fmt.Errorf("read configuration: key ingest.allowedTypes: %w", err)
	}
	if g.certificateScopes, err = parseScopes(c.Auth.CertificateScopes); err != nil {
		return fmt.Errorf("read configuration: key auth.certificateScopes: %w", err)
	}
	if g.verifier, err = oidc.New(c.OIDC, func() (*rest.Config, error) { return kubernetes, nil }); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := loadFile(c.Auth.KeysFile, g.loadKeys); err != nil {
		return fmt.Errorf("read configuration: keys auth.keys and auth.keysFile: %w", err)
	}
	if err := loadFile(c.Ingest.SecretsFile, g.loadSecrets); err != nil {
		return fmt.Errorf("read configuration: keys ingest.secrets and ingest.secretsFile: %w", err)
	}
	if c.TLS.Enabled {
		if g.certificates, err = newCertificates(c.TLS, g.log.With("component", "tls")); err != nil {
			return err
		}
	}
	if !c.Auth.Enabled {
		g.log.Warn("Anybody who reaches the gateway may read everything: set auth.enabled to ask for a key", "component", "auth")
	}
	return nil
}

func (g *gateway) loadKeys(file []byte) error { return g.keys.load(g.config.Auth.Keys, file, g.log) }

func (g *gateway) loadSecrets(file []byte) error {
	return g.secrets.load(g.config.Ingest.Secrets, file)
}

// loadFile calls load with a file's content, or with nothing where there is none.
func loadFile(path string, load func([]byte) error) error {
	if path == "" {
		return load(nil)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return load(content)
}

// followFiles reads files of keys and certificates again when they change, until
// ctx ends.
func (g *gateway) followFiles(ctx context.Context) {
	log := g.log.With("component", "auth")
	var running sync.WaitGroup
	running.Go(func() { follow(ctx, g.config.Auth.KeysFile, g.loadKeys, log) })
	running.Go(func() { follow(ctx, g.config.Ingest.SecretsFile, g.loadSecrets, log) })
	for _, e := range g.deliverer.Endpoints {
		if e.Key != nil {
			running.Go(func() {
				follow(ctx, e.Key.File, func(content []byte) error { return e.Key.Replace(string(content)) }, log)
			})
		}
	}
	if g.certificates != nil {
		running.Go(func() { g.certificates.run(ctx) })
	}
	running.Wait()
}

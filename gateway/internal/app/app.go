// Package app connects the parts of the gateway, starts them, and drains them at the end.
package app

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/events/triggerauth"
	"github.com/vitistack/stack/gateway/internal/apiserver"
	"github.com/vitistack/stack/gateway/internal/auth"
	"github.com/vitistack/stack/gateway/internal/cache"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/confirm"
	"github.com/vitistack/stack/gateway/internal/domainevents"
	"github.com/vitistack/stack/gateway/internal/eventsigner"
	"github.com/vitistack/stack/gateway/internal/filewatch"
	"github.com/vitistack/stack/gateway/internal/health"
	"github.com/vitistack/stack/gateway/internal/heartbeat"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/httpserver"
	"github.com/vitistack/stack/gateway/internal/ingest"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/nodeevents"
	"github.com/vitistack/stack/gateway/internal/replicas"
	"github.com/vitistack/stack/gateway/internal/stream"
	"github.com/vitistack/stack/gateway/internal/watch"
	"github.com/vitistack/stack/gateway/internal/webhook"
)

// app is the parts of the gateway.
type app struct {
	version string
	config  *config.Config
	log     *slog.Logger
	started time.Time

	// kubernetes reads what is not watched.
	kubernetes *apiserver.Client
	store      *inventory.Store
	watcher    *watch.Watcher
	hub        *stream.Hub
	metrics    *metrics.Gateway
	cache      *cache.Cache
	history    *history.Store
	health     *health.Health
	broker     *events.Sender
	signer     *eventsigner.Signer

	auth         *auth.Authenticator
	certificates *httpserver.Certificates
	server       *httpserver.Server

	replicas   *replicas.Replicas
	heartbeats *heartbeat.Watcher
	deliverer  *webhook.Deliverer
	producer   *domainevents.Producer
	deliveries *ingest.Deliveries
	external   *ingest.External
	// nodeEvents is nil if no events of nodes are received.
	nodeEvents *nodeevents.Server
}

// brokerDelay is the time that a change waits for the Broker to deliver its event.
const brokerDelay = 2 * time.Second

// newApp creates the parts. An invalid setting is an error that names its key.
func newApp(version string, c *config.Config, kubernetes *rest.Config, log *slog.Logger) (*app, error) {
	a := &app{version: version, config: c, log: log, started: time.Now(), store: inventory.NewStore(newEpoch())}
	a.hub = stream.NewHub(a.store.Current(), stream.Limits{
		Clients: c.Stream.MaxClients, ClientsPerAddress: c.Stream.MaxClientsPerAddress, Heartbeat: c.Stream.Heartbeat,
	})
	a.metrics = metrics.NewGateway(metrics.Options{
		Version: version, Started: a.started, Fresh: c.Handlers.MetricsInterval, MaxSeries: c.Metrics.MaxSeries, CountEvents: c.Handlers.Metrics,
	}, metrics.Sources{
		Snapshot: a.store.Current, Stream: a.hub.Stats,
		Database: func() sql.DBStats { return a.history.Stats() }, DatabaseUp: func() bool { return a.health.DatabaseUp() }, Displaced: func() uint64 { return a.server.Displaced() },
		Heartbeats: func() []inventory.Dependency { return a.heartbeats.Last() },
	})
	for _, create := range []func(*rest.Config) error{a.createKubernetes, a.createStores, a.createServer, a.createEvents, a.createNodeEvents} {
		if err := create(kubernetes); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// createKubernetes creates what reads the Kubernetes API.
func (a *app) createKubernetes(kubernetes *rest.Config) error {
	var err error
	if a.watcher, err = watch.New(kubernetes, platformNamespace(), a.store, a.component("watch")); err != nil {
		return err
	}
	if a.kubernetes, err = apiserver.New(kubernetes); err != nil {
		return err
	}
	a.broker = events.NewSinkSender(events.NewSink(a.config.SinkURL, func(ctx context.Context) (string, error) {
		return a.kubernetes.BrokerURL(ctx, platformNamespace())
	}))
	a.heartbeats = &heartbeat.Watcher{
		Store: a.store, Namespace: platformNamespace(), Heartbeats: a.config.HeartbeatSchedule, Rounds: a.config.ResyncSchedule, Renew: a.kubernetes.RenewLease,
	}
	a.signer = &eventsigner.Signer{Store: a.kubernetes.SigningKeys(platformNamespace()), Now: time.Now}
	return nil
}

// createStores creates the cache and the history.
func (a *app) createStores(*rest.Config) error {
	var err error
	if a.cache, err = cache.New(a.config.Cache.Redis); err != nil {
		return err
	}
	a.cache.Count = a.metrics.Cached
	database := a.config.Database
	if !a.config.Handlers.Database {
		database.URL = history.MemoryURL
	}
	if a.history, err = history.Open(&database, a.component("history")); err != nil {
		return err
	}
	a.health = health.New(a.store.Current, a.watcher.Progress,
		health.Dependency{Mode: a.history.Mode(), Check: a.history.Ping, Err: history.ErrNotReady},
		health.Dependency{Mode: a.cache.Mode(), Check: a.cache.Ping})
	a.health.Log = a.component("health")
	a.health.Report = func(all []inventory.Dependency) { a.store.SetDependencies("health", all) }
	return nil
}

// createServer creates what authenticates and serves requests.
func (a *app) createServer(*rest.Config) error {
	c := a.config
	var err error
	a.auth, err = auth.New(auth.Options{
		Settings: c.Auth, Timeout: c.APITimeout, CacheTTL: c.Cache.TTL, SecureCookies: c.TLS.Enabled,
		API: a.kubernetes, Cache: a.cache, DeriveKey: a.signer.Derive, Log: a.component("auth"),
	})
	if err != nil {
		return err
	}
	if c.TLS.Enabled {
		if a.certificates, err = httpserver.NewCertificates(c.TLS, a.component("tls")); err != nil {
			return err
		}
	}
	a.server, err = httpserver.New(httpserver.Options{
		Settings: c.Server, Logging: c.Logging, CORS: c.CORS, RateLimit: c.RateLimit,
		Auth: a.auth, Meter: a.metrics.Route, Log: a.component("httpserver"),
	})
	return err
}

// createEvents creates what receives, records, sends and shows events.
func (a *app) createEvents(kubernetes *rest.Config) error {
	c, log := a.config, a.component("events")
	verifier, err := triggerauth.New(c.OIDC, func() (*rest.Config, error) { return kubernetes, nil })
	if err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	endpoints, err := webhook.Endpoints(c)
	if err != nil {
		return err
	}
	warnOfTypes(endpoints, a.component("webhook"))
	ingest.DeclareCounters(a.metrics)
	a.metrics.DeclareDeliveries(metrics.Other, webhook.Dead)
	for _, e := range endpoints {
		for _, outcome := range []string{webhook.Delivered, webhook.Retried, webhook.Dead} {
			a.metrics.DeclareDeliveries(e.Name, outcome)
		}
	}
	a.replicas = &replicas.Replicas{Cache: a.cache, Hub: a.hub, Pushed: &a.metrics.Pushed, Epoch: a.store.Current().Epoch, Timeout: c.APITimeout, Log: log}
	a.deliverer = &webhook.Deliverer{
		History: a.history, Endpoints: endpoints, Log: a.component("webhook"), Outbound: outbound.FromEnvironment(), Count: a.metrics.Delivery, Timeout: c.APITimeout,
	}
	delay := time.Duration(0)
	if c.SinkURL != "" {
		delay = brokerDelay
	}
	a.producer = domainevents.New(domainevents.Options{
		Store: a.store, History: a.history, Show: a.showOwnEvent, BrokerDelay: delay, Timeout: c.APITimeout + c.Database.FlushInterval, Log: log,
		Synced: a.isSynced, Version: a.currentVersion,
		Deliveries: func(e event.Event, namespace string, direct bool) []history.Delivery {
			skip := ""
			if direct {
				skip = webhook.BrokerName
			}
			return a.deliverer.Plan(e, namespace, skip)
		},
	})
	recorder := &ingest.Recorder{History: a.history, Deliverer: a.deliverer, Show: a.replicas.ShowEvent}
	a.deliveries = &ingest.Deliveries{
		Verifier: verifier, Producer: a.producer, Recorder: recorder, Heartbeats: a.heartbeats, Metrics: a.metrics, Timeout: c.APITimeout, Log: log,
		Confirmer: &confirm.Confirmer{Object: a.kubernetes.Object, Networks: a.networks}, Keys: a.signer.Keys,
	}
	a.external, err = ingest.NewExternal(ingest.Options{
		Settings: c.Ingest, Auth: a.auth, Signer: a.signer, Broker: a.broker, Recorder: recorder, Cache: a.cache, CacheTTL: c.Cache.TTL,
		Metrics: a.metrics, Timeout: c.APITimeout, Log: log,
	})
	return err
}

// warnOfTypes logs the types of webhooks that select no event.
func warnOfTypes(endpoints []webhook.Endpoint, log *slog.Logger) {
	for _, e := range endpoints {
		for _, unknown := range e.UnknownTypes() {
			log.Warn("A webhook names a type that no event has: correct it in handlers.webhook.endpoints, or end it in *",
				"endpoint", e.Name, "type", unknown, "types", strings.Join(webhook.Types(), ", "))
		}
	}
}

// isSynced reports whether all objects of a kind are in the store.
func (a *app) isSynced(kind inventory.Kind) bool {
	return a.watcher.Progress()[kind].State == watch.Synced
}

// currentVersion reads the resource version of the object with a UID, and is empty if that does not exist at its place.
func (a *app) currentVersion(ctx context.Context, kind inventory.Kind, namespace, name, uid string) (string, error) {
	found, err := a.kubernetes.Object(ctx, v1alpha1.GroupVersion.String(), strings.ToLower(string(kind))+"s", namespace, name)
	if apierrors.IsNotFound(err) { // the API server does not serve the kind
		return "", nil
	}
	if err != nil || found == nil || string(found.GetUID()) != uid {
		return "", err
	}
	return found.GetResourceVersion(), nil
}

// networks returns the NetworkNamespaces, and whether all are known.
func (a *app) networks() (*inventory.Collection, bool) {
	return a.store.Current().Collection(inventory.TopicNetworks), a.isSynced(inventory.KindNetwork)
}

// createNodeEvents opens the port for events of nodes, if one is configured.
func (a *app) createNodeEvents(*rest.Config) error {
	if a.config.NodeEventsAddress == "" {
		return nil
	}
	a.metrics.DeclareNodeEvents(nodeevents.EventOutcomes, nodeevents.ForwardOutcomes, nodeevents.RefusalReasons)
	var err error
	a.nodeEvents, err = nodeevents.Listen(context.Background(), a.config.NodeEventsAddress, nodeevents.Options{
		Store: a.store, Broker: a.broker, Metrics: a.metrics, Timeout: a.config.APITimeout, Log: a.component("nodeevents"),
	})
	if err != nil {
		return fmt.Errorf("nodes.eventsAddress: %w", err)
	}
	return nil
}

// showOwnEvent counts and shows an event of the gateway itself.
func (a *app) showOwnEvent(e event.Event, namespace string) {
	a.metrics.Event(e.Type(), ingest.Processed, 1)
	a.replicas.ShowEvent(e, namespace)
}

// followFiles loads files of keys and certificates again when they change, until ctx ends.
func (a *app) followFiles(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { a.auth.FollowKeys(ctx) })
	running.Go(func() { a.external.FollowSecrets(ctx) })
	for _, e := range a.deliverer.Endpoints {
		if e.Key != nil {
			running.Go(func() {
				filewatch.Follow(ctx, e.Key.File, func(content []byte) error { return e.Key.Replace(string(content)) }, a.component("webhook"))
			})
		}
	}
	if a.certificates != nil {
		running.Go(func() { a.certificates.Follow(ctx) })
	}
	running.Wait()
}

// platformNamespace returns the namespace of the stack's Knative Services and of the gateway itself.
func platformNamespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), "vitistack-system") }

// newEpoch returns a name for this process, so that clients distinguish its versions from those of other processes.
func newEpoch() string { return rand.Text()[:8] }

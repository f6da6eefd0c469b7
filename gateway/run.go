package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/watch"
)

// run listens, and serves until ctx ends.
func run(ctx context.Context, c *config.Config, log *slog.Logger) error {
	limitMemory("/sys/fs/cgroup")
	listener, err := listen(ctx, c, "server.port", c.Server.Port)
	if err != nil {
		return err
	}
	var broker net.Listener
	if c.Server.BrokerPort != 0 {
		if broker, err = listen(ctx, c, "server.brokerPort", c.Server.BrokerPort); err != nil {
			return err
		}
	}
	kubernetes, err := watch.Config()
	if err != nil {
		return err
	}
	return serve(ctx, c, kubernetes, listener, broker, log, func(*gateway) {})
}

func listen(ctx context.Context, c *config.Config, key string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(c.Server.Host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on server.host and %s: %w", key, err)
	}
	return l, nil
}

// serve watches the API server and answers on the listeners until ctx ends, and
// then lets requests and streams come to their end. begun is called with the parts
// when they are together.
func serve(ctx context.Context, c *config.Config, kubernetes *rest.Config, listener, broker net.Listener, log *slog.Logger, begun func(*gateway)) error {
	store := inventory.NewStore(newEpoch())
	watcher, err := watch.New(kubernetes, platformNamespace(), store, log.With("component", "watch"))
	if err != nil {
		return err
	}
	g, err := newGateway(c, kubernetes, store, log)
	if err != nil {
		return err
	}
	g.progress = watcher.Progress
	begun(g)
	listener, broker = g.bound(listener, broker)
	if g.certificates != nil {
		listener = tls.NewListener(listener, g.certificates.config())
	}

	// What records outlives the requests, which wait for it.
	requests, stop := context.WithCancel(ctx)
	defer stop()
	records, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var recording, running sync.WaitGroup
	recording.Go(func() { g.history.Run(records) })
	for _, part := range []func(context.Context){
		watcher.Run,
		func(ctx context.Context) { g.publish(ctx, watcher.Settled()) },
		func(ctx context.Context) { g.health.run(ctx, c.HealthCheckInterval, g.history.Migrated()) },
		func(ctx context.Context) { g.announcer.Run(ctx, g.published) },
		g.deliverer.Run,
		g.requestResync,
		g.followFiles,
		g.probeOperators,
		g.probeClusters,
		g.shareEvents,
	} {
		running.Go(func() { part(requests) })
	}
	log.Info("Listening", "component", "httpserver", "address", listener.Addr().String())
	err = g.serve(ctx, listener, broker)
	stop()
	running.Wait()
	end()
	recording.Wait()
	return errors.Join(err, g.cache.Close())
}

// bound bounds the connections of each listener. Few addresses deliver to the Broker's
// port, so that only their sum counts there.
func (g *gateway) bound(listener, broker net.Listener) (boundListener, boundBroker net.Listener) {
	s := &g.config.Server
	displaced := func() { g.displaced.Add(1) }
	boundListener = connlimit.New(listener, connlimit.Limits{All: s.MaxConnections, PerAddress: s.MaxConnectionsPerAddress, Exempt: g.proxies.trust}, displaced)
	if broker != nil {
		boundBroker = connlimit.New(broker, connlimit.Limits{All: s.MaxConnections}, displaced)
	}
	return boundListener, boundBroker
}

// platformNamespace is where the stack's own Knative Services are: where the gateway
// itself runs.
func platformNamespace() string { return cmp.Or(os.Getenv("POD_NAMESPACE"), "vitistack-system") }

// newEpoch names this process, so that clients tell its versions from those of
// another one.
func newEpoch() string { return rand.Text()[:8] }

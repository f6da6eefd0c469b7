package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events/restconfig"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/health"
	"github.com/vitistack/stack/gateway/internal/nodeprobe"
	"github.com/vitistack/stack/gateway/internal/resyncrequest"
)

// Run listens on the configured ports and serves until ctx ends.
func Run(ctx context.Context, version string, c *config.Config, log *slog.Logger) error {
	limitMemory("/sys/fs/cgroup")
	listener, err := listen(ctx, c, "server.port", c.Server.Port)
	if err != nil {
		return err
	}
	var brokerListener net.Listener
	if c.Server.BrokerPort != 0 {
		if brokerListener, err = listen(ctx, c, "server.brokerPort", c.Server.BrokerPort); err != nil {
			return err
		}
	}
	kubernetes, err := restconfig.Load("vitistack-gateway")
	if err != nil {
		return err
	}
	a, err := newApp(version, c, kubernetes, log)
	if err != nil {
		return err
	}
	return a.serve(ctx, listener, brokerListener)
}

// Check returns the error of the first setting that Run would end with. It connects to nothing and opens no port.
func Check(version string, c *config.Config, log *slog.Logger) error {
	settings := *c
	settings.NodeEventsAddress = "" // newApp would listen on it
	_, err := newApp(version, &settings, &rest.Config{}, log)
	return err
}

func listen(ctx context.Context, c *config.Config, key string, port int) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(c.Server.Host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("listen on server.host and %s: %w", key, err)
	}
	return l, nil
}

// serve runs all parts and answers on the listeners until ctx ends. It then ends streams and waits for requests. brokerListener is
// nil if the Broker delivers to the same port as others.
func (a *app) serve(ctx context.Context, listener, brokerListener net.Listener) error {
	ports, err := a.ports(listener, brokerListener)
	if err != nil {
		return err
	}

	// The history outlives the requests, which wait for it.
	requests, stop := context.WithCancel(ctx)
	defer stop()
	records, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	var recording, running sync.WaitGroup
	recording.Go(func() { a.history.Run(records) })
	for _, part := range a.parts() {
		running.Go(func() { part(requests) })
	}
	if a.config.SinkURL == "" {
		a.component("webhook").Warn("No infrastructure.* events are sent to the Broker, because K_SINK is empty: set K_SINK, or wait until SinkBinding gateway is Ready, which sets it")
	}
	a.log.Info("Listening", "component", "httpserver", "address", listener.Addr().String())
	err = a.server.Serve(ctx, ports, func() {
		a.health.Drain()
		a.hub.Close()
	})
	stop()
	running.Wait()
	end()
	recording.Wait()
	return errors.Join(err, a.cache.Close())
}

// parts returns what runs until the requests end.
func (a *app) parts() []func(context.Context) {
	c := a.config
	p := newPublisher(a)
	rounds := &resyncrequest.Requester{Store: a.store, Broker: a.broker, Period: c.ResyncPeriod, Timeout: c.APITimeout, Log: a.component("resync")}
	nodes := &nodeprobe.Watcher{Store: a.store, Broker: a.broker, Interval: c.NodeProbeInterval, Timeout: c.APITimeout, Log: a.component("nodeprobe")}
	operators := &health.OperatorProber{Store: a.store, Operators: c.Operators, Log: a.component("operators")}
	parts := []func(context.Context){
		a.watcher.Run,
		func(ctx context.Context) { p.run(ctx, a.watcher.Synced()) },
		func(ctx context.Context) { a.health.Run(ctx, c.HealthCheckInterval, a.history.Migrated()) },
		func(ctx context.Context) { a.producer.Run(ctx, p.published) },
		a.deliverer.Run,
		p.after(rounds.Run),
		p.after(nodes.Run),
		p.after(a.heartbeats.Run),
		a.followFiles,
		operators.Run,
		a.replicas.Run,
	}
	if a.nodeEvents != nil {
		parts = append(parts, p.after(a.nodeEvents.Run))
	}
	return parts
}

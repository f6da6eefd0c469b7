package engine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"knative.dev/eventing/pkg/auth"
	kubeclient "knative.dev/pkg/client/injection/kube/client"

	"github.com/vitistack/stack/knative/local/broker"
	"github.com/vitistack/stack/knative/local/manifest"
	"github.com/vitistack/stack/knative/local/process"
)

const (
	gatewayTimeout = 10 * time.Second
	probeTimeout   = time.Second
)

// startPrograms starts Deployments, brokers and sources, writes the status of every Knative object, and returns once changes are events.
func (e *engine) startPrograms(ctx, background context.Context) error {
	began := time.Now()
	var deployments []*process.Service
	if e.options.Build == "" {
		var err error
		if deployments, err = e.startDeployments(); err != nil {
			return err
		}
	}
	if err := e.startBrokers(ctx, background); err != nil {
		return err
	}
	sources, err := e.startSources(ctx)
	if err != nil {
		return err
	}
	if err := printTransitions(ctx, background, e.cluster, e.printer, e.definitions.own); err != nil {
		return err
	}
	if err := e.writeStatuses(ctx); err != nil {
		return err
	}
	e.awaitDeployments(ctx, deployments)
	for _, service := range sources {
		if err := await(ctx, service); err != nil {
			return err
		}
	}
	for _, service := range e.extras {
		if err := await(ctx, service); err != nil {
			return err
		}
	}
	e.printer.step("event source, functions, gateway", began)
	return e.startPings(background)
}

// startBrokers starts the Brokers and their Triggers, if the manifests have a Broker.
func (e *engine) startBrokers(ctx, background context.Context) error {
	if len(e.topology.Brokers) == 0 {
		return nil
	}
	var tokens broker.Tokens
	if e.options.OIDC {
		tokens = auth.NewOIDCTokenProvider(context.WithValue(background, kubeclient.Key{}, e.cluster.typed))
	}
	set, err := newBrokerSet(e.cluster, e.addresses, e.printer, e.topology.Brokers, e.brokers, tokens)
	if err != nil {
		return err
	}
	return set.start(ctx, background)
}

func (e *engine) startDeployments() ([]*process.Service, error) {
	var started []*process.Service
	for _, program := range e.topology.Deployments {
		service, err := e.keep(groupPrograms, e.deployment(program))
		if err != nil {
			return nil, err
		}
		started = append(started, service)
	}
	return started, nil
}

func (e *engine) startSources(ctx context.Context) ([]*process.Service, error) {
	var started []*process.Service
	for _, object := range e.topology.Sources {
		source, err := newSource(object, e.programs)
		if err != nil {
			return nil, err
		}
		if err := source.check(ctx, e.cluster); err != nil {
			return nil, err
		}
		name := "apiserversource"
		if len(e.topology.Sources) > 1 {
			name += "-" + object.Name
		}
		service, err := e.keep(groupSources, source.spec(name))
		if err != nil {
			return nil, err
		}
		started = append(started, service)
	}
	return started, nil
}

// awaitDeployments waits for each with a timeout, because the rest works without it.
func (e *engine) awaitDeployments(ctx context.Context, deployments []*process.Service) {
	patience, cancel := context.WithTimeoutCause(ctx, gatewayTimeout, fmt.Errorf("not ready within %s; continuing without it", gatewayTimeout))
	defer cancel()
	for _, service := range deployments {
		if err := service.Wait(patience); err != nil && ctx.Err() == nil {
			e.printer.event("%v", err)
		}
	}
}

func (e *engine) deployment(program manifest.Program) process.Spec {
	port := e.ports[program.Name]
	return process.Spec{
		Name: program.Name, Kind: "deployment", Port: port, Grace: functionGrace,
		Command: func(ctx context.Context) (process.Command, error) { return e.programs.command(ctx, program, port) },
		Ready:   func(ctx context.Context) error { return awaitHTTP(ctx, port, program.ReadyPath()) },
	}
}

// awaitHTTP waits until the path answers 2xx or 3xx. Without a path it waits until the port accepts connections.
func awaitHTTP(ctx context.Context, port int, path string) error {
	target := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return poll(ctx, func() bool {
		if path == "" {
			connection, err := new(net.Dialer).DialContext(ctx, "tcp", target)
			return err == nil && connection.Close() == nil
		}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+target+path, nil)
		if err != nil {
			return false
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return false
		}
		return response.Body.Close() == nil && response.StatusCode < http.StatusBadRequest
	})
}

// startPings starts the PingSources, each with an event at once.
func (e *engine) startPings(background context.Context) error {
	for _, object := range e.topology.Pings {
		sink, err := e.addresses.resolveSink(object.Spec.Sink, object.Namespace)
		if err != nil {
			return fmt.Errorf("resolve the sink of PingSource %s/%s: %w", object.Namespace, object.Name, err)
		}
		p, err := newPinger(object, sink, e.options.PingEvery, e.log)
		if err != nil {
			return err
		}
		go p.run(background)
	}
	return nil
}

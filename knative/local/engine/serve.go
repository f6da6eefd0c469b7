package engine

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/vitistack/stack/knative/local/broker"
	"github.com/vitistack/stack/knative/local/manifest"
	"github.com/vitistack/stack/knative/local/process"
	"github.com/vitistack/stack/knative/local/runner"
)

const gatewayName = "gateway"

// listen opens every socket and records the address of each object, so that all addresses are known before the first process is started.
func (e *engine) listen() error {
	if err := e.listenFunctions(); err != nil {
		return err
	}
	ingress, err := e.state.listen("broker", 0, "")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	for _, object := range e.topology.Brokers {
		path := "/" + object.Namespace + "/" + object.Name
		running := broker.New(e.log.With("broker", object.Namespace+"/"+object.Name), e.near)
		e.brokers[object.Namespace+"/"+object.Name] = running
		mux.Handle(path, running)
		mux.Handle(path+"/", running)
		u := mustURL(urlOf(ingress) + path)
		e.addresses.set(brokerRef(object.Namespace, object.Name), u)
		if e.ingress == "" {
			e.ingress = u.String()
		}
	}
	e.serve(ingress, mux)
	return e.placeDeployments()
}

func (e *engine) serve(listener net.Listener, handler http.Handler) {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(e.log.Handler(), slog.LevelWarn),
	}
	e.servers = append(e.servers, server)
	go func() { _ = server.Serve(listener) }() // it ends when the server is closed
}

func (e *engine) listenFunctions() error {
	for _, program := range e.topology.Functions {
		if e.listeners[program.Name] != nil {
			return fmt.Errorf("read the Knative Services: two are called %s; the local engine identifies them by name", program.Name)
		}
		listener, err := e.state.listen(program.Name, 0, "")
		if err != nil {
			return err
		}
		e.listeners[program.Name] = listener
		e.addresses.set(functionRef(program.Namespace, program.Name), mustURL(urlOf(listener)))
		function, err := e.newFunction(program)
		if err != nil {
			return err
		}
		e.functions[program.Name], e.near[listener.Addr().String()] = function, function
		e.serve(listener, function)
	}
	return nil
}

// nearby are the functions by the host and port of their URL. A broker, which is in the same process, calls them without a connection.
type nearby map[string]*runner.Function

// RoundTrip implements http.RoundTripper. It skips requests to other hosts.
func (n nearby) RoundTrip(r *http.Request) (*http.Response, error) {
	if function, ok := n[r.URL.Host]; ok {
		return function.RoundTrip(r)
	}
	return nil, http.ErrSkipAltProtocol
}

func (e *engine) newFunction(program manifest.Program) (*runner.Function, error) {
	log, err := process.OpenLog(e.state.path("logs", program.Name+".log"), logLimit)
	if err != nil {
		return nil, err
	}
	e.closers = append(e.closers, log.Close)
	processes := e.options.Processes
	if program.MaxScale > 0 {
		processes = min(processes, program.MaxScale)
	}
	concurrency := program.Concurrency
	if most := e.options.Concurrency; most > 0 && (concurrency == 0 || concurrency > most) {
		concurrency = most
	}
	return runner.New(e.spawner, log, runner.Spec{
		Name: program.Name, ReadyPath: program.ReadyPath(), Concurrency: concurrency, Processes: processes,
		Idle: e.options.Idle, Grace: functionGrace, Timeout: time.Duration(program.TimeoutSeconds) * time.Second, ResponseStart: time.Duration(program.ResponseStartSeconds) * time.Second,
		Command: func(ctx context.Context, port int) (process.Command, error) {
			return e.programs.command(ctx, program, port)
		},
	}), nil
}

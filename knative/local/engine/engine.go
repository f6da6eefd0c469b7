// Package engine runs the stack on one machine: it starts etcd, the Kubernetes API server, three controllers and the event source as processes, installs
// CRDs and manifests, and handles Knative's kinds in the manifests with the packages broker and runner.
package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/vitistack/stack/knative/local/broker"
	"github.com/vitistack/stack/knative/local/manifest"
	"github.com/vitistack/stack/knative/local/process"
	"github.com/vitistack/stack/knative/local/runner"
)

const (
	logLimit      = 10 << 20
	functionGrace = 10 * time.Second
	startTimeout  = 60 * time.Second // for a component to become ready
	headerTimeout = 10 * time.Second
)

// Groups of services, in the order in which they are stopped.
const (
	groupSources = iota
	groupPrograms
	groupAPIServer
	groupEtcd
	groups
)

// engine is one run.
type engine struct {
	options     Options
	printer     *printer
	log         *slog.Logger
	state       *state
	spawner     *process.Spawner
	definitions definitions
	topology    *manifest.Topology
	addresses   *addresses
	plane       *controlPlane
	cluster     *cluster
	programs    *programs

	version   string // of Kubernetes
	gateway   string // URL of the Deployment gateway, or empty
	adminURL  string
	ingress   string
	servers   []*http.Server
	listeners map[string]*net.TCPListener // of functions, by name
	near      nearby
	ports     map[string]int // of Deployments, by name
	closers   []func() error

	mu        sync.Mutex
	services  []*process.Service
	extras    []*process.Service // of --process
	stops     [groups][]func()
	functions map[string]*runner.Function
	brokers   map[string]*broker.Broker
}

// Run starts everything, runs until ctx ends, and stops everything in order. It returns nil after a clean stop, or why it could not start.
func Run(ctx context.Context, o Options) error {
	began := time.Now()
	s, err := openState(o.State)
	if err != nil {
		return err
	}
	e := &engine{
		options: o, state: s, printer: &printer{out: o.Out}, spawner: process.NewSpawner(), addresses: newAddresses(o.Ingress),
		functions: map[string]*runner.Function{}, brokers: map[string]*broker.Broker{},
		listeners: map[string]*net.TCPListener{}, near: nearby{}, ports: map[string]int{}, closers: []func() error{s.close},
	}
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	err = e.start(ctx, background)
	if err == nil {
		e.welcome(time.Since(began))
		if o.Build != "" {
			e.buildDeployments(background)
		}
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		err = nil // an error after the user's stop is caused by it
		e.printer.printf("\nStopping ...")
	}
	stopping := time.Now()
	cancel()
	if err := errors.Join(err, e.stop()); err != nil {
		return err
	}
	e.printer.printf("Stopped in %.1f s. The state is kept in %s.", time.Since(stopping).Seconds(), o.State)
	return nil
}

// start starts everything. background outlives ctx, so that a stop is orderly.
func (e *engine) start(ctx, background context.Context) error {
	e.printer.printf("Starting in %s", e.state.dir)
	if err := e.prepare(); err != nil {
		return err
	}
	if err := e.startControlPlane(ctx); err != nil {
		return err
	}
	if err := e.install(ctx); err != nil {
		return err
	}
	if err := e.startPrograms(ctx, background); err != nil {
		return err
	}
	if err := e.applyFiles(ctx); err != nil {
		return err
	}
	return e.state.writeSummary(e.summary())
}

// prepare does everything that a user's mistake can fail, before anything is started.
func (e *engine) prepare() error {
	log, err := process.OpenLog(e.state.path("logs", "engine.log"), logLimit)
	if err != nil {
		return err
	}
	e.closers = append(e.closers, log.Close)
	e.log = slog.New(slog.NewJSONHandler(log, nil))
	klog.SetSlogLogger(e.log) // client-go's, which would print to the terminal
	if e.definitions, err = readDefinitions(filepath.Join(e.options.Root, "apis", "crds"), e.options.CRDs); err != nil {
		return err
	}
	documents, err := manifest.ReadDir(filepath.Join(e.options.Root, "knative"))
	if err != nil {
		return err
	}
	if e.topology, err = manifest.NewTopology(documents); err != nil {
		return err
	}
	e.programs = &programs{options: e.options, state: e.state, topology: e.topology, addresses: e.addresses, ports: map[string]ports{}}
	if err := e.programs.check(); err != nil {
		return err
	}
	if err := e.listen(); err != nil {
		return err
	}
	if err := e.checkTriggers(); err != nil {
		return err
	}
	e.plane, err = newControlPlane(e.options, e.state)
	if err != nil {
		return err
	}
	e.closers = append(e.closers, e.plane.close)
	admin, err := e.state.listen("admin", 0, "")
	if err != nil {
		return err
	}
	e.adminURL = urlOf(admin) + "/"
	e.serve(admin, e.admin())
	return e.writeKubectl()
}

func (e *engine) checkTriggers() error {
	set := &brokerSet{addresses: e.addresses, objects: e.topology.Brokers}
	var errs []error
	for _, trigger := range e.topology.Triggers {
		_, err := set.compile(trigger)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// startControlPlane starts etcd and the API server concurrently: the API server waits for etcd.
func (e *engine) startControlPlane(ctx context.Context) error {
	began := time.Now()
	etcd, err := e.keep(groupEtcd, e.plane.etcd())
	if err != nil {
		return err
	}
	server, err := e.keep(groupAPIServer, e.plane.apiServer())
	if err != nil {
		return err
	}
	if err := await(ctx, etcd); err != nil {
		return err
	}
	if err := await(ctx, server); err != nil {
		return err
	}
	if e.cluster, err = newCluster(e.state.path("kubeconfig")); err != nil {
		return err
	}
	e.programs.cluster = e.cluster
	version, err := e.cluster.typed.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("ask the API server for its version: %w", err)
	}
	e.version = version.GitVersion
	if e.programs.identities, err = newIdentities(e.cluster, e.state, e.options.APIServer); err != nil {
		return err
	}
	e.printer.step("etcd and kube-apiserver", began)
	return nil
}

// install applies CRDs and manifests, and built-in kinds while the CRDs are being established.
func (e *engine) install(ctx context.Context) error {
	began := time.Now()
	documents, err := e.documents()
	if err != nil {
		return err
	}
	if err := e.cluster.discover(); err != nil {
		return err
	}
	var builtIn, custom []manifest.Document
	for _, d := range documents {
		if _, err := e.cluster.kind(d.Object.GroupVersionKind()); err == nil {
			builtIn = append(builtIn, d)
		} else {
			custom = append(custom, d)
		}
	}
	for _, crd := range e.definitions.all {
		e.cluster.learn(crd)
	}
	i := &installation{cluster: e.cluster, state: e.state}
	if err := each([]func() error{
		func() error { return e.definitions.install(ctx, e.cluster) },
		func() error { return i.apply(ctx, builtIn) },
	}, func(f func() error) error { return f() }); err != nil {
		return err
	}
	for _, extra := range e.options.Extra {
		service, err := e.keep(groupPrograms, e.programs.extra(extra, e.gateway))
		if err != nil {
			return err
		}
		e.extras = append(e.extras, service)
	}
	if _, err := e.keep(groupPrograms, controllers(e.options, e.state)); err != nil {
		return err
	}
	if err := i.apply(ctx, custom); err != nil {
		return err
	}
	if err := i.finish(ctx); err != nil {
		return err
	}
	e.printer.step(fmt.Sprintf("%d CRDs, %d objects", len(e.definitions.all), len(documents)), began)
	return e.plane.awaitReady(ctx)
}

// documents returns the manifests, and the ConfigMap with the values of --config.
func (e *engine) documents() ([]manifest.Document, error) {
	if len(e.options.Config) == 0 {
		return e.topology.Documents, nil
	}
	object, err := configMap(platformNamespace, configName, e.options.Config)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(e.topology.Documents), manifest.Document{File: "--config", Number: 1, Object: object}), nil
}

// applyFiles applies the files of --apply, as kubectl would.
func (e *engine) applyFiles(ctx context.Context) error {
	for _, path := range e.options.Apply {
		documents, err := manifest.ReadFile(path)
		if err != nil {
			return err
		}
		for _, d := range documents {
			if _, err := e.cluster.apply(ctx, d.Object, "kubectl"); err != nil {
				return fmt.Errorf("apply %s: %w", d, err)
			}
		}
	}
	return nil
}

// keep starts a service and records how to stop it.
func (e *engine) keep(group int, spec process.Spec) (*process.Service, error) {
	log, err := process.OpenLog(e.state.path("logs", spec.Name+".log"), logLimit)
	if err != nil {
		return nil, err
	}
	spec.Ended = func(err error) {
		e.printer.event("%s ended (%v) and is started again; see %s", spec.Name, err, log.Path())
	}
	service := process.NewService(e.spawner, log, spec)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		service.Run(ctx)
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.services = append(e.services, service)
	e.stops[group] = append(e.stops[group], func() {
		cancel()
		<-done
	})
	e.closers = append(e.closers, log.Close)
	return service, nil
}

// stop stops everything that runs: sources first, then functions and brokers, programs, the API server, and etcd. It may be called at any point of
// start.
func (e *engine) stop() error {
	errs := []error{e.state.removeSummary()}
	e.stopGroup(groupSources)
	var wg sync.WaitGroup
	for _, function := range e.functions {
		wg.Go(function.Close)
	}
	wg.Wait()
	for _, b := range e.brokers {
		b.Close()
	}
	for _, server := range e.servers {
		errs = append(errs, server.Close())
	}
	for group := groupPrograms; group < groups; group++ {
		e.stopGroup(group)
	}
	for _, close := range slices.Backward(e.closers) {
		errs = append(errs, close())
	}
	return errors.Join(errs...)
}

func (e *engine) stopGroup(group int) {
	var wg sync.WaitGroup
	for _, stop := range e.stops[group] {
		wg.Go(stop)
	}
	wg.Wait()
}

func (e *engine) summary() Summary {
	s := Summary{
		PID: os.Getpid(), Admin: e.adminURL, Kubeconfig: e.state.path("kubeconfig"), APIServer: e.plane.url(),
		Ingress: e.ingress, Gateway: e.gateway, Functions: map[string]string{}, Services: e.addresses.services(),
	}
	for name, listener := range e.listeners {
		s.Functions[name] = urlOf(listener)
	}
	return s
}

func await(ctx context.Context, service *process.Service) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready within %s", startTimeout))
	defer cancel()
	return service.Wait(ctx)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func mustURL(text string) *url.URL {
	u, err := url.Parse(text)
	if err != nil {
		panic(err) // it belongs to the engine itself
	}
	return u
}

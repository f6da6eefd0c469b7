// Package runner runs a function like Knative Serving, with processes instead of pods: none while there are no requests, one that the first request
// starts, more when all are full, and none again after a while without requests.
package runner

import (
	"context"
	"errors"
	"fmt"
	stdlog "log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/vitistack/stack/knative/local/process"
)

const (
	// defaultTarget is the number of requests in a process without containerConcurrency at which
	// another is started: Knative's container-concurrency-target-default.
	defaultTarget = 100
	// startTimeout bounds the time until a process is ready.
	startTimeout = 30 * time.Second
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	maxIdleConns = 200
)

// Spec says how to run a function.
type Spec struct {
	Name string
	// Command returns the command of each start. The process must listen on port.
	Command func(ctx context.Context, port int) (process.Command, error)
	// ReadyPath answers 2xx or 3xx when the process is ready. Default: any answer of /readyz below 500.
	ReadyPath string
	// Concurrency is the number of concurrent requests in a process. More requests wait. 0 is no
	// limit.
	Concurrency int
	Processes   int           // the maximum number of running processes
	Idle        time.Duration // a process without requests for this long is stopped
	Grace       time.Duration // between SIGTERM and SIGKILL
	Timeout     time.Duration // for one request, from its arrival; answered with 504
	// ResponseStart is the time from the arrival of a request until its answer begins; answered with 504. 0 is no limit.
	ResponseStart time.Duration
}

// Function forwards each request to a process of the function and starts one if there is none. It is an http.Handler for other processes, and an
// http.RoundTripper with the same answers for this process. A request whose process dies, or does not start, is answered with 503, so that the broker
// retries.
type Function struct {
	spec      Spec
	spawner   *process.Spawner
	log       *process.Log
	transport *http.Transport
	proxy     *httputil.ReverseProxy // to RoundTrip

	mu        sync.Mutex
	instances []*instance
	waiting   int           // requests that wait for a process
	changed   chan struct{} // closed and replaced whenever waiting requests have to check again
	closed    bool

	crashes   int       // processes that died in a row, without an answered request in between
	notBefore time.Time // of the next start
	starts    int
	lastStart time.Duration
	lastErr   error
}

// New returns a function without processes. Their output is written to log.
func New(spawner *process.Spawner, log *process.Log, spec Spec) *Function {
	f := &Function{
		spec: spec, spawner: spawner, log: log, changed: make(chan struct{}),
		transport: &http.Transport{MaxIdleConnsPerHost: maxIdleConns, DisableCompression: true},
	}
	f.proxy = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: spec.Name}) },
		Transport: f,
		ErrorLog:  stdlog.New(log, "runner: ", stdlog.LstdFlags),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, err.Error(), status(err))
		},
	}
	return f
}

// ServeHTTP implements http.Handler.
func (f *Function) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.proxy.ServeHTTP(w, r) }

// Statuses returns the status of each process, or one that reports that there is none.
func (f *Function) Statuses() []process.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	common := process.Status{
		Name: f.spec.Name, Kind: "function", State: process.StateStopped,
		Starts: f.starts, LastStartMillis: float64(f.lastStart.Microseconds()) / 1000,
	}
	if f.lastErr != nil {
		common.LastError = f.lastErr.Error()
	}
	if len(f.instances) == 0 {
		return []process.Status{common}
	}
	statuses := make([]process.Status, 0, len(f.instances))
	for _, in := range f.instances {
		s := common
		s.State, s.Port, s.InFlight = in.state, in.port, in.inFlight
		if in.process != nil {
			s.PID = in.process.PID()
		}
		statuses = append(statuses, s)
	}
	return statuses
}

// Signal sends a signal to every process of the function. It returns an error if there is none.
func (f *Function) Signal(signal syscall.Signal) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := 0
	var errs []error
	for _, in := range f.instances {
		if in.process != nil {
			sent++
			errs = append(errs, in.process.Signal(signal))
		}
	}
	if sent == 0 {
		return fmt.Errorf("send %s to %s: it does not run", signal, f.spec.Name)
	}
	return errors.Join(errs...)
}

// Retire stops every process as soon as it has no request, and sends it no other. The next request starts a process with the program and the
// configuration of that time.
func (f *Function) Retire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.instances {
		in.retired = true
		if in.inFlight == 0 && in.state == process.StateReady {
			f.stop(in)
		}
	}
}

// Close stops all processes and returns when they have ended. Later requests are answered with 503.
func (f *Function) Close() {
	f.mu.Lock()
	f.closed = true
	instances := slices.Clone(f.instances)
	for _, in := range instances {
		f.stop(in)
	}
	f.wake()
	f.mu.Unlock()
	for _, in := range instances {
		<-in.gone
	}
	f.transport.CloseIdleConnections()
}

// answered records that a process works.
func (f *Function) answered() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crashes = 0
}

func status(err error) int {
	if errors.Is(err, context.DeadlineExceeded) {
		return http.StatusGatewayTimeout
	}
	return http.StatusServiceUnavailable
}

package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/vitistack/stack/knative/local/port"
	"github.com/vitistack/stack/knative/local/process"
)

const (
	probeInterval = 2 * time.Millisecond
	probeTimeout  = time.Second
)

// instance is one process of a function. Its fields are guarded by the function's mutex.
type instance struct {
	state    string
	port     int
	kept     *port.Port       // of live alone
	process  *process.Process // nil until it is started
	inFlight int
	retired  bool        // gets no new request
	idle     *time.Timer // runs while it has no request
	stopping chan struct{}
	gone     chan struct{}
}

func (in *instance) take() {
	in.inFlight++
	if in.idle != nil {
		in.idle.Stop()
	}
}

// start adds an instance and starts its process.
func (f *Function) start() {
	in := &instance{state: process.StateStarting, stopping: make(chan struct{}), gone: make(chan struct{})}
	f.instances = append(f.instances, in)
	f.starts++
	go f.live(in)
}

// stop makes live end the process. A second call does nothing.
func (f *Function) stop(in *instance) {
	if in.state == process.StateStopping {
		return
	}
	in.state = process.StateStopping
	if in.idle != nil {
		in.idle.Stop()
	}
	close(in.stopping)
}

// live runs an instance, from its start until its process has ended.
func (f *Function) live(in *instance) {
	defer close(in.gone)
	err := f.launch(in)
	if err == nil {
		select {
		case <-in.process.Done():
			err = in.process.Err()
		case <-in.stopping:
		}
	}
	if in.process != nil {
		in.process.Stop(f.spec.Grace)
	}
	if in.kept != nil {
		_ = in.kept.Close()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	if in.state != process.StateStopping {
		in.state = process.StateStopping
		f.failed(err)
	}
	f.instances = slices.DeleteFunc(f.instances, func(other *instance) bool { return other == in })
	f.wake()
}

// launch starts the process and returns when it is ready.
func (f *Function) launch(in *instance) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	kept, err := port.Keep(0)
	if err != nil {
		return err
	}
	in.kept = kept
	command, err := f.spec.Command(ctx, kept.Number())
	if err != nil {
		return fmt.Errorf("prepare the command: %w", err)
	}
	began := time.Now()
	child, err := f.spawner.Start(command, f.log)
	if err != nil {
		return err
	}
	f.mu.Lock()
	in.process, in.port = child, kept.Number()
	f.mu.Unlock()
	if err := f.awaitReady(ctx, in); err != nil {
		return err
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastStart = time.Since(began)
	if in.state == process.StateStarting {
		in.state = process.StateReady
		f.rest(in)
		f.wake()
	}
	return nil
}

// awaitReady probes until the process answers, ends, or ctx ends.
func (f *Function) awaitReady(ctx context.Context, in *instance) error {
	client := &http.Client{Transport: f.transport, Timeout: probeTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	for {
		if f.probe(ctx, client, in.port) {
			return nil
		}
		select {
		case <-tick.C:
		case <-in.stopping:
			return errors.New("stopped before it was ready")
		case <-in.process.Done():
			if err := in.process.Err(); err != nil {
				return fmt.Errorf("ended before it was ready: %w", err)
			}
			return errors.New("ended before it was ready: exit status 0")
		case <-ctx.Done():
			return fmt.Errorf("not ready within %s", startTimeout)
		}
	}
}

func (f *Function) probe(ctx context.Context, client *http.Client, port int) bool {
	path, limit := f.spec.ReadyPath, http.StatusBadRequest
	if path == "" {
		path, limit = "/readyz", http.StatusInternalServerError
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, local(port).JoinPath(path).String(), nil)
	if err != nil {
		return false
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body)
	_ = response.Body.Close()
	return response.StatusCode < limit
}

func local(port int) *url.URL {
	return &url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

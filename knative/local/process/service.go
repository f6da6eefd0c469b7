package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	stable       = 10 * time.Second // a process that ran for this long restarts with firstBackoff
	tailLines    = 15
)

// States of a process in a Status.
const (
	StateStarting = "starting"
	StateReady    = "ready"
	StateStopping = "stopping"
	StateStopped  = "stopped" // scaled to zero, or between two starts
)

// Status is the status of a process, or of a function without one.
type Status struct {
	Name            string  `json:"name"`
	Kind            string  `json:"kind"`
	State           string  `json:"state"`
	PID             int     `json:"pid,omitempty"`
	Port            int     `json:"port,omitempty"`
	Starts          int     `json:"starts"`
	LastStartMillis float64 `json:"lastStartMillis,omitempty"` // from exec to ready
	InFlight        int     `json:"inFlight,omitempty"`
	LastError       string  `json:"lastError,omitempty"`
}

// Spec is a process that is always running.
type Spec struct {
	Name, Kind string
	Port       int           // for the Status
	Grace      time.Duration // between SIGTERM and SIGKILL
	// Command returns the command of each start.
	Command func(context.Context) (Command, error)
	// Ready returns nil when the process is ready. It is called once after each start, with a context
	// that ends with the process. Nil means ready at once.
	Ready func(context.Context) error
	// Ended is called before the next start with the result of a process that ended by itself.
	Ended func(error)
}

// Service keeps a process running: it restarts a process that ends, with a growing delay.
type Service struct {
	spec    Spec
	spawner *Spawner
	log     *Log

	mu      sync.Mutex
	process *Process
	status  Status

	startedOnce sync.Once
	started     chan struct{} // closed when the first start has succeeded or failed
	firstErr    error
}

// NewService returns a service that writes its output to log. Run starts it.
func NewService(spawner *Spawner, log *Log, spec Spec) *Service {
	return &Service{
		spec: spec, spawner: spawner, log: log, started: make(chan struct{}),
		status: Status{Name: spec.Name, Kind: spec.Kind, State: StateStopped, Port: spec.Port},
	}
}

// Run starts the process, restarts it whenever it ends, and stops it when ctx ends. It returns when the process has ended.
func (s *Service) Run(ctx context.Context) {
	defer s.reportStart(context.Canceled)
	backoff := firstBackoff
	for ctx.Err() == nil {
		began := time.Now()
		err := s.runOnce(ctx)
		if ctx.Err() != nil {
			return
		}
		s.reportStart(err)
		if s.spec.Ended != nil {
			s.spec.Ended(err)
		}
		if time.Since(began) > stable {
			backoff = firstBackoff
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// Wait returns when the process is ready for the first time. If the process ends before, it returns an error with the last lines of its output.
func (s *Service) Wait(ctx context.Context) error {
	select {
	case <-s.started:
	case <-ctx.Done():
		return fmt.Errorf("wait for %s: %w; last lines of %s:\n%s", s.spec.Name, context.Cause(ctx), s.log.Path(), s.log.Tail(tailLines))
	}
	if s.firstErr != nil && !errors.Is(s.firstErr, context.Canceled) {
		return fmt.Errorf("start %s: %w; last lines of %s:\n%s", s.spec.Name, s.firstErr, s.log.Path(), s.log.Tail(tailLines))
	}
	return s.firstErr
}

// Status returns the state of the service.
func (s *Service) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Signal sends a signal to the process. It returns an error if there is none.
func (s *Service) Signal(signal syscall.Signal) error {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	if process == nil {
		return fmt.Errorf("send %s to %s: it does not run", signal, s.spec.Name)
	}
	return process.Signal(signal)
}

// runOnce returns how the process ended, never nil unless ctx ended.
func (s *Service) runOnce(ctx context.Context) error {
	command, err := s.spec.Command(ctx)
	if err != nil {
		return s.record(fmt.Errorf("prepare the command: %w", err))
	}
	process, err := s.spawner.Start(command, s.log)
	if err != nil {
		return s.record(err)
	}
	s.mu.Lock()
	s.process, s.status.PID, s.status.State = process, process.PID(), StateStarting
	s.status.Starts++
	s.mu.Unlock()

	alive, ended := context.WithCancel(ctx)
	go s.awaitReady(alive, process)
	select {
	case <-process.Done():
	case <-ctx.Done():
		process.Stop(s.spec.Grace)
	}
	ended()

	err = process.Err()
	if err == nil {
		err = errors.New("exit status 0")
	}
	return s.record(err)
}

func (s *Service) awaitReady(ctx context.Context, process *Process) {
	if s.spec.Ready != nil {
		if err := s.spec.Ready(ctx); err != nil {
			if ctx.Err() == nil {
				s.reportStart(err)
			}
			return
		}
	}
	s.mu.Lock()
	if s.process == process {
		s.status.State = StateReady
		if s.spec.Ready != nil {
			s.status.LastStartMillis = float64(time.Since(process.started).Microseconds()) / 1000
		}
	}
	s.mu.Unlock()
	s.reportStart(nil)
}

func (s *Service) record(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.status.PID, s.status.State, s.status.LastError = nil, 0, StateStopped, err.Error()
	return err
}

func (s *Service) reportStart(err error) {
	s.startedOnce.Do(func() {
		s.firstErr = err
		close(s.started)
	})
}

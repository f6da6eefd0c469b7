package kubernetes

import (
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/vitistack/stack/tests/stand/process"
)

// restartPause is the time between the end of a service and its next start, as with Restart=always and RestartSec=1 of
// systemd.
const restartPause = time.Second

// Service is a program of the node that is started again whenever it ends, as systemd does.
type Service struct {
	name, log string
	args      []string

	mu      sync.Mutex
	process *process.Process
	stopped bool
}

// startService starts a program. Its output is appended to the file log.
func startService(name, log string, args ...string) (*Service, error) {
	s := &Service{name: name, log: log, args: args}
	if err := s.start(); err != nil {
		return nil, err
	}
	go s.supervise()
	return s, nil
}

func (s *Service) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	started, err := process.Start(exec.Command(s.args[0], s.args[1:]...), s.log)
	s.process = started
	return err
}

// supervise restarts the program until Stop is called. A program that cannot be started again stays ended.
func (s *Service) supervise() {
	for {
		s.mu.Lock()
		current, stopped := s.process, s.stopped
		s.mu.Unlock()
		if stopped {
			return
		}
		<-current.Done()
		time.Sleep(restartPause)
		if err := s.start(); err != nil {
			return
		}
	}
}

// Kill ends the program with SIGKILL. It starts again after restartPause.
func (s *Service) Kill() {
	s.mu.Lock()
	current := s.process
	s.mu.Unlock()
	current.Kill()
}

// Stop ends the program for good: with SIGTERM, or after a timeout with SIGKILL.
func (s *Service) Stop() {
	s.mu.Lock()
	current := s.process
	s.stopped = true
	s.mu.Unlock()
	_ = current.Signal(syscall.SIGTERM)
	select {
	case <-current.Done():
	case <-time.After(10 * time.Second):
		current.Kill()
	}
}

// Tail returns the last lines of the program's output.
func (s *Service) Tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Tail()
}

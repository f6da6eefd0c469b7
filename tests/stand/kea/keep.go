package kea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vitistack/stack/tests/stand/port"
)

// ErrNone means that this machine has no real Kea.
var ErrNone = errors.New("no Kea is installed, or unpacked by tests/stand/kea/install.sh")

// Open starts the newest Kea of this machine in a folder, with the persistent state of an earlier one,
// and at the same address if it is free. Without an earlier one it has no subnets. It returns ErrNone
// if there is no Kea.
func Open(dir string) (*Server, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	for _, g := range []Generation{Kea3, Kea2} {
		software, err := find(g)
		if err != nil {
			continue
		}
		return open(software, dir)
	}
	return nil, ErrNone
}

func open(software software, dir string) (*Server, error) {
	s, err := newServer(software, dir, Options{})
	if err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open starts the server with the port and the networks of an earlier run.
func (s *Server) open() error {
	kept, err := s.kept()
	if err != nil {
		return err
	}
	if number, err := os.ReadFile(s.path(portFile)); err == nil {
		s.again(string(number))
	}
	if err := s.write(Options{}, kept); err != nil {
		return err
	}
	// An earlier Kea may be a zombie of a dead parent. The new one would take it for running.
	if err := os.Remove(s.path(pidFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := s.run(); err != nil {
		return err
	}
	return os.WriteFile(s.path(portFile), []byte(strconv.Itoa(s.port.Number)), 0o600)
}

const (
	// portFile has the port of the last successful run.
	portFile = "port"
	// pidFile has the process ID of the last run. Kea derives its name from its configuration and its
	// own name.
	pidFile = "kea-dhcp4.kea-dhcp4.pid"
)

// Opened reports whether Open has succeeded in a folder before.
func Opened(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, portFile))
	return err == nil
}

// again uses the port of an earlier run if it is free.
func (s *Server) again(number string) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return
	}
	earlier, err := port.Keep(n)
	if err != nil {
		return
	}
	s.port.Close()
	s.port = earlier
}

// kept returns the networks of an earlier run with their reservations.
func (s *Server) kept() (object, error) {
	raw, err := os.ReadFile(s.path(dhcpFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c struct{ Dhcp4 object }
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("read what Kea has persisted: %w", err)
	}
	return c.Dhcp4, nil
}

// Keep restarts the server whenever it ends, until ctx ends, and then stops it.
func (s *Server) Keep(ctx context.Context) {
	defer s.close()
	const pause = time.Second
	for {
		var ended <-chan struct{}
		if len(s.processes) > 0 {
			ended = s.processes[0].Done()
		} else {
			ended = closed
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
		}
		s.Stop()
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		_ = s.run() // the next round retries
	}
}

// closed belongs to a server that did not start
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Version returns the version that the server reports, such as 3.0.4.
func (s *Server) Version(ctx context.Context) (string, error) {
	var about struct {
		Extended string `json:"extended"`
	}
	if _, err := s.Command(ctx, "version-get", nil, &about); err != nil {
		return "", err
	}
	var version string
	_, err := fmt.Sscan(about.Extended, &version)
	return version, err
}

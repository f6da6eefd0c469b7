package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/vitistack/stack/knative/local/port"
)

// state is the directory of a run. One engine owns it at a time.
type state struct {
	dir  string
	lock *os.File

	mu    sync.Mutex
	ports map[string]int // by name, of this run and earlier ones
}

// Summary is the content of engine.json, which exists while the engine is ready.
type Summary struct {
	PID        int               `json:"pid"`
	Admin      string            `json:"admin"`
	Kubeconfig string            `json:"kubeconfig"`
	APIServer  string            `json:"apiserver"`
	Ingress    string            `json:"ingress"`
	Gateway    string            `json:"gateway,omitempty"`
	Functions  map[string]string `json:"functions"`
	Services   map[string]string `json:"services"` // of Deployments, by namespace/name
}

// openState creates the directory, claims it, and removes the remains of a killed run.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the state directory: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 32)
		n, _ := lock.Read(holder)
		return nil, errors.Join(fmt.Errorf("take over %s: another engine, process %s, uses it; stop that engine, or choose another directory with --state (of make run: STATE=...)",
			dir, strings.TrimSpace(string(holder[:n]))), lock.Close())
	}
	s := &state{dir: dir, lock: lock, ports: map[string]int{}}
	if err := errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid())+"\n"), s.removeSummary()); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	err = s.read("ports.json", &s.ports)
	return s, err
}

func writeAt(file *os.File, text string) error {
	_, err := file.WriteAt([]byte(text), 0)
	return err
}

func (s *state) close() error { return s.lock.Close() }

func (s *state) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

// listen opens a TCP socket on the loopback address: on the port if it is not 0, or else on the last port of the name, or else on a free one. flag is
// the option that selects another.
func (s *state) listen(name string, number int, flag string) (*net.TCPListener, error) {
	return choose(s, name, number, flag, func(number int) (*net.TCPListener, int, error) {
		listener, err := net.ListenTCP("tcp", loopback(number))
		if err != nil {
			return nil, 0, port.Taken(fmt.Errorf("listen on port %d: %w", number, err), number)
		}
		return listener, portOf(listener), nil
	})
}

// keepPort keeps a port, which it chooses as listen does, for a program that listens on it later.
func (s *state) keepPort(name string, number int, flag string) (*port.Port, error) {
	return choose(s, name, number, flag, func(number int) (*port.Port, int, error) {
		kept, err := port.Keep(number)
		if err != nil {
			return nil, 0, err
		}
		return kept, kept.Number(), nil
	})
}

// choose takes the port with a number if it is not 0, or else the last port of the name, or else a free one.
func choose[T any](s *state, name string, number int, flag string, take func(number int) (T, int, error)) (taken T, err error) {
	if number != 0 {
		if taken, _, err = take(number); err != nil {
			return taken, fmt.Errorf("%w; choose another port with %s, or 0 for a free one", err, flag)
		}
		return taken, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken, number, err = take(s.ports[name])
	if err != nil {
		if taken, number, err = take(0); err != nil {
			return taken, fmt.Errorf("find a free port for %s: %w", name, err)
		}
	}
	s.ports[name] = number
	return taken, s.write("ports.json", s.ports)
}

func loopback(port int) *net.TCPAddr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port} }

func portOf(listener net.Listener) int { return listener.Addr().(*net.TCPAddr).Port }

func urlOf(listener net.Listener) string { return "http://" + listener.Addr().String() }

func (s *state) writeSummary(summary Summary) error { return s.write("engine.json", summary) }

func (s *state) removeSummary() error {
	if err := os.Remove(s.path("engine.json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the summary of the last run: %w", err)
	}
	return nil
}

// read keeps the value if the file does not exist.
func (s *state) read(name string, value any) error {
	text, err := os.ReadFile(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(text, value); err != nil {
		return fmt.Errorf("parse %s (remove it to go on): %w", s.path(name), err)
	}
	return nil
}

func (s *state) write(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return writeFile(s.path(name), append(text, '\n'), 0o600)
}

// writeFile replaces a file atomically: a reader sees the old or the new content.
func writeFile(path string, text []byte, mode os.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = temporary.Write(text)
	if err := errors.Join(err, temporary.Chmod(mode), temporary.Close()); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temporary.Name()))
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return fmt.Errorf("replace %s: %w", path, err)
	}
	return nil
}

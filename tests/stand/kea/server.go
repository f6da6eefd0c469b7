package kea

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/stand/port"
	"github.com/vitistack/stack/tests/stand/process"
)

const (
	dhcpFile  = "kea-dhcp4.conf"
	agentFile = "kea-ctrl-agent.conf"
	// startTimeout bounds the start of one server, which takes some tenths of a second on an idle
	// machine.
	startTimeout = time.Minute
	// attempts is the number of starts with different ports. Another process may take a free port of UDP
	// before its use.
	attempts = 3
)

// Server is a running Kea: the DHCP server, and for Kea 2 the control agent in front of it. After a
// stop and a start it has the same address and its persistent state.
type Server struct {
	software software
	dir      string
	http     *http.Client
	scheme   string
	username string
	password string
	port     *port.Port // for commands
	// serverPort is the port of DHCP. It is 0 for a server on a LAN, which has the standard port.
	serverPort int
	// relay has the clients' side of DHCP, for one client at a time. A server on a LAN has none.
	relay     *net.UDPConn
	relaying  sync.Mutex
	processes []*process.Process
}

// Start starts a server that runs until t ends. It fails t if no such server is installed.
func Start(t testing.TB, g Generation, o Options) *Server {
	t.Helper()
	software, err := find(g)
	if err != nil {
		t.Fatal(err)
	}
	for i := range attempts {
		var s *Server
		if s, err = launch(software, t.TempDir(), o); err == nil {
			t.Cleanup(s.close)
			return s
		}
		t.Logf("start Kea %d, attempt %d: %v", g, i+1, err)
	}
	t.Fatalf("start Kea %d: %v", g, err)
	return nil
}

func launch(software software, dir string, o Options) (*Server, error) {
	s, err := newServer(software, dir, o)
	if err != nil {
		return nil, err
	}
	if err := s.write(o, nil); err != nil {
		s.close()
		return nil, err
	}
	if err := s.run(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func newServer(software software, dir string, o Options) (*Server, error) {
	// Kea 3 rejects folders that others may read.
	if err := os.Chmod(dir, 0o750); err != nil {
		return nil, err
	}
	s := &Server{
		software: software, dir: dir, scheme: "http", http: &http.Client{Timeout: startTimeout},
		username: o.Username, password: o.Password,
	}
	if o.TLS != nil {
		if err := s.trust(*o.TLS); err != nil {
			return nil, err
		}
	}
	if o.Interface == "" {
		if err := s.openRelay(); err != nil {
			return nil, err
		}
	}
	var err error
	if s.port, err = port.Keep(0); err != nil {
		s.closeRelay()
		return nil, err
	}
	return s, nil
}

// trust makes the server's own commands use its own certificate.
func (s *Server) trust(t TLS) error {
	pair, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(t.CA)
	s.scheme = "https"
	s.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	return nil
}

// run starts the processes and waits until the DHCP server answers commands.
func (s *Server) run() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	dhcp := []string{"-c", s.path(dhcpFile)}
	if s.serverPort != 0 {
		dhcp = append(dhcp, "-p", strconv.Itoa(s.serverPort), "-P", strconv.Itoa(s.relay.LocalAddr().(*net.UDPAddr).Port))
	}
	if err := s.spawn("kea-dhcp4", dhcp...); err != nil {
		return err
	}
	if s.software.generation == Kea2 {
		if err := s.spawn("kea-ctrl-agent", "-c", s.path(agentFile)); err != nil {
			s.Stop()
			return err
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if result, err := s.Command(ctx, "list-commands", nil, nil); err == nil && result == 0 {
			return nil
		}
		for _, p := range s.processes {
			if err := p.Ended(); err != nil {
				s.Stop()
				return err
			}
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return fmt.Errorf("kea is not ready: %w\n%s", ctx.Err(), s.processes[0].Tail())
		case <-tick.C:
		}
	}
}

func (s *Server) spawn(name string, args ...string) error {
	command, err := s.software.command(name, args...)
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(),
		"KEA_PIDFILE_DIR="+s.dir, "KEA_LOCKFILE_DIR="+s.dir, "KEA_CONTROL_SOCKET_DIR="+s.dir,
		"KEA_DHCP_DATA_DIR="+s.dir, "KEA_LOG_FILE_DIR="+s.dir, "KEA_HOOKS_PATH="+s.software.hooks,
	)
	p, err := process.Start(cmd, s.path(name+".log"))
	if err != nil {
		return fmt.Errorf("run %s: %w", name, err)
	}
	s.processes = append(s.processes, p)
	return nil
}

// Stop ends the server like a crash. A second call does nothing.
func (s *Server) Stop() {
	for _, p := range s.processes {
		p.Kill()
	}
	s.processes = nil
}

// close stops the server for ever.
func (s *Server) close() {
	s.Stop()
	s.port.Close()
	s.closeRelay()
}

// StopDHCP ends the DHCP server, and keeps the control agent of Kea 2 running.
func (s *Server) StopDHCP() {
	s.processes[0].Kill()
	s.processes = s.processes[1:]
}

// Restart stops the server, and starts it at the same address with the configuration that it has
// written last.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.Stop()
	if err := s.run(); err != nil {
		t.Fatalf("start Kea %d again: %v", s.software.generation, err)
	}
}

// URL returns the address for commands.
func (s *Server) URL() string { return fmt.Sprintf("%s://127.0.0.1:%d/", s.scheme, s.port.Number) }

// Protect makes the configuration file read-only for the server until t ends, or until undo is called.
func (s *Server) Protect(t testing.TB) (undo func()) {
	t.Helper()
	saved := s.path("saved.conf")
	must := func(err error) {
		if err != nil {
			t.Errorf("protect Kea's configuration: %v", err)
		}
	}
	must(os.Rename(s.path(dhcpFile), saved))
	must(os.Mkdir(s.path(dhcpFile), 0o700))
	return func() {
		must(os.Remove(s.path(dhcpFile)))
		must(os.Rename(saved, s.path(dhcpFile)))
	}
}

// Command sends a command and returns Kea's result code. It decodes the arguments of the answer into
// into, unless it is nil or there are none.
func (s *Server) Command(ctx context.Context, name string, arguments, into any) (int, error) {
	request := object{"command": name, "service": []string{"dhcp4"}}
	if arguments != nil {
		request["arguments"] = arguments
	}
	body, err := json.Marshal(request)
	if err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL(), bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Close = true
	if s.username != "" {
		req.SetBasicAuth(s.username, s.password)
	}
	res, err := s.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer func() { _ = res.Body.Close() }()
	var answers []struct {
		Result    int             `json:"result"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answers); err != nil {
		return 0, fmt.Errorf("read the answer to %s: %w", name, err)
	}
	if len(answers) != 1 {
		return 0, errors.New("kea answered for another number of services than one")
	}
	if into != nil && len(answers[0].Arguments) > 0 {
		return answers[0].Result, json.Unmarshal(answers[0].Arguments, into)
	}
	return answers[0].Result, nil
}

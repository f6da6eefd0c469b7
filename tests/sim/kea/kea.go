// Package kea simulates the control API of Kea's DHCPv4 server: the commands for configurations, and
// those of the hooks lease_cmds, host_cmds and subnet_cmds. It validates requests as strictly as Kea,
// answers with Kea's result codes, and loses at a restart what was not written. It does not speak
// DHCP: Server.Serve gives a client what it would get.
package kea

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/vitistack/stack/tests/sim/faults"
)

// Generation is a generation of Kea.
type Generation string

// The generations: a control agent in front of Kea 2.2, the HTTP socket of Kea 3
// with its hooks, and the same without host_cmds and subnet_cmds.
const (
	Kea2      Generation = "kea2"
	Kea3      Generation = "kea3"
	Kea3Plain Generation = "kea3-plain"
)

// Options are the options of a simulator. The zero Options are a Kea 3 without subnets and without
// authentication.
type Options struct {
	Generation Generation
	// Dhcp4 is the initial configuration. Default: an empty one.
	Dhcp4 json.RawMessage
	// File has the configuration that was written last. It takes precedence over Dhcp4. Empty keeps
	// the configuration in memory.
	File string
	// Username and Password are required credentials, unless Username is empty.
	Username, Password string
	// Faults is the fault plan. Its operations are the commands. An error that is a number is an HTTP
	// status. The errors offline, drop and garbage are a DHCP server that its agent cannot reach, a
	// connection that breaks, and an answer that is not JSON. Any other text is answered with result
	// 1.
	Faults *faults.Plan
}

// Server is a simulated Kea. It is an HTTP handler and safe for concurrent use. Like Kea, it runs one
// command at a time.
type Server struct {
	options  Options
	commands map[string]command

	mu sync.Mutex
	// running is the configuration in memory, and disk the one that was written last.
	running *config
	disk    json.RawMessage
	leases  map[string]*lease
}

// object is a JSON object.
type object = map[string]any

// command runs one command on the running configuration.
type command func(s *Server, arguments object) reply

// reply is an answer of Kea.
type reply struct {
	Result    int    `json:"result"`
	Text      string `json:"text,omitempty"`
	Arguments any    `json:"arguments,omitempty"`
}

// Kea's result codes.
const (
	success     = 0
	failure     = 1
	unsupported = 2
	empty       = 3
	conflict    = 4
)

func failed(format string, args ...any) reply {
	return reply{Result: failure, Text: fmt.Sprintf(format, args...)}
}

// New returns a simulator. It returns an error if Kea would not start with the configuration.
func New(o Options) (*Server, error) {
	if o.Generation == "" {
		o.Generation = Kea3
	}
	if o.Dhcp4 == nil {
		o.Dhcp4 = json.RawMessage("{}")
	}
	if o.Faults == nil {
		o.Faults = &faults.Plan{}
	}
	if o.File != "" {
		switch kept, err := os.ReadFile(o.File); {
		case err == nil:
			o.Dhcp4 = kept
		case !errors.Is(err, os.ErrNotExist):
			return nil, fmt.Errorf("read the configuration: %w", err)
		}
	}
	s := &Server{options: o, disk: o.Dhcp4, leases: map[string]*lease{}, commands: maps.Clone(basic)}
	if o.Generation != Kea2 {
		maps.Copy(s.commands, hashed)
	}
	if o.Generation == Kea3 {
		maps.Copy(s.commands, hooked)
	}
	return s, s.Restart()
}

// Restart loads the configuration that was written last. Leases are kept.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var raw object
	if err := json.Unmarshal(s.disk, &raw); err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	running, err := parseConfig(raw, s.options.Generation)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	s.running = running
	return nil
}

// maxRequest is the maximum size of a request.
const maxRequest = 64 << 20

// ServeHTTP answers commands on any path.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if user, password, _ := r.BasicAuth(); s.options.Username != "" && (user != s.options.Username || password != s.options.Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="kea"`)
		fail(w, http.StatusUnauthorized)
		return
	}
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	var request any
	if r.Method != http.MethodPost || kind != "application/json" || err != nil || json.Unmarshal(body, &request) != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	asked, ok := request.(object)
	if !ok {
		answer(w, failed("Error during command processing: invalid command: expected toplevel entry to be a map"))
		return
	}
	name, ok := asked["command"].(string)
	if !ok {
		answer(w, failed("Error during command processing: invalid command: does not contain mandatory 'command'"))
		return
	}
	fault := s.options.Faults.Next(name)
	if fault.Wait(r.Context()) != nil {
		return
	}
	if text, hit := fault.Before(); hit {
		respondWithFault(w, text)
		return
	}
	result := s.run(r.Context(), name, asked)
	if text, hit := fault.Lost(); hit {
		respondWithFault(w, text)
		return
	}
	answer(w, result)
}

func (s *Server) run(ctx context.Context, name string, request object) reply {
	if ctx.Err() != nil {
		return failed("the client is gone")
	}
	if s.options.Generation == Kea2 {
		if r, done := agent(name, request["service"]); done {
			return r
		}
	}
	run, ok := s.commands[name]
	if !ok {
		return reply{Result: unsupported, Text: fmt.Sprintf("'%s' command not supported.", name)}
	}
	var arguments object
	if raw, given := request["arguments"]; given {
		if arguments, ok = raw.(object); !ok {
			return failed("invalid type specified for 'arguments': expected a map")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLeases()
	return run(s, arguments)
}

// agent answers commands that a control agent does not forward to the DHCPv4 server.
func agent(name string, service any) (reply, bool) {
	services, _ := service.([]any)
	switch {
	case len(services) == 0 && name == "list-commands":
		return reply{Arguments: []string{"build-report", "config-get", "config-reload", "config-set", "config-test", "config-write",
			"list-commands", "shutdown", "status-get", "version-get"}}, true
	case len(services) == 0:
		return reply{Result: unsupported, Text: fmt.Sprintf("'%s' command not supported.", name)}, true
	case services[0] != "dhcp4":
		return failed("forwarding socket is not configured for the server type %v", services[0]), true
	default:
		return reply{}, false
	}
}

func listCommands(s *Server, _ object) reply {
	return reply{Arguments: slices.Sorted(maps.Keys(s.commands))}
}

// answer wraps a reply in a list, which has one entry for each service.
func answer(w http.ResponseWriter, r reply) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode([]reply{r})
}

// fail responds with an HTTP status as Kea does, with an object instead of a list.
func fail(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(reply{Result: status, Text: http.StatusText(status)})
}

// respondWithFault responds with a fault.
func respondWithFault(w http.ResponseWriter, text string) {
	if status, err := strconv.Atoi(text); err == nil && status >= 300 && status <= 599 {
		fail(w, status)
		return
	}
	switch text {
	case "drop":
		panic(http.ErrAbortHandler)
	case "garbage":
		_, _ = io.WriteString(w, "<html><title>It works!</title></html>")
	case "offline":
		answer(w, failed("unable to forward command to the dhcp4 service: No such file or directory. The server is likely to be offline"))
	default:
		answer(w, failed("%s", text))
	}
}

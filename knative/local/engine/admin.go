package engine

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/knative/local/broker"
	"github.com/vitistack/stack/knative/local/process"
)

// report is the answer to GET /.
type report struct {
	PID       int                   `json:"pid"`
	Processes []process.Status      `json:"processes"`
	Received  int64                 `json:"received"` // events
	Triggers  []broker.TriggerStats `json:"triggers"`
	URLs      Summary               `json:"urls"`
}

// admin is the engine's own HTTP endpoint, on the loopback address, for users and tests.
func (e *engine) admin() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", e.serveReport)
	mux.HandleFunc("POST /kill/{name}", e.serveKill)
	mux.HandleFunc("POST /restart-free", e.serveRestartFree)
	return mux
}

func (e *engine) serveReport(w http.ResponseWriter, _ *http.Request) {
	r := report{PID: os.Getpid(), Processes: []process.Status{}, Triggers: []broker.TriggerStats{}, URLs: e.summary()}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, service := range e.services {
		r.Processes = append(r.Processes, service.Status())
	}
	for _, name := range sorted(e.functions) {
		r.Processes = append(r.Processes, e.functions[name].Statuses()...)
	}
	for _, name := range sorted(e.brokers) {
		stats := e.brokers[name].Stats()
		r.Received += stats.Received
		r.Triggers = append(r.Triggers, stats.Triggers...)
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(r)
}

// serveKill sends a signal to the processes with a name. The default is KILL.
func (e *engine) serveKill(w http.ResponseWriter, r *http.Request) {
	signal, err := parseSignal(r.URL.Query().Get("signal"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	name := r.PathValue("name")
	target, names := e.target(name)
	if target == nil {
		http.Error(w, fmt.Sprintf("nothing is called %q; there is %s", name, strings.Join(names, ", ")), http.StatusNotFound)
		return
	}
	if err := target.Signal(signal); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// serveRestartFree stops each process of a function as soon as it has no request. The next request starts it with the program and the configuration of
// that time.
func (e *engine) serveRestartFree(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, function := range e.functions {
		function.Retire()
	}
	w.WriteHeader(http.StatusNoContent)
}

type signalled interface {
	Signal(signal syscall.Signal) error
}

// target returns the target with the name, and all names.
func (e *engine) target(name string) (signalled, []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	names := sorted(e.functions)
	if function, ok := e.functions[name]; ok {
		return function, nil
	}
	for _, service := range e.services {
		if service.Status().Name == name {
			return service, nil
		}
		names = append(names, service.Status().Name)
	}
	slices.Sort(names)
	return nil, names
}

// parseSignal parses TERM, SIGTERM or 15. Empty is KILL.
func parseSignal(text string) (syscall.Signal, error) {
	if text == "" {
		return syscall.SIGKILL, nil
	}
	if number, err := strconv.Atoi(text); err == nil && number > 0 && unix.SignalName(syscall.Signal(number)) != "" {
		return syscall.Signal(number), nil
	}
	name := "SIG" + strings.TrimPrefix(strings.ToUpper(text), "SIG")
	if signal := unix.SignalNum(name); signal != 0 {
		return signal, nil
	}
	return 0, fmt.Errorf("there is no signal %q: write KILL, TERM, STOP, CONT, or a number", text)
}

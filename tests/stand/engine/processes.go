package engine

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Process is a process that the engine supervises.
type Process struct {
	Name, Kind, State string
	PID               int
	Starts            int
	LastStartMillis   float64
}

// Sources returns the processes of the event sources. There is at least one.
func (e *Engine) Sources() (sources []Process) {
	e.t.Helper()
	for _, p := range e.Report().Processes {
		if strings.HasPrefix(p.Name, "apiserversource") {
			sources = append(sources, p)
		}
	}
	if len(sources) == 0 {
		e.t.Fatal("the engine has no event source")
	}
	return sources
}

// StopSources suspends the event sources until the test ends. They are not killed, because the engine
// would restart them.
func (e *Engine) StopSources() {
	e.t.Helper()
	for _, p := range e.Sources() {
		if err := syscall.Kill(p.PID, syscall.SIGSTOP); err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { _ = syscall.Kill(p.PID, syscall.SIGCONT) })
	}
}

// Trigger has the counters of a Trigger.
type Trigger struct {
	Name                                       string
	Received, Delivered, Retried, DeadLettered int64
	InFlight, Queued                           int64
}

// Report is the state of the engine.
type Report struct {
	Received  int64
	Processes []Process
	Triggers  []Trigger
}

// Report returns the state of the engine.
func (e *Engine) Report() Report {
	e.t.Helper()
	var r Report
	res, err := http.Get(e.summary.Admin)
	if err != nil {
		e.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if err := json.NewDecoder(res.Body).Decode(&r); err != nil {
		e.t.Fatal(err)
	}
	return r
}

// KillProcess kills the processes with a name by kill -9. It is no error if none runs.
func (e *Engine) KillProcess(name string) error {
	res, err := http.Post(e.summary.Admin+"kill/"+name, "", nil)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode >= http.StatusInternalServerError {
		return errors.New(res.Status)
	}
	return nil
}

// KeepDown kills the processes with a name whenever the engine has restarted them, until resume is called, or the test ends.
func (e *Engine) KeepDown(name string) (resume func()) {
	e.t.Helper()
	ctx, cancel := context.WithCancel(e.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = e.KillProcess(name) // the next round tries again
			time.Sleep(20 * time.Millisecond)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// RestartFree replaces each process of a function once it has no request.
func (e *Engine) RestartFree() {
	e.t.Helper()
	res, err := http.Post(e.summary.Admin+"restart-free", "", nil)
	if err != nil {
		e.t.Fatal(err)
	}
	_ = res.Body.Close()
}

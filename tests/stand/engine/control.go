package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/vitistack/stack/tests/stand/feed"
)

// SetFaults makes a simulator misbehave. rules are JSON. It waits for simulators
// that are just starting.
func (e *Engine) SetFaults(simulator, rules string) {
	e.t.Helper()
	feed.Until(e.t, simulator+" misbehaves", func() (bool, string) {
		err := e.setFaults(simulator, rules)
		return err == nil, fmt.Sprint(err)
	})
}

// Calls are how often a simulator was asked for each operation since it started.
func (e *Engine) Calls(simulator string) (map[string]int, error) {
	url, err := e.control("/calls/" + simulator)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	var calls map[string]int
	if err := json.NewDecoder(res.Body).Decode(&calls); err != nil {
		return nil, fmt.Errorf("read the calls of %s: %w", simulator, err)
	}
	return calls, nil
}

// control is an address of the simulators' control.
func (e *Engine) control(path string) (string, error) {
	control, err := os.ReadFile(filepath.Join(e.Dir, "sim", "control"))
	return string(bytes.TrimSpace(control)) + path, err
}

func (e *Engine) setFaults(simulator, rules string) error {
	return e.put("/faults/"+simulator, rules)
}

// Crash has the nodes at the addresses crash without their hypervisor noticing, and starts
// those again that it does not name.
func (e *Engine) Crash(addresses ...string) {
	e.t.Helper()
	body, err := json.Marshal(append([]string{}, addresses...))
	if err == nil {
		err = e.put("/crash", string(body))
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// put sends a body to the simulators' control.
func (e *Engine) put(path, body string) error {
	url, err := e.control(path)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(e.t.Context(), http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_ = res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		return fmt.Errorf("put %s at %s: %s", body, path, res.Status)
	}
	return nil
}

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

// SetFaults sets the fault plan of a simulator. rules is JSON. It waits for a simulator that is
// starting.
func (e *Engine) SetFaults(simulator, rules string) {
	e.t.Helper()
	feed.Until(e.t, simulator+" has its fault plan", func() (bool, string) {
		err := e.setFaults(simulator, rules)
		return err == nil, fmt.Sprint(err)
	})
}

// Calls returns the number of calls of each operation of a simulator since its start.
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

// control returns an address of the simulators' control server.
func (e *Engine) control(path string) (string, error) {
	control, err := os.ReadFile(filepath.Join(e.Dir, "sim", "control"))
	return string(bytes.TrimSpace(control)) + path, err
}

func (e *Engine) setFaults(simulator, rules string) error {
	return e.put("/faults/"+simulator, rules)
}

// Crash crashes the nodes at the addresses, without a change at their hypervisor, and restarts all
// other crashed nodes. It waits for simulators that are starting. Their end starts all crashed nodes.
func (e *Engine) Crash(addresses ...string) {
	e.t.Helper()
	body, err := json.Marshal(append([]string{}, addresses...))
	if err != nil {
		e.t.Fatal(err)
	}
	feed.Until(e.t, "nodes crash", func() (bool, string) {
		err := e.put("/crash", string(body))
		return err == nil, fmt.Sprint(err)
	})
}

// SetNodeTiming sets the durations of the steps of simulated nodes that begin afterwards. timing is talos.Timing as JSON. It waits for
// simulators that are starting.
func (e *Engine) SetNodeTiming(timing string) {
	e.t.Helper()
	feed.Until(e.t, "the nodes have their timing", func() (bool, string) {
		err := e.put("/timing", timing)
		return err == nil, fmt.Sprint(err)
	})
}

// AwaitSimulators waits until all simulators serve.
func (e *Engine) AwaitSimulators() {
	e.t.Helper()
	feed.Until(e.t, "all simulators serve", func() (bool, string) {
		url, err := e.control("/ready")
		if err != nil {
			return false, err.Error()
		}
		res, err := http.Get(url)
		if err != nil {
			return false, err.Error()
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusNoContent, res.Status
	})
}

// put sends a body to the simulators' control server.
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

// Package faults plans the faults of a simulator.
//
// A simulator calls Plan.Next once per operation, waits for the latency, and then fails before or
// after its side effect, as planned. A failure after the side effect is a lost acknowledgement: the
// operation is done, but the caller gets an error.
package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"path"
	"sync"
	"time"
)

// Rule makes some calls of an operation fail or wait.
type Rule struct {
	// Operation is a path.Match pattern on the operation's name, for example
	// "MachineService/Bootstrap" or "POST /nodes/*/qemu". Empty matches all.
	Operation string `json:"operation,omitempty"`
	// Latency is the delay before anything else, in Go's duration syntax.
	Latency string `json:"latency,omitempty"`
	// Error is returned instead of the result. The simulator defines its meaning: a gRPC code, an HTTP
	// status, or plain text. Empty means no error.
	Error string `json:"error,omitempty"`
	// After lets the side effect happen before Error is answered.
	After bool `json:"after,omitempty"`
	// Rate is the share of calls that the rule applies to. 0 means all calls.
	Rate float64 `json:"rate,omitempty"`
	// Times is the number of calls that the rule applies to. 0 means no limit.
	Times int `json:"times,omitempty"`
}

// Fault is what happens to one call. The zero Fault is none.
type Fault struct {
	Latency time.Duration
	Error   string
	After   bool
}

// Wait waits for the fault's latency, or returns early with the context's error.
func (f Fault) Wait(ctx context.Context) error {
	if f.Latency == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(f.Latency)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// Before returns the error that prevents the operation.
func (f Fault) Before() (string, bool) { return f.Error, f.Error != "" && !f.After }

// Lost returns the error that follows a completed operation.
func (f Fault) Lost() (string, bool) { return f.Error, f.Error != "" && f.After }

// Plan has the rules of one simulator. The zero Plan has no faults. It is safe for concurrent use, and
// its rules can be replaced while the simulator runs.
type Plan struct {
	mu    sync.Mutex
	rules []armed
	rand  *rand.Rand
	calls map[string]int
}

// Calls returns the number of calls of each operation.
func (p *Plan) Calls() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.calls)
}

// ServeCalls responds with Calls.
func (p *Plan) ServeCalls(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(p.Calls())
}

type armed struct {
	Rule
	latency time.Duration
	left    int
}

// Set replaces all rules. It returns an error and changes nothing if a rule is invalid.
func (p *Plan) Set(rules ...Rule) error {
	next := make([]armed, 0, len(rules))
	for i, r := range rules {
		a := armed{Rule: r, left: r.Times}
		if _, err := path.Match(r.Operation, ""); err != nil {
			return fmt.Errorf("rule %d: operation %q is not a pattern: %w", i, r.Operation, err)
		}
		if r.Latency != "" {
			d, err := time.ParseDuration(r.Latency)
			if err != nil {
				return fmt.Errorf("rule %d: latency: %w", i, err)
			}
			a.latency = d
		}
		if r.Rate < 0 || r.Rate > 1 {
			return fmt.Errorf("rule %d: rate %v is not between 0 and 1", i, r.Rate)
		}
		next = append(next, a)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = next
	return nil
}

// Seed makes the rules with a rate apply to the same calls again for the same order of calls.
func (p *Plan) Seed(seed uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rand = rand.New(rand.NewPCG(seed, seed))
}

// Next returns the fault of the next call of an operation. The latencies of all matching rules add up,
// and the first error applies.
func (p *Plan) Next(operation string) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.calls == nil {
		p.calls = map[string]int{}
	}
	p.calls[operation]++
	var f Fault
	for i := range p.rules {
		r := &p.rules[i]
		if !r.matches(operation) || !p.hits(r.Rate) || (r.Times > 0 && r.left == 0) {
			continue
		}
		if r.Error != "" && f.Error != "" {
			continue
		}
		r.left--
		f.Latency += r.latency
		if r.Error != "" {
			f.Error, f.After = r.Error, r.After
		}
	}
	return f
}

func (a *armed) matches(operation string) bool {
	if a.Operation == "" {
		return true
	}
	ok, _ := path.Match(a.Operation, operation)
	return ok
}

func (p *Plan) hits(rate float64) bool {
	switch {
	case rate == 0:
		return true
	case p.rand != nil:
		return p.rand.Float64() < rate
	default:
		return rand.Float64() < rate
	}
}

// ServeHTTP responds to GET with the rules, and replaces them on PUT.
func (p *Plan) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.current())
	case http.MethodPut:
		var rules []Rule
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&rules); err != nil {
			http.Error(w, "send a JSON list of rules: "+err.Error(), http.StatusBadRequest)
			return
		}
		if err := p.Set(rules...); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	default:
		w.Header().Set("Allow", "GET, PUT")
		http.Error(w, "use GET or PUT", http.StatusMethodNotAllowed)
	}
}

func (p *Plan) current() []Rule {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := make([]Rule, 0, len(p.rules))
	for _, a := range p.rules {
		rules = append(rules, a.Rule)
	}
	return rules
}

package main

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// check is one dependency that is looked at from time to time. It is nil where
// the gateway does without.
type check func(context.Context) error

// health has the results of the last checks, encoded. Requests never wait for a
// check.
type health struct {
	snapshot func() *inventory.Snapshot

	mu       sync.Mutex
	database dependency
	cache    dependency
	ready    atomic.Bool
	draining atomic.Bool
	report   atomic.Pointer[report]
}

// dependency is a database or a cache.
type dependency struct {
	mode    string
	check   check
	err     error
	checked time.Time
}

// report is the answers of all health endpoints at one moment.
type report struct {
	overall, operators, database, cache response.Encoded
}

const (
	healthy   = "healthy"
	degraded  = "degraded"
	unhealthy = "unhealthy"
)

func newHealth(snapshot func() *inventory.Snapshot) *health {
	h := &health{snapshot: snapshot, database: dependency{mode: "none"}, cache: dependency{mode: "memory"}}
	h.refresh(time.Now())
	return h
}

// begin says that the first snapshot is there.
func (h *health) begin() {
	h.ready.Store(true)
	h.refresh(time.Now())
}

// drain says that the gateway is about to end.
func (h *health) drain() { h.draining.Store(true) }

// run checks at the interval, and once when first is closed, until ctx ends.
func (h *health) run(ctx context.Context, interval time.Duration, first <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		h.checkAll(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-first:
			first = nil
		}
	}
}

// checkTimeout is for one dependency to answer.
const checkTimeout = 5 * time.Second

func (h *health) checkAll(ctx context.Context) {
	for _, d := range []*dependency{&h.database, &h.cache} {
		if d.check == nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		err := d.check(limited)
		cancel()
		h.mu.Lock()
		d.err, d.checked = err, time.Now()
		h.mu.Unlock()
	}
	h.refresh(time.Now())
}

type overallJSON struct {
	Status    string     `json:"status"`
	Timestamp time.Time  `json:"timestamp"`
	Checks    checksJSON `json:"checks"`
}

type checksJSON struct {
	Database  string            `json:"database"`
	Cache     string            `json:"cache"`
	Operators map[string]string `json:"operators"`
}

type dependencyJSON struct {
	Status    string    `json:"status"`
	Mode      string    `json:"mode"`
	Message   string    `json:"message,omitempty"`
	Timestamp time.Time `json:"timestamp"`
}

type operatorsJSON struct {
	Status    string                    `json:"status"`
	Timestamp time.Time                 `json:"timestamp"`
	Operators map[string]configuredJSON `json:"operators"`
}

type configuredJSON struct {
	Configured bool   `json:"configured"`
	Status     string `json:"status,omitempty"`
	Message    string `json:"message,omitempty"`
}

// refresh writes the answers down anew.
func (h *health) refresh(now time.Time) {
	h.mu.Lock()
	database, cache := h.database, h.cache
	h.mu.Unlock()
	now = now.UTC()
	r := &report{database: database.answer(now), cache: cache.answer(now)}
	items := h.snapshot().Collection(inventory.TopicOperators).Items
	all := operatorsJSON{Status: healthy, Timestamp: now, Operators: map[string]configuredJSON{}}
	short := map[string]string{}
	down := 0
	for _, name := range inventory.Operators {
		all.Operators[name] = configuredJSON{}
	}
	for _, i := range items {
		all.Operators[i.ID] = configuredJSON{Configured: true, Status: i.Status, Message: i.Story.Message}
		short[i.ID] = operatorCheck(i.Status)
		if short[i.ID] != healthy {
			down++
		}
		if i.Status != inventory.Healthy {
			all.Status = degraded
		}
	}
	code := http.StatusOK
	if down > 0 {
		all.Status, code = unhealthy, http.StatusServiceUnavailable
	}
	r.operators = response.Encode(code, all)
	status := overall(h.ready.Load(), database.err, cache.err, all.Status != healthy, down > 0 && down == len(items))
	code = http.StatusOK
	if status == unhealthy {
		code = http.StatusServiceUnavailable
	}
	r.overall = response.Encode(code, overallJSON{Status: status, Timestamp: now, Checks: checksJSON{
		Database: word(database.err), Cache: word(cache.err), Operators: short,
	}})
	h.report.Store(r)
}

// operatorCheck is an operator's status in the words that /health has for it.
func operatorCheck(status string) string {
	if status == inventory.Degraded {
		return healthy
	}
	return status
}

// overall is unhealthy where the gateway cannot do what it is for, and degraded
// where it does so with less than it should have.
func overall(ready bool, database, cache error, operatorDown, allOperatorsDown bool) string {
	switch {
	case !ready, database != nil, allOperatorsDown:
		return unhealthy
	case cache != nil, operatorDown:
		return degraded
	default:
		return healthy
	}
}

func word(err error) string {
	if err != nil {
		return unhealthy
	}
	return healthy
}

func (d dependency) answer(now time.Time) response.Encoded {
	out := dependencyJSON{Status: word(d.err), Mode: d.mode, Timestamp: now}
	if d.err == nil {
		return response.Encode(http.StatusOK, out)
	}
	out.Message = d.err.Error()
	return response.Encode(http.StatusServiceUnavailable, out)
}

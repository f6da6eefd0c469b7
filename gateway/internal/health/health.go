// Package health checks what the gateway depends on, probes the endpoints of operators, and serves the results.
package health

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
	"github.com/vitistack/stack/gateway/internal/watch"
)

// checkTimeout bounds the check of one dependency.
const checkTimeout = 5 * time.Second

// Dependency is a database or a cache.
type Dependency struct {
	// Mode is how the gateway uses the dependency, for example sqlite or memory.
	Mode string
	// Check returns an error if the dependency does not work. It is nil if the gateway does without.
	Check func(context.Context) error
	// Err is the result of the last check, or of none before the first.
	Err error
}

// Health holds the results of the last checks. Requests never wait for a check.
type Health struct {
	// Log gets the reason when a dependency stops to work. It may be nil.
	Log *slog.Logger
	// Report gets the state of database and cache after each check, once the database has had the time to start. It may be nil.
	Report func([]inventory.Dependency)

	snapshot func() *inventory.Snapshot
	progress func() map[inventory.Kind]watch.Progress

	mu              sync.Mutex
	database, cache Dependency
	ready, draining atomic.Bool
	report          atomic.Pointer[report]
}

// New returns a Health that is not ready. progress reports the progress of the watches.
func New(snapshot func() *inventory.Snapshot, progress func() map[inventory.Kind]watch.Progress, database, cache Dependency) *Health {
	h := &Health{snapshot: snapshot, progress: progress, database: database, cache: cache}
	h.Refresh(time.Now())
	return h
}

// SetReady makes the gateway ready, once the first snapshot exists.
func (h *Health) SetReady() {
	h.ready.Store(true)
	h.Refresh(time.Now())
}

// IsReady reports whether the first snapshot exists.
func (h *Health) IsReady() bool { return h.ready.Load() }

// DatabaseUp reports whether the last check of the database has succeeded.
func (h *Health) DatabaseUp() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.database.Err == nil
}

// Drain makes the gateway not ready and not alive, because it is about to end.
func (h *Health) Drain() { h.draining.Store(true) }

// Run checks the dependencies at the interval, and once when first is closed, until ctx ends.
func (h *Health) Run(ctx context.Context, interval time.Duration, first <-chan struct{}) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	started := false
	for {
		h.checkAll(ctx)
		if h.Report != nil && started {
			h.Report(h.dependencies(time.Now()))
		}
		started = true
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-first:
			first = nil
		}
	}
}

func (h *Health) checkAll(ctx context.Context) {
	for _, d := range []*Dependency{&h.database, &h.cache} {
		if d.Check == nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		err := d.Check(limited)
		cancel()
		h.mu.Lock()
		before := d.Err
		d.Err = err
		h.mu.Unlock()
		h.logChange(d.Mode, before, err)
	}
	h.Refresh(time.Now())
}

// logChange writes why a dependency does not work, because the responses do not say it to anonymous callers.
func (h *Health) logChange(mode string, before, err error) {
	switch {
	case h.Log == nil:
	case err != nil && (before == nil || before.Error() != err.Error()):
		h.Log.Warn("Dependency does not work", "mode", mode, "error", err.Error())
	case err == nil && before != nil:
		h.Log.Info("Dependency works again", "mode", mode)
	}
}

// dependencies returns the state of database and cache.
func (h *Health) dependencies(now time.Time) []inventory.Dependency {
	h.mu.Lock()
	defer h.mu.Unlock()
	return []inventory.Dependency{
		h.database.report(inventory.DependencyDatabase, "DatabaseUnavailable",
			"The gateway cannot use the database of the history, or the database takes no changes, as with a full disk: history and dead letters may answer 503. Events wait at the Broker for an hour, and dead letters for a minute: later ones are lost. "+logSaysWhy, now),
		h.cache.report(inventory.DependencyCache, "CacheUnavailable",
			"The gateway cannot use Redis: replicas do not share events, metrics and answers. "+logSaysWhy, now),
	}
}

// logSaysWhy ends the message about a dependency. Anonymous callers may read the message, so it has no text of the error.
const logSaysWhy = "The log of the gateway says why, and the address is in DATABASE_URL or REDIS_URL."

func (d Dependency) report(kind, reason, message string, now time.Time) inventory.Dependency {
	r := inventory.Dependency{Kind: kind, Name: d.Mode, Status: statusOf(d.Err), Owner: "platform team", Since: now.UTC()}
	if d.Err != nil {
		r.Reason, r.Message = reason, message
	}
	return r
}

// Refresh encodes the reports again. Call it after a change of the operators, of the servers of backends or of the dependencies.
func (h *Health) Refresh(now time.Time) {
	h.mu.Lock()
	database, cache := h.database, h.cache
	h.mu.Unlock()
	snapshot := h.snapshot()
	h.report.Store(newReport(observation{
		ready: h.ready.Load(), database: database, cache: cache,
		operators: snapshot.Collection(inventory.TopicOperators).Items, servers: snapshot.Servers(), dependencies: snapshot.Dependencies(),
	}, now.UTC()))
}

// ShowOverall serves the health of the gateway.
func (h *Health) ShowOverall(c *fiber.Ctx) error { return h.report.Load().overall.Send(c) }

// ShowOperators serves the health of the operators.
func (h *Health) ShowOperators(c *fiber.Ctx) error { return h.report.Load().operators.Send(c) }

// ShowBackends serves the health of each server of a backend.
func (h *Health) ShowBackends(c *fiber.Ctx) error { return h.report.Load().backends.Send(c) }

// ShowDependencies serves the state of what the whole stack depends on.
func (h *Health) ShowDependencies(c *fiber.Ctx) error { return h.report.Load().dependencies.Send(c) }

// ShowDatabase serves the health of the database.
func (h *Health) ShowDatabase(c *fiber.Ctx) error { return h.report.Load().database.Send(c) }

// ShowCache serves the health of the cache.
func (h *Health) ShowCache(c *fiber.Ctx) error { return h.report.Load().cache.Send(c) }

type readyJSON struct {
	Status string `json:"status"`
	// Waiting are the kinds that have not been read yet.
	Waiting []inventory.Kind `json:"waiting,omitempty"`
}

// ShowReady serves whether the gateway accepts requests, for a readiness probe.
func (h *Health) ShowReady(c *fiber.Ctx) error {
	switch {
	case h.draining.Load():
		return response.Encode(http.StatusServiceUnavailable, readyJSON{Status: "draining"}).Send(c)
	case h.ready.Load():
		return response.Encode(http.StatusOK, readyJSON{Status: "ready"}).Send(c)
	}
	out := readyJSON{Status: "starting"}
	for kind, p := range h.progress() {
		if p.State == watch.Pending || (p.State == watch.Failing && !p.Optional) {
			out.Waiting = append(out.Waiting, kind)
		}
	}
	slices.Sort(out.Waiting)
	return response.Encode(http.StatusServiceUnavailable, out).Send(c)
}

type liveJSON struct {
	Status string `json:"status"`
}

// ShowLive serves whether the process is alive, independent of its dependencies, for a liveness probe.
func (h *Health) ShowLive(c *fiber.Ctx) error {
	if h.draining.Load() {
		return response.Encode(http.StatusServiceUnavailable, liveJSON{Status: "draining"}).Send(c)
	}
	return response.Encode(http.StatusOK, liveJSON{Status: "alive"}).Send(c)
}

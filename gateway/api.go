package main

import (
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
	"github.com/vitistack/stack/gateway/internal/watch"
)

// infrastructure serves what all resources add up to.
func (g *gateway) infrastructure(c *fiber.Ctx) error {
	snapshot, err := g.snapshot()
	if err != nil {
		return err
	}
	return response.Send(c, snapshot.ETag(), fiber.MIMEApplicationJSON, snapshot.Infrastructure())
}

// snapshot is what there is at present, once it is known.
func (g *gateway) snapshot() (*inventory.Snapshot, error) {
	if !g.health.ready.Load() {
		return nil, problem.New(http.StatusServiceUnavailable, "the gateway is still reading the Kubernetes API: try again in a moment").WithRetryAfter(1)
	}
	return g.store.Current(), nil
}

type readyJSON struct {
	Status string `json:"status"`
	// Waiting are the kinds that have not been read yet.
	Waiting []inventory.Kind `json:"waiting,omitempty"`
}

// isReady tells whether requests may come.
func (g *gateway) isReady(c *fiber.Ctx) error {
	switch {
	case g.health.draining.Load():
		return response.Encode(http.StatusServiceUnavailable, readyJSON{Status: "draining"}).Send(c)
	case g.health.ready.Load():
		return response.Encode(http.StatusOK, readyJSON{Status: "ready"}).Send(c)
	}
	out := readyJSON{Status: "starting"}
	for kind, p := range g.progress() {
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

// live tells whether the process is alive, whatever it depends on.
func (g *gateway) live(c *fiber.Ctx) error {
	if g.health.draining.Load() {
		return response.Encode(http.StatusServiceUnavailable, liveJSON{Status: "draining"}).Send(c)
	}
	return response.Encode(http.StatusOK, liveJSON{Status: "alive"}).Send(c)
}

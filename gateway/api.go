package main

import (
	"net/http"
	"slices"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/watch"
)

// infrastructure serves what all resources add up to.
func (g *gateway) infrastructure(c *fiber.Ctx) error {
	snapshot, err := g.snapshot()
	if err != nil {
		return err
	}
	return sendBody(c, snapshot.ETag(), fiber.MIMEApplicationJSON, snapshot.Infrastructure())
}

// snapshot is what there is at present, once it is known.
func (g *gateway) snapshot() (*inventory.Snapshot, error) {
	if !g.health.ready.Load() {
		p := refuse(http.StatusServiceUnavailable, "the gateway is still reading the Kubernetes API: try again in a moment")
		p.retryAfter = 1
		return nil, p
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
		return newAnswer(http.StatusServiceUnavailable, readyJSON{Status: "draining"}).send(c)
	case g.health.ready.Load():
		return newAnswer(http.StatusOK, readyJSON{Status: "ready"}).send(c)
	}
	out := readyJSON{Status: "starting"}
	for kind, p := range g.progress() {
		if p.State == watch.Pending || (p.State == watch.Failing && !p.Optional) {
			out.Waiting = append(out.Waiting, kind)
		}
	}
	slices.Sort(out.Waiting)
	return newAnswer(http.StatusServiceUnavailable, out).send(c)
}

type liveJSON struct {
	Status string `json:"status"`
}

// live tells whether the process is alive, whatever it depends on.
func (g *gateway) live(c *fiber.Ctx) error {
	if g.health.draining.Load() {
		return newAnswer(http.StatusServiceUnavailable, liveJSON{Status: "draining"}).send(c)
	}
	return newAnswer(http.StatusOK, liveJSON{Status: "alive"}).send(c)
}

package handlers

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/replicas"
)

// maxPushed bounds in bytes what a function pushes at once, uncompressed.
const maxPushed = 1 << 20

// Metrics serves metrics, and receives those of functions.
type Metrics struct {
	Metrics  *metrics.Gateway
	Replicas *replicas.Replicas
}

// Show serves all metrics in the text format of Prometheus.
func (h *Metrics) Show(c *fiber.Ctx) error {
	var b bytes.Buffer
	h.Metrics.Write(&b)
	c.Context().Response.Header.SetContentType("text/plain; version=0.0.4; charset=utf-8")
	c.Context().Response.SetBodyRaw(b.Bytes())
	return nil
}

// Push receives the metrics of a function, so that they are not lost when the function scales to zero.
func (h *Metrics) Push(c *fiber.Ctx) error {
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	ended, err := p.oneOf("ended", []string{"true", "false"})
	if err != nil {
		return err
	}
	if err := p.rest(); err != nil {
		return err
	}
	var body io.Reader = bytes.NewReader(bytes.Clone(c.Request().Body()))
	if strings.EqualFold(c.Get(fiber.HeaderContentEncoding), "gzip") {
		unpacked, err := gzip.NewReader(body)
		if err != nil {
			return problem.New(http.StatusBadRequest, "the body is no gzip")
		}
		body = unpacked
	}
	text, err := io.ReadAll(io.LimitReader(body, maxPushed+1))
	push := replicas.Push{Text: string(text), Ended: ended == "true"}
	if err != nil || len(text) > maxPushed || h.Replicas.AddMetrics(push) != nil {
		return problem.New(http.StatusBadRequest, "the body cannot be read: push metrics in the text format of Prometheus, of 1 MiB at most")
	}
	c.Status(http.StatusNoContent)
	return nil
}

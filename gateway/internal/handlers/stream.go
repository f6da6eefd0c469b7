package handlers

import (
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/utils"

	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// Stream serves the stream of server-sent events.
type Stream struct {
	Inventory *Inventory
	Hub       *stream.Hub
	// ClientAddress returns the address that a client's streams are counted by.
	ClientAddress func(*fiber.Ctx) string
}

// Serve takes the connection over from Fiber, because a write timeout of Fiber would end the stream, and Fiber does not notice a
// client that has disconnected.
func (h *Stream) Serve(c *fiber.Ctx) error {
	if _, err := h.Inventory.snapshot(); err != nil {
		return err
	}
	p, err := parametersOf(c)
	if err != nil {
		return err
	}
	topics, unknown := stream.ParseTopics(p.get("topics"))
	if unknown != "" {
		return problem.Parameter("topics", "there is no topic %s: write %s", unknown, strings.Join(stream.TopicNames(), ", "))
	}
	filter := stream.Filter{Topics: topics, Namespace: p.get("namespace")}
	lastID := c.Get("Last-Event-ID", p.get("lastEventId"))
	if err := p.rest(); err != nil {
		return err
	}
	if c.Method() == fiber.MethodHead {
		c.Context().Response.Header.SetContentType("text/event-stream")
		return nil
	}
	client, err := h.Hub.Subscribe(utils.CopyString(h.ClientAddress(c)), lastID, filter)
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, stream.ErrFullForAddress) {
			status = http.StatusTooManyRequests
		}
		return problem.New(status, "%s: try again later", err).WithRetryAfter(10)
	}
	head, isAdmitted := streamHead(c), h.Inventory.Access.StillAdmitted(c)
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		if wrapped, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
			conn = wrapped.UnsafeConn()
		}
		conn = connlimit.Release(conn)
		go func() {
			defer func() { _ = conn.Close() }()
			client.Serve(conn, head, isAdmitted)
		}()
	})
	return nil
}

// streamHead returns the head of the response with the headers that are set so far.
func streamHead(c *fiber.Ctx) []byte {
	h := &c.Context().Response.Header
	h.Set(fiber.HeaderContentType, "text/event-stream")
	h.Set(fiber.HeaderCacheControl, "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Set(fiber.HeaderConnection, "close")
	b := []byte("HTTP/1.1 200 OK\r\n")
	h.VisitAll(func(name, value []byte) {
		if string(name) == fiber.HeaderContentLength {
			return
		}
		b = append(b, name...)
		b = append(b, ": "...)
		b = append(b, value...)
		b = append(b, "\r\n"...)
	})
	return append(b, "\r\n"...)
}

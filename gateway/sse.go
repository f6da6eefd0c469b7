package main

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

// streamEvents hands the connection over to the stream. The response is not
// written by Fiber: a timeout of a response would end it, and a client that has
// left would not be noticed.
func (g *gateway) streamEvents(c *fiber.Ctx) error {
	if _, err := g.snapshot(); err != nil {
		return err
	}
	topics, unknown := stream.ParseTopics(c.Query("topics"))
	if unknown != "" {
		return problem.Parameter("topics", "there is no topic %s: write %s", utils.CopyString(unknown), strings.Join(stream.TopicNames(), ", "))
	}
	filter := stream.Filter{Topics: topics, Namespace: utils.CopyString(c.Query("namespace"))}
	if c.Method() == fiber.MethodHead {
		c.Context().Response.Header.SetContentType("text/event-stream")
		return nil
	}
	lastID := c.Get("Last-Event-ID", c.Query("lastEventId"))
	client, err := g.hub.Subscribe(utils.CopyString(g.callerAddress(c)), lastID, filter)
	if err != nil {
		status := http.StatusServiceUnavailable
		if errors.Is(err, stream.ErrFullForAddress) {
			status = http.StatusTooManyRequests
		}
		return problem.New(status, "%s: try again later", err).WithRetryAfter(10)
	}
	head, standing := streamHead(c), g.standing(c)
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		if wrapped, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
			conn = wrapped.UnsafeConn()
		}
		conn = connlimit.Release(conn)
		go func() {
			defer func() { _ = conn.Close() }()
			client.Serve(conn, head, standing)
		}()
	})
	return nil
}

// streamHead is the head of the response with the headers that are set so far.
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

package httpserver

import (
	"bytes"
	"container/list"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/connlimit"
	"github.com/vitistack/stack/gateway/internal/problem"
)

// prefetched is how many bytes fasthttp reads of a body before it calls a handler, if the server accepts such a body. Only longer bodies
// take a place in Bodies.
const prefetched = 8 << 10

// Bodies bounds how many long bodies are read at once. A new body takes the place of the oldest one, whose request ends with 408.
type Bodies struct {
	limit int
	mu    sync.Mutex
	// arriving are the connections that bodies are read from, the oldest first.
	arriving *list.List
}

// NewBodies returns Bodies with limit places.
func NewBodies(limit int) *Bodies { return &Bodies{limit: limit, arriving: list.New()} }

// enter takes a place, and returns a function that releases it.
func (b *Bodies) enter(conn net.Conn) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arriving.Len() >= b.limit {
		oldest := b.arriving.Front()
		b.arriving.Remove(oldest)
		_ = oldest.Value.(net.Conn).SetReadDeadline(time.Now())
	}
	place := b.arriving.PushBack(conn)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.arriving.Remove(place) // does nothing if a newer body has taken the place
	}
}

// read reads the body of an admitted request into the request. maxBytes bounds the body.
func (b *Bodies) read(c *fiber.Ctx, maxBytes int) error {
	stream, length := c.Context().RequestBodyStream(), c.Request().Header.ContentLength()
	if stream == nil {
		return nil
	}
	tooLarge := bodyTooLarge(maxBytes)
	if length > maxBytes {
		return tooLarge
	}
	if length < 0 || length > prefetched {
		defer b.enter(c.Context().Conn())()
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(io.LimitReader(stream, int64(maxBytes)+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.New(http.StatusRequestTimeout, "the body did not arrive in time: send it again")
	case err != nil:
		return problem.New(http.StatusBadRequest, "the body cannot be read: %s", err)
	case body.Len() > maxBytes:
		return tooLarge
	case length >= 0 && body.Len() != length:
		return problem.New(http.StatusBadRequest, "the body has %d bytes instead of the %d of Content-Length", body.Len(), length)
	}
	c.Request().SetBodyRaw(body.Bytes())
	return nil
}

func bodyTooLarge(maxBytes int) *problem.Problem {
	return problem.New(http.StatusRequestEntityTooLarge, "the body has more than %d bytes: send less, or raise server.maxBodyBytes", maxBytes)
}

// closeUnread closes the connection after the response if the body was not read, because its rest would be taken for the next
// request.
func (s *Server) closeUnread(c *fiber.Ctx) {
	if c.Context().RequestBodyStream() == nil {
		return
	}
	// fasthttp reports length 0 for the body of a method that should have none.
	declared := string(c.Request().Header.Peek(fiber.HeaderContentLength))
	length := c.Request().Header.ContentLength()
	if declared == fmt.Sprint(length) && length >= 0 && length <= min(prefetched, s.Settings.MaxBodyBytes) {
		return
	}
	c.Context().SetConnectionClose()
	connlimit.Unread(c.Context().Conn())
}

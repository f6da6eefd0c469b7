package main

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

// prefetched is how much of a body fasthttp reads before it calls a handler. Only
// what is longer takes a place in bodies.
const prefetched = 8 << 10

// bodies bounds how many long bodies are read at once. A new one takes the place of
// the one that has been arriving longest, which ends.
type bodies struct {
	most int
	mu   sync.Mutex
	// arriving are the connections that bodies come from, the oldest first.
	arriving *list.List
}

func newBodies(most int) *bodies { return &bodies{most: most, arriving: list.New()} }

// enter takes a place, which leave gives back.
func (b *bodies) enter(conn net.Conn) (leave func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.arriving.Len() >= b.most {
		oldest := b.arriving.Front()
		b.arriving.Remove(oldest)
		_ = oldest.Value.(net.Conn).SetReadDeadline(time.Now())
	}
	place := b.arriving.PushBack(conn)
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.arriving.Remove(place) // nothing where a newer one has taken it
	}
}

// readBody reads the body of an admitted request, so that Body of the request
// returns it.
func (g *gateway) readBody(c *fiber.Ctx, places *bodies) error {
	stream, length := c.Context().RequestBodyStream(), c.Request().Header.ContentLength()
	if stream == nil {
		return nil
	}
	most := g.config.Server.MaxBodyBytes
	tooLarge := problem.New(http.StatusRequestEntityTooLarge, "the body has more than %d bytes: send less, or raise server.maxBodyBytes", most)
	if length > most {
		return tooLarge
	}
	if length < 0 || length > prefetched {
		defer places.enter(c.Context().Conn())()
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(io.LimitReader(stream, int64(most)+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return problem.New(http.StatusRequestTimeout, "the body did not arrive in time: send it again")
	case err != nil:
		return problem.New(http.StatusBadRequest, "the body cannot be read: %s", err)
	case body.Len() > most:
		return tooLarge
	case length >= 0 && body.Len() != length:
		return problem.New(http.StatusBadRequest, "the body has %d bytes instead of the %d of Content-Length", body.Len(), length)
	}
	c.Request().SetBodyRaw(body.Bytes())
	return nil
}

// closeUnread has the connection closed after the answer where the body has not been
// read, since the rest of it would be taken for the next request.
func closeUnread(c *fiber.Ctx) {
	if c.Context().RequestBodyStream() == nil {
		return
	}
	// fasthttp says 0 for the length of a body where a method should have none.
	told := string(c.Request().Header.Peek(fiber.HeaderContentLength))
	length := c.Request().Header.ContentLength()
	if told == fmt.Sprint(length) && length >= 0 && length <= prefetched {
		return
	}
	c.Context().SetConnectionClose()
	connlimit.Unread(c.Context().Conn())
}

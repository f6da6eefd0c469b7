package stream

import (
	"net"
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// writeTimeout is for a client to take what it is sent. One that takes nothing
// for that long is gone.
const writeTimeout = 20 * time.Second

// Client is one subscriber.
type Client struct {
	hub     *Hub
	address string
	filter  Filter
	wake    chan struct{}
	// seq is the number of the last frame that the client is known to have. It is
	// the writing goroutine's.
	seq uint64

	mu    sync.Mutex
	queue []*frame
	// limit is how long queue may get.
	limit int
	// fresh says that the client needs everything.
	fresh bool
	ended bool
}

// push queues a frame, and tells whether the client has fallen so far behind that
// it gets everything instead.
func (c *Client) push(f *frame) (lagging bool) {
	c.mu.Lock()
	switch {
	case c.fresh:
	case len(c.queue) >= c.limit:
		c.queue, c.fresh, lagging = nil, true, true
	default:
		c.queue = append(c.queue, f)
	}
	c.mu.Unlock()
	c.signal()
	return lagging
}

func (c *Client) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *Client) end() {
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.signal()
}

// upToDate tells whether nothing is queued.
func (c *Client) upToDate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) == 0 && !c.fresh
}

// take empties the queue.
func (c *Client) take() (frames []*frame, fresh, ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	frames, fresh, ended = c.queue, c.fresh, c.ended
	c.queue, c.fresh = nil, false
	return frames, fresh, ended
}

// Serve writes the stream to a connection until the client leaves, takes nothing
// any more, or the hub closes, or allowed, which is asked as often as an idle client
// gets heartbeats, says no. head is written first. The connection is the caller's to
// close.
func (c *Client) Serve(conn net.Conn, head []byte, allowed func() bool) {
	defer c.hub.leave(c)
	left := make(chan struct{})
	go func() {
		defer close(left)
		// A client of this protocol sends nothing. What ends the read is its leaving,
		// or the deadline that is set when writing has ended.
		var b [1]byte
		for {
			if _, err := conn.Read(b[:]); err != nil {
				return
			}
		}
	}()
	c.write(conn, head, left, allowed)
	_ = conn.SetReadDeadline(time.Now())
	<-left
}

func (c *Client) write(conn net.Conn, head []byte, left <-chan struct{}, allowed func() bool) {
	w := &writer{conn: conn}
	w.send(head)
	w.send(helloFrame(c.hub.epoch, c.hub.version(), c.hub.limits.Heartbeat, c.resumes(), c.hub.now()))
	heartbeat := time.NewTimer(c.hub.limits.Heartbeat)
	defer heartbeat.Stop()
	review := time.NewTicker(c.hub.limits.Heartbeat)
	defer review.Stop()
	for w.err == nil {
		select {
		case <-left:
			return
		case <-review.C:
			if !allowed() {
				return
			}
			continue
		case <-heartbeat.C:
			c.seq = c.hub.reached(c)
			w.send(heartbeatFrame(frameID(c.hub.epoch, c.seq), c.hub.now()))
		case <-c.wake:
			if ended := c.writeNews(w); ended {
				return
			}
		}
		w.flush()
		heartbeat.Reset(c.hub.limits.Heartbeat)
	}
}

// resumes tells whether the client goes on from where it was.
func (c *Client) resumes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.fresh
}

// writeNews writes what has been queued, or everything where that is due.
func (c *Client) writeNews(w *writer) (ended bool) {
	frames, fresh, ended := c.take()
	if fresh {
		c.seq = c.writeAll(w)
	}
	for _, f := range frames {
		// Everything that was written included the frames up to seq.
		if f.seq > c.seq {
			w.send(c.show(f))
			c.seq = f.seq
		}
	}
	if ended {
		w.send(encodeFrame("", "shutdown", []byte(`{}`)))
		w.flush()
	}
	return ended
}

// show is a frame as this client sees it, which may be nothing.
func (c *Client) show(f *frame) []byte {
	if c.filter.Namespace == "" || f.change == nil {
		return f.data
	}
	return patchFrame(frameID(c.hub.epoch, f.seq), f.version, f.change, c.filter.Namespace)
}

// writeAll writes a snapshot, and returns the number of the last frame that is
// part of it.
func (c *Client) writeAll(w *writer) uint64 {
	snapshot, deliveries, seq := c.hub.begin()
	for _, topic := range inventory.Topics {
		if !c.filter.topic(string(topic)) {
			continue
		}
		collection := snapshot.Collection(topic)
		var frames [][]byte
		if c.filter.Namespace == "" {
			frames = c.hub.chunks.frames(collection)
		} else {
			frames = snapshotFrames(topic, within(collection, c.filter.Namespace))
		}
		for _, f := range frames {
			w.send(f)
		}
	}
	// A client that has fallen behind gets no hello, and begins anew with the first
	// items. The counts come after those, so that they are not thrown away then.
	if c.filter.topic(TopicSummary) {
		w.send(summaryFrame("", snapshot))
		if deliveries != nil {
			w.send(encodeFrame("", "deliveries", deliveries))
		}
	}
	w.send(syncedFrame(frameID(c.hub.epoch, seq), snapshot.Version))
	return seq
}

// within are the items that a client of a namespace sees.
func within(c *inventory.Collection, namespace string) []*inventory.Item {
	return append(append([]*inventory.Item(nil), c.InNamespace("")...), c.InNamespace(namespace)...)
}

// writer gathers frames, and gives up at the first error.
type writer struct {
	conn    net.Conn
	pending net.Buffers
	size    int
	err     error
}

// gathered is how much is written at once at most, beside single large frames.
const gathered = 64 << 10

func (w *writer) send(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	w.pending = append(w.pending, b)
	if w.size += len(b); w.size > gathered {
		w.flush()
	}
}

func (w *writer) flush() {
	if w.err != nil || len(w.pending) == 0 {
		return
	}
	if w.err = w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); w.err == nil {
		_, w.err = w.pending.WriteTo(w.conn)
	}
	w.pending, w.size = nil, 0
}

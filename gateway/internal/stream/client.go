package stream

import (
	"net"
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// writeTimeout is the time after which a client that reads nothing is disconnected.
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
	// fresh reports that the client needs a snapshot.
	fresh bool
	ended bool
}

// push queues a frame, and reports whether the client has fallen so far behind that it gets a new snapshot instead.
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

// upToDate reports whether no frame is queued.
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

// Serve writes head and then the stream to a connection, until the client disconnects or stops reading, the hub closes, or allowed
// returns false. It calls allowed at the interval of heartbeats. The caller closes the connection.
func (c *Client) Serve(conn net.Conn, head []byte, allowed func() bool) {
	defer c.hub.leave(c)
	left := make(chan struct{})
	go func() {
		defer close(left)
		// A client of this protocol sends nothing. The read ends when the client disconnects, or by the deadline after the last write.
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

// resumes reports whether the client resumes at its last identifier.
func (c *Client) resumes() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.fresh
}

// writeNews writes the queued frames, or a snapshot if the client needs one.
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

// show returns a frame as this client sees it, or nil.
func (c *Client) show(f *frame) []byte {
	if c.filter.Namespace == "" || f.change == nil {
		return f.data
	}
	return patchFrame(frameID(c.hub.epoch, f.seq), f.version, f.change, c.filter.Namespace)
}

// writeAll writes a snapshot, and returns the number of the last frame that it includes.
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
	// A client that has fallen behind gets no hello, and resets at the first items. The counts follow the items, so that the reset
	// does not drop them.
	if c.filter.topic(TopicSummary) {
		w.send(summaryFrame("", snapshot))
		if deliveries != nil {
			w.send(encodeFrame("", "deliveries", deliveries))
		}
	}
	w.send(syncedFrame(frameID(c.hub.epoch, seq), snapshot.Version))
	return seq
}

// within returns the items that a client of a namespace sees.
func within(c *inventory.Collection, namespace string) []*inventory.Item {
	return append(append([]*inventory.Item(nil), c.InNamespace("")...), c.InNamespace(namespace)...)
}

// writer buffers frames, and writes nothing after the first error.
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

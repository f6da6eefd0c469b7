// Package stream sends snapshots, changes and events to many clients as server-sent events. A client first gets a snapshot and then
// each change; a client that cannot keep up gets a new snapshot. A client may be late, but is never wrong.
package stream

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// frame is one event of the stream, encoded once for all clients.
type frame struct {
	seq   uint64
	topic string
	// namespace is the namespace of a frame about one object.
	namespace string
	data      []byte
	// change is the content of a patch, and version the snapshot that it leads to. They encode the patch for clients of one namespace.
	change  *inventory.Change
	version uint64
}

// Hub holds the clients and the recent frames.
type Hub struct {
	epoch  string
	limits Limits
	now    func() time.Time
	chunks chunkCache

	mu       sync.Mutex
	seq      uint64
	snapshot *inventory.Snapshot
	// deliveries are the last counts of Deliver as JSON.
	deliveries []byte
	kept       []*frame
	keptBytes  int
	clients    map[*Client]struct{}
	addresses  map[string]int
	closed     bool
	stats      Stats
}

// Stats are the counters of a hub since its creation.
type Stats struct {
	// Clients is the current number of clients.
	Clients int
	// Frames were published, Snapshots sent to clients that could not resume. Lagging counts clients that fell behind and got a new
	// snapshot.
	Frames, Snapshots, Resumed, Lagging, Refused uint64
}

// NewHub returns a hub with a first snapshot.
func NewHub(snapshot *inventory.Snapshot, limits Limits) *Hub {
	return &Hub{
		epoch: snapshot.Epoch, limits: limits, now: time.Now, snapshot: snapshot,
		clients: map[*Client]struct{}{}, addresses: map[string]int{},
	}
}

// Publish sends the changes that led to a snapshot to all clients.
func (h *Hub) Publish(snapshot *inventory.Snapshot, changes []inventory.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.snapshot
	h.snapshot = snapshot
	h.chunks.keep(snapshot)
	if len(changes) == 0 && bytes.Equal(last.Summary(), snapshot.Summary()) {
		return
	}
	for _, change := range changes {
		h.send(&frame{topic: string(change.Topic), change: &change, version: snapshot.Version}, func(id string) []byte {
			return patchFrame(id, snapshot.Version, &change, "")
		})
	}
	h.send(&frame{topic: TopicSummary}, func(id string) []byte { return summaryFrame(id, snapshot) })
}

// SendEvent sends an event about a namespace to all clients that see it. The event is a CloudEvent in JSON.
func (h *Hub) SendEvent(namespace string, cloudEvent []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.send(&frame{topic: TopicEvents, namespace: namespace}, func(id string) []byte {
		return encodeFrame(id, "event", cloudEvent)
	})
}

// SendMissed tells all clients that they may have missed events since a time.
func (h *Hub) SendMissed(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.send(&frame{topic: TopicEvents}, func(id string) []byte {
		return encodeFrame(id, "missed", []byte(`{"since":"`+since.UTC().Format(time.RFC3339)+`"}`))
	})
}

// SendDeliveries sends the number of deliveries to all clients, by function and outcome.
func (h *Hub) SendDeliveries(counts map[string]map[string]uint64) {
	encoded, err := json.Marshal(counts)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if bytes.Equal(encoded, h.deliveries) {
		return
	}
	h.deliveries = encoded
	h.send(&frame{topic: TopicSummary}, func(id string) []byte { return encodeFrame(id, "deliveries", encoded) })
}

// send numbers a frame, keeps it, and queues it for each client whose filter selects it.
func (h *Hub) send(f *frame, encode func(id string) []byte) {
	h.seq++
	h.stats.Frames++
	f.seq = h.seq
	f.data = encode(frameID(h.epoch, f.seq))
	h.kept = append(h.kept, f)
	h.keptBytes += len(f.data)
	for len(h.kept) > 1 && (len(h.kept) > keptFrames || h.keptBytes > keptBytes) {
		h.keptBytes -= len(h.kept[0].data)
		h.kept[0] = nil
		h.kept = h.kept[1:]
	}
	for c := range h.clients {
		if c.filter.wants(f) && c.push(f) {
			h.stats.Lagging++
		}
	}
}

// Subscribe adds a client, which is counted by its address. lastID is the last event identifier that the client has received, or
// empty. The client first gets the frames since lastID or, if those are not known, a snapshot; it misses no frame after that.
func (h *Hub) Subscribe(address, lastID string, filter Filter) (*Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.admit(address); err != nil {
		return nil, err
	}
	c := &Client{hub: h, address: address, filter: filter, limit: backlog, wake: make(chan struct{}, 1)}
	if missed, seq, ok := h.since(lastID); ok {
		h.stats.Resumed++
		c.seq = seq
		for _, f := range missed {
			if filter.wants(f) {
				c.queue = append(c.queue, f)
			}
		}
		c.limit += len(c.queue)
	} else {
		c.fresh = true
	}
	c.signal()
	h.clients[c] = struct{}{}
	h.addresses[address]++
	return c, nil
}

// since returns the frames after an identifier and its number, and false if not all of them are kept.
func (h *Hub) since(lastID string) ([]*frame, uint64, bool) {
	epoch, seq, ok := parseID(lastID)
	if !ok || epoch != h.epoch || seq > h.seq {
		return nil, 0, false
	}
	missing := h.seq - seq
	if missing > uint64(len(h.kept)) || missing > maxMissed {
		return nil, 0, false
	}
	return h.kept[uint64(len(h.kept))-missing:], seq, true
}

// leave removes a client.
func (h *Hub) leave(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.clients[c]; !ok {
		return
	}
	delete(h.clients, c)
	if h.addresses[c.address]--; h.addresses[c.address] == 0 {
		delete(h.addresses, c.address)
	}
}

// version returns the version of the current snapshot.
func (h *Hub) version() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.snapshot.Version
}

// begin returns what a client without a position gets: the snapshot, the deliveries or nil, and the number of the last frame that
// they include.
func (h *Hub) begin() (snapshot *inventory.Snapshot, deliveries []byte, seq uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stats.Snapshots++
	return h.snapshot, h.deliveries, h.seq
}

// reached returns the number of the last frame that a client has received or does not select.
func (h *Hub) reached(c *Client) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.upToDate() {
		return h.seq
	}
	return c.seq
}

// Stats returns the hub's counters.
func (h *Hub) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.stats
	s.Clients = len(h.clients)
	return s
}

// Close ends the streams of all clients and refuses new ones. It does not wait for the clients.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.closed = true
	for c := range h.clients {
		c.end()
	}
}

// Filter selects the frames of a client.
type Filter struct {
	// Topics are the topics; none means all.
	Topics map[string]bool
	// Namespace is the namespace that the client sees, beside cluster-scoped items. Empty means all.
	Namespace string
}

func (f Filter) topic(name string) bool { return len(f.Topics) == 0 || f.Topics[name] }

func (f Filter) wants(fr *frame) bool {
	if !f.topic(fr.topic) {
		return false
	}
	return f.Namespace == "" || fr.namespace == "" || fr.namespace == f.Namespace
}

// Topics beside those of the inventory.
const (
	TopicSummary = "summary"
	TopicEvents  = "events"
)

// TopicNames returns the names of all topics.
func TopicNames() []string {
	names := []string{TopicSummary, TopicEvents}
	for _, t := range inventory.Topics {
		names = append(names, string(t))
	}
	return names
}

// ParseTopics parses a list of topics that are separated by commas. An empty list means all. It returns the first unknown topic.
func ParseTopics(list string) (topics map[string]bool, unknown string) {
	if list == "" {
		return nil, ""
	}
	known := TopicNames()
	topics = map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if name == "" {
			return nil, `""`
		}
		if !slices.Contains(known, name) {
			return nil, name
		}
		topics[strings.Clone(name)] = true
	}
	return topics, ""
}

func frameID(epoch string, seq uint64) string { return epoch + "-" + strconv.FormatUint(seq, 10) }

// parseID parses an event identifier.
func parseID(id string) (epoch string, seq uint64, ok bool) {
	epoch, number, found := strings.Cut(id, "-")
	if !found || epoch == "" {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	return epoch, seq, err == nil
}

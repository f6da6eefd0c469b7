package stream

import (
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/vitistack/stack/gateway/internal/inventory"
)

// encodeFrame returns one server-sent event. id may be empty; data has no line breaks.
func encodeFrame(id, event string, data []byte) []byte {
	b := make([]byte, 0, len(id)+len(event)+len(data)+32)
	b = appendHead(b, id, event)
	b = append(b, data...)
	return append(b, "\n\n"...)
}

func appendHead(b []byte, id, event string) []byte {
	if id != "" {
		b = append(b, "id: "...)
		b = append(b, id...)
		b = append(b, '\n')
	}
	b = append(b, "event: "...)
	b = append(b, event...)
	return append(b, "\ndata: "...)
}

// frameBytes bounds the items of one frame in bytes, beside a single larger item. A client of a slow connection that has waited for less
// than two heartbeats gets a whole frame.
const frameBytes = 32 << 10

// patchFrame returns the changes of a topic, in frames of at most frameBytes. Only the last frame has the identifier, because a client
// resumes after the changes of the identifier. With a namespace it leaves out items of other namespaces; it is nil if none is left.
func patchFrame(id string, version uint64, change *inventory.Change, namespace string) []byte {
	p := patch{topic: change.Topic, version: version}
	for _, i := range change.Upserts {
		if seen(i, namespace) {
			p.upsert(i)
		}
	}
	for _, i := range change.Removes {
		if seen(i, namespace) {
			p.remove(i)
		}
	}
	if len(p.upserts)+len(p.removes) == 0 {
		return nil
	}
	p.end(id)
	return p.frames
}

// patch collects the frames of a patch.
type patch struct {
	topic   inventory.Topic
	version uint64
	frames  []byte
	// upserts and removes are the lists of the frame that has not ended.
	upserts, removes []byte
}

func (p *patch) upsert(i *inventory.Item) {
	p.reserve(len(i.JSON))
	p.upserts = append(appendComma(p.upserts, len(p.upserts)), i.JSON...)
}

func (p *patch) remove(i *inventory.Item) {
	p.reserve(len(i.ID))
	p.removes = strconv.AppendQuote(appendComma(p.removes, len(p.removes)), i.ID)
}

// reserve ends the frame if it has no room for size more bytes.
func (p *patch) reserve(size int) {
	if have := len(p.upserts) + len(p.removes); have > 0 && have+size > frameBytes {
		p.end("")
	}
}

func (p *patch) end(id string) {
	b := appendHead(p.frames, id, "patch")
	b = append(b, `{"topic":"`...)
	b = append(b, p.topic...)
	b = append(b, `","version":`...)
	b = strconv.AppendUint(b, p.version, 10)
	b = append(b, `,"upserts":[`...)
	b = append(b, p.upserts...)
	b = append(b, `],"removes":[`...)
	b = append(b, p.removes...)
	p.frames = append(b, "]}\n\n"...)
	p.upserts, p.removes = p.upserts[:0], p.removes[:0]
}

// seen reports whether a client of a namespace sees an item.
func seen(i *inventory.Item, namespace string) bool {
	return namespace == "" || i.Namespace == "" || i.Namespace == namespace
}

func appendComma(b []byte, before int) []byte {
	if before == 0 {
		return b
	}
	return append(b, ',')
}

func summaryFrame(id string, s *inventory.Snapshot) []byte {
	b := appendHead(nil, id, "summary")
	b = append(b, `{"version":`...)
	b = strconv.AppendUint(b, s.Version, 10)
	b = append(b, `,"summary":`...)
	b = append(b, s.Summary()...)
	return append(b, "}\n\n"...)
}

func helloFrame(epoch string, version uint64, heartbeat time.Duration, resumed bool, now time.Time) []byte {
	data, _ := json.Marshal(struct {
		Epoch      string    `json:"epoch"`
		Version    uint64    `json:"version"`
		Resumed    bool      `json:"resumed"`
		Heartbeat  float64   `json:"heartbeatSeconds"`
		ServerTime time.Time `json:"serverTime"`
	}{epoch, version, resumed, heartbeat.Seconds(), now.UTC()})
	return encodeFrame("", "hello", data)
}

func heartbeatFrame(id string, now time.Time) []byte {
	return encodeFrame(id, "heartbeat", []byte(`{"serverTime":"`+now.UTC().Format(time.RFC3339)+`"}`))
}

// syncedFrame ends a snapshot. A client can resume at its identifier.
func syncedFrame(id string, version uint64) []byte {
	return encodeFrame(id, "synced", []byte(`{"version":`+strconv.FormatUint(version, 10)+`}`))
}

// frameItems bounds the items of one frame of a snapshot, so that a browser can draw between two frames.
const frameItems = 500

// chunks splits items into the contents of frames of at most frameItems and frameBytes. There is at least one.
func chunks(items []*inventory.Item) (all [][]*inventory.Item) {
	first, size := 0, 0
	for n, i := range items {
		if n > first && (n-first == frameItems || size+len(i.JSON) > frameBytes) {
			all = append(all, items[first:n])
			first, size = n, 0
		}
		size += len(i.JSON)
	}
	return append(all, items[first:])
}

// snapshotFrames returns a topic's items in frames. There is at least one frame.
func snapshotFrames(topic inventory.Topic, items []*inventory.Item) [][]byte {
	parts := chunks(items)
	frames := make([][]byte, 0, len(parts))
	for part, chunk := range parts {
		size := 96
		for _, i := range chunk {
			size += len(i.JSON) + 1
		}
		b := appendHead(make([]byte, 0, size), "", "snapshot")
		b = append(b, `{"topic":"`...)
		b = append(b, topic...)
		b = append(b, `","part":`...)
		b = strconv.AppendInt(b, int64(part), 10)
		b = append(b, `,"parts":`...)
		b = strconv.AppendInt(b, int64(len(parts)), 10)
		b = append(b, `,"items":[`...)
		for n, i := range chunk {
			b = appendComma(b, n)
			b = append(b, i.JSON...)
		}
		frames = append(frames, append(b, "]}\n\n"...))
	}
	return frames
}

// chunkCache holds the frames of the current collections, so that clients which connect at the same time share them.
type chunkCache struct {
	mu sync.Mutex
	of map[*inventory.Collection]func() [][]byte
}

func (c *chunkCache) frames(collection *inventory.Collection) [][]byte {
	c.mu.Lock()
	made := c.of[collection]
	if made == nil {
		made = sync.OnceValue(func() [][]byte { return snapshotFrames(collection.Topic, collection.Items) })
		if c.of == nil {
			c.of = map[*inventory.Collection]func() [][]byte{}
		}
		c.of[collection] = made
	}
	c.mu.Unlock()
	return made()
}

// keep drops the frames of collections that are not part of the snapshot.
func (c *chunkCache) keep(s *inventory.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for collection := range c.of {
		if s.Collection(collection.Topic) != collection {
			delete(c.of, collection)
		}
	}
}

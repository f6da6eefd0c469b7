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

// patchFrame returns the changes of a topic. With a namespace it leaves out items of other namespaces; it is nil if none is left.
func patchFrame(id string, version uint64, change *inventory.Change, namespace string) []byte {
	b := appendHead(nil, id, "patch")
	b = append(b, `{"topic":"`...)
	b = append(b, change.Topic...)
	b = append(b, `","version":`...)
	b = strconv.AppendUint(b, version, 10)
	b = append(b, `,"upserts":[`...)
	upserted := 0
	for _, i := range change.Upserts {
		if seen(i, namespace) {
			b = appendComma(b, upserted)
			b = append(b, i.JSON...)
			upserted++
		}
	}
	b = append(b, `],"removes":[`...)
	removed := 0
	for _, i := range change.Removes {
		if seen(i, namespace) {
			b = appendComma(b, removed)
			b = strconv.AppendQuote(b, i.ID)
			removed++
		}
	}
	if upserted+removed == 0 {
		return nil
	}
	return append(b, "]}\n\n"...)
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

// chunkSize bounds the items of one frame of a snapshot, so that a browser can draw between two frames.
const chunkSize = 500

// snapshotFrames returns a topic's items in frames of at most chunkSize items. There is at least one frame.
func snapshotFrames(topic inventory.Topic, items []*inventory.Item) [][]byte {
	parts := max((len(items)+chunkSize-1)/chunkSize, 1)
	frames := make([][]byte, 0, parts)
	for part := range parts {
		chunk := items[part*chunkSize : min((part+1)*chunkSize, len(items))]
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
		b = strconv.AppendInt(b, int64(parts), 10)
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

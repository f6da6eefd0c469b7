package inventory

import (
	"strconv"

	"github.com/vitistack/stack/gateway/internal/httpbody"
)

// PageSize is the number of items of a list without a limit. The list of clusters has no limit.
const PageSize = 1000

// ETag returns the strong entity tag of the collection's list, without the suffix of a coding. epoch distinguishes the snapshots of
// different processes.
func (c *Collection) ETag(epoch string) string {
	return epoch + "-" + strconv.FormatUint(c.Version, 10) + "-" + string(c.Topic)
}

// Shown returns the number of items of the list without a limit.
func (c *Collection) Shown() int {
	if c.Topic == TopicClusters {
		return len(c.Items)
	}
	return min(len(c.Items), PageSize)
}

// List returns the body of the list without a query. It is encoded at the first call.
func (c *Collection) List() httpbody.Body {
	c.body.Do(func() {
		c.view = httpbody.New(c.encodeList(c.Items[:c.Shown()]))
		c.read.Store(true)
	})
	return c.view
}

// Read reports whether List has been called.
func (c *Collection) Read() bool { return c.read.Load() }

func (c *Collection) encodeList(items []*Item) []byte {
	return EncodeList(string(c.Topic), items, (*Item).Listed)
}

// EncodeList returns a JSON object with one field, which holds the items.
func EncodeList(field string, items []*Item, encoded func(*Item) []byte) []byte {
	size := len(field) + 8
	for _, i := range items {
		size += len(encoded(i)) + 1
	}
	b := make([]byte, 0, size)
	b = append(b, `{"`...)
	b = append(b, field...)
	b = append(b, `":[`...)
	for n, i := range items {
		if n > 0 {
			b = append(b, ',')
		}
		b = append(b, encoded(i)...)
	}
	return append(b, `]}`...)
}

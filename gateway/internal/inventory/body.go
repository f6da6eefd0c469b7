package inventory

import (
	"bytes"
	"strconv"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// PageSize is how many items a list has that is asked for without a limit. The
// list of clusters has all of them.
const PageSize = 1000

// Body is the bytes of a response, plain and compressed. Gzip and Zstd are nil
// where compression would not pay.
type Body struct {
	Plain, Gzip, Zstd []byte
}

// worthwhile is the size below which a body is sent as it is: it fits in one
// packet anyway.
const worthwhile = 1400

// NewBody compresses what is to be sent often.
func NewBody(plain []byte) Body {
	b := Body{Plain: plain}
	if len(plain) < worthwhile {
		return b
	}
	var packed bytes.Buffer
	packed.Grow(len(plain) / 8)
	w, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil && w.Close() == nil {
		b.Gzip = bytes.Clone(packed.Bytes())
	}
	if encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err == nil {
		b.Zstd = encoder.EncodeAll(plain, make([]byte, 0, len(plain)/8))
	}
	return b
}

// ETag is the strong entity tag of the collection's list, without the suffix of a
// coding. epoch tells snapshots of different processes apart.
func (c *Collection) ETag(epoch string) string {
	return epoch + "-" + strconv.FormatUint(c.Version, 10) + "-" + string(c.Topic)
}

// Shown is how many items the list has that is asked for without a limit.
func (c *Collection) Shown() int {
	if c.Topic == TopicClusters {
		return len(c.Items)
	}
	return min(len(c.Items), PageSize)
}

// List is the body of the list that is asked for without conditions. It is made
// at the first call.
func (c *Collection) List() Body {
	c.body.Do(func() {
		c.view = NewBody(c.encodeList(c.Items[:c.Shown()]))
		c.read.Store(true)
	})
	return c.view
}

// Read tells whether anybody has asked for the list.
func (c *Collection) Read() bool { return c.read.Load() }

func (c *Collection) encodeList(items []*Item) []byte {
	return EncodeList(string(c.Topic), items, (*Item).Listed)
}

// EncodeList is a JSON object with one field, which holds the items as each
// encodes itself.
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

// Package httpbody compresses the bodies of responses in advance.
package httpbody

import (
	"bytes"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Body holds the bytes of a response, plain and compressed. Gzip and Zstd are nil if compression saves nothing.
type Body struct {
	Plain, Gzip, Zstd []byte
}

// minCompressed is the size in bytes from which a body is compressed. A smaller body fits in one packet anyway.
const minCompressed = 1400

// New compresses plain in every coding that the gateway serves. Use it for a body that is sent more than once.
func New(plain []byte) Body {
	b := Body{Plain: plain}
	if len(plain) < minCompressed {
		return b
	}
	var compressed bytes.Buffer
	compressed.Grow(len(plain) / 8)
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil && w.Close() == nil {
		b.Gzip = bytes.Clone(compressed.Bytes())
	}
	if encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1)); err == nil {
		b.Zstd = encoder.EncodeAll(plain, make([]byte, 0, len(plain)/8))
	}
	return b
}

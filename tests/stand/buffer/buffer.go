// Package buffer has a buffer that a program writes while a test reads it.
package buffer

import (
	"bytes"
	"sync"
)

// Buffer is a bytes.Buffer for concurrent use. Its zero value is empty.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends text. It never fails.
func (b *Buffer) Write(text []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(text)
}

// String returns everything that was written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

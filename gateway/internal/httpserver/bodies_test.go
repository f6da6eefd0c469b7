package httpserver

import (
	"io"
	"net"
	"os"
	"testing"
)

// TestBodyTakesPlace has a new body displace the slowest one.
func TestBodyTakesPlace(t *testing.T) {
	t.Parallel()
	b := NewBodies(2)
	var reads []chan error
	var leaves []func()
	for range 3 {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		leaves = append(leaves, b.enter(near))
		read := make(chan error, 1)
		reads = append(reads, read)
		go func() {
			_, err := io.Copy(io.Discard, near)
			read <- err
		}()
	}
	if err := <-reads[0]; !os.IsTimeout(err) {
		t.Errorf("the slow body ends with %v, want a timeout", err)
	}
	for i, read := range reads[1:] {
		select {
		case err := <-read:
			t.Errorf("body %d has a place, and ends with %v", i+1, err)
		default:
		}
	}
	for _, leave := range leaves {
		leave()
	}
	if n := b.arriving.Len(); n != 0 {
		t.Errorf("%d places are still in use", n)
	}
}

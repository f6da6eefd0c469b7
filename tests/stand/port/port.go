// Package port keeps TCP ports of the loopback address for servers that tests stop and start again.
package port

import (
	"fmt"
	"os"
	"syscall"
	"testing"
)

// Port is a port that no other process gets from the kernel, also while the server that it is kept for does not
// run: a socket is bound to it that does not listen. The server must bind the port with SO_REUSEADDR (socket(7)).
type Port struct {
	Number int
	socket *os.File
}

// Keep keeps the port with a number, or a free one for 0. It returns an error if a process listens on the port.
func Keep(number int) (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "port")
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("bind port %d: %w", number, err)
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		_ = socket.Close()
		return nil, fmt.Errorf("read the bound port: %w", err)
	}
	return &Port{Number: address.(*syscall.SockaddrInet4).Port, socket: socket}, nil
}

// Close releases the port.
func (p *Port) Close() { _ = p.socket.Close() }

// KeepAddress returns an address of the form 127.0.0.1:port whose port is kept until the test ends.
func KeepAddress(t testing.TB) string {
	t.Helper()
	kept, err := Keep(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kept.Close)
	return fmt.Sprintf("127.0.0.1:%d", kept.Number)
}

// Package port keeps TCP ports of the loopback address for programs that listen on them later.
package port

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// Port is a port that no other program gets from the kernel until it is released, also
// while the program that it is kept for is not started yet, or starts again.
//
// The socket of a Port is bound, but does not listen. The kernel then gives the port neither to
// a program that binds port 0 nor to a connection. A program that binds its number with SO_REUSEADDR, as
// programs in Go and most servers do, may listen on it (socket(7)). Another Port with the number could be bound, too. Each Port therefore also
// holds a claim, which is a Unix socket with the number in its name.
type Port struct {
	number int
	socket int
	claim  net.Listener
}

// Keep keeps the port with a number, or a free one for 0. It returns an error that names the process if another one
// listens on the port, or keeps it.
func Keep(number int) (*Port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	bound, err := bind(socket, number)
	if err != nil {
		return nil, errors.Join(taken(err, listener(number)), unix.Close(socket))
	}
	claim, err := net.ListenUnix("unix", claimName(bound))
	if err != nil {
		return nil, errors.Join(taken(fmt.Errorf("keep port %d: %w", bound, err), claimant(bound)), unix.Close(socket))
	}
	return &Port{number: bound, socket: socket, claim: claim}, nil
}

// bind binds a socket to a port of the loopback address and returns the number of the port.
func bind(socket, number int) (int, error) {
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEADDR: %w", err)
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Port: number, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, fmt.Errorf("bind port %d: %w", number, err)
	}
	address, err := unix.Getsockname(socket)
	if err != nil {
		return 0, fmt.Errorf("read the bound port: %w", err)
	}
	return address.(*unix.SockaddrInet4).Port, nil
}

// Number returns the number of the port.
func (p *Port) Number() int { return p.number }

// Close releases the port.
func (p *Port) Close() error {
	if err := errors.Join(p.claim.Close(), unix.Close(p.socket)); err != nil {
		return fmt.Errorf("release port %d: %w", p.number, err)
	}
	return nil
}

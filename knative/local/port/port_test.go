package port

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestKeptPort(t *testing.T) {
	t.Parallel()
	p, err := Keep(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number()))
	for range 2 {
		if got := chosen(t, p.Number()); !errors.Is(got, unix.EADDRINUSE) {
			t.Errorf("a program that binds port 0 got %v, want %v: the port is kept for another one", got, unix.EADDRINUSE)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatalf("the program that the port is kept for cannot listen on it: %v", err)
		}
		if other, err := Keep(p.Number()); err == nil {
			_ = other.Close()
			t.Error("a port on which a program listens was kept for another one")
		}
		_ = listener.Close()
	}
}

// TestTwoEngines keeps a port that another engine keeps for its gateway, which does not listen yet. The error names the process of that engine.
func TestTwoEngines(t *testing.T) {
	t.Parallel()
	first, err := Keep(0)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0])
	check := func(because string) {
		t.Helper()
		if second, err := Keep(first.Number()); err == nil {
			_ = second.Close()
			t.Errorf("%s: the port was kept twice", because)
		} else if !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), fmt.Sprint("port ", first.Number())) {
			t.Errorf("%s: got %v, want %s", because, err, want)
		}
	}
	check("its program does not listen yet")
	listening, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", first.Number()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listening.Close() })
	check("its program listens")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	check("a program of another kind listens")
}

func TestClosedPort(t *testing.T) {
	t.Parallel()
	p, err := Keep(0)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if err := chosen(t, p.Number()); err != nil {
		t.Errorf("a program that binds port 0 got %v, want the released port", err)
	}
}

// chosen binds port 0 with a range of one port, and returns the error of the kernel.
func chosen(t *testing.T, number int) error {
	t.Helper()
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(socket) }()
	err = unix.SetsockoptInt(socket, unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, number<<16|number)
	if errors.Is(err, unix.ENOPROTOOPT) {
		t.Skip("the kernel is older than Linux 6.3, which added IP_LOCAL_PORT_RANGE")
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = bind(socket, 0)
	for errors.Unwrap(err) != nil {
		err = errors.Unwrap(err)
	}
	return err
}

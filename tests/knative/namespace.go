// Package knative runs Knative Eventing's own control plane and data plane on the local API server,
// from its released manifests, with the stack. A simple kubelet runs each pod as a process in a
// network namespace of its own.
package knative

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inPod as the first argument makes this program the init process of a pod.
const inPod = "in-pod"

// podProxy is the address of the proxy for DNS and Services in a pod.
const podProxy = "127.0.0.1:3128"

// commandInPod returns a command that runs in a network namespace of its own. It reaches the API
// server and, through a proxy, everything else by the socket outside. Others reach it by the socket
// inside: a client writes a port and a newline first. Both sockets are paths in the file system, which
// the namespaces share.
func commandInPod(apiServer, outside, inside, program string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self, inPod, apiServer, outside, inside, program)
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return command, nil
}

// runInPod is the counterpart of commandInPod in the namespace. It returns when the program has ended.
func runInPod(args []string) error {
	apiServer, outside, inside, program := args[0], args[1], args[2], args[3]
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("bring up the loopback device: %w", err)
	}
	doors := []struct {
		network, address string
		open             func(net.Conn) (net.Conn, error)
	}{
		{"tcp", podProxy, func(net.Conn) (net.Conn, error) { return net.Dial("unix", outside) }},
		{"tcp", apiServer, func(net.Conn) (net.Conn, error) { return tunnel(outside, apiServer) }},
		{"unix", inside, enter},
	}
	for _, door := range doors {
		listener, err := net.Listen(door.network, door.address)
		if err != nil {
			return err
		}
		go serve(listener, door.open)
	}
	command := exec.Command(program)
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	go func() {
		for s := range stop {
			_ = command.Process.Signal(s)
		}
	}()
	return command.Wait()
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

// tunnel requests a connection to an address from the proxy at a socket.
func tunnel(outside, address string) (net.Conn, error) {
	connection, err := net.Dial("unix", outside)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(connection, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	// The proxy sends nothing before the first request, so the reader has buffered nothing.
	response, err := http.ReadResponse(bufio.NewReader(connection), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, errors.Join(err, connection.Close())
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("connect to %s: %s", address, response.Status), connection.Close())
	}
	return connection, nil
}

// enter connects to the port that the caller names.
func enter(from net.Conn) (net.Conn, error) {
	var port strings.Builder
	one := make([]byte, 1)
	for {
		if _, err := io.ReadFull(from, one); err != nil {
			return nil, err
		}
		if one[0] == '\n' {
			return net.Dial("tcp", "127.0.0.1:"+port.String())
		}
		port.Write(one)
	}
}

// serve joins each connection with one from open.
func serve(listener net.Listener, open func(net.Conn) (net.Conn, error)) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			to, err := open(from)
			if err != nil {
				_ = from.Close()
				return
			}
			join(from, to)
		}()
	}
}

// join copies in both directions, and closes both connections when one has ended.
func join(a, b net.Conn) {
	done := make(chan struct{}, 2)
	copyTo := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		done <- struct{}{}
	}
	go copyTo(a, b)
	go copyTo(b, a)
	<-done
	<-done
	_ = a.Close()
	_ = b.Close()
}

package underlay

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"
)

// The supported part of SOCKS5 (RFC 1928): CONNECT to an address, without authentication.
const (
	version     = 5
	noAuth      = 0
	connect     = 1
	typeIPv4    = 1
	typeIPv6    = 4
	succeeded   = 0
	unreachable = 4
	refused     = 5
	unsupported = 7
	badAddress  = 8
)

const handshakeTimeout = 10 * time.Second

// Serve answers SOCKS5 clients on a listener until ctx ends, and closes the listener. A machine's
// address that was never assigned is unreachable. An address without a listener refuses the
// connection.
func Serve(ctx context.Context, listener net.Listener) {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(ctx, client)
	}
}

func serve(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	_ = client.SetDeadline(time.Now().Add(handshakeTimeout))
	target, code := request(client)
	if code != succeeded {
		reply(client, code)
		return
	}
	server, err := new(net.Dialer).DialContext(ctx, "tcp", target.String())
	if err != nil {
		reply(client, refused)
		return
	}
	defer func() { _ = server.Close() }()
	reply(client, succeeded)
	_ = client.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = client.Close() })
	defer stop()
	pipe(client, server)
}

// request reads a client's request, and returns the loopback address of its target, or the code of the
// reply with the error.
func request(client net.Conn) (target netip.AddrPort, code byte) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(client, head); err != nil || head[0] != version {
		return target, unsupported
	}
	if _, err := io.CopyN(io.Discard, client, int64(head[1])); err != nil {
		return target, unsupported
	}
	if _, err := client.Write([]byte{version, noAuth}); err != nil {
		return target, unsupported
	}
	asked := make([]byte, 4) // version, command, reserved, type of address
	if _, err := io.ReadFull(client, asked); err != nil || asked[1] != connect {
		return target, unsupported
	}
	address, err := readAddress(client, asked[3])
	if err != nil {
		return target, badAddress
	}
	local, ok := Find(address.Addr())
	if !ok {
		return target, unreachable
	}
	return netip.AddrPortFrom(local, address.Port()), succeeded
}

func readAddress(client net.Conn, kind byte) (netip.AddrPort, error) {
	size := map[byte]int{typeIPv4: 4, typeIPv6: 16}[kind]
	if size == 0 {
		return netip.AddrPort{}, errors.New("a host name, or an unknown type of address")
	}
	raw := make([]byte, size+2)
	if _, err := io.ReadFull(client, raw); err != nil {
		return netip.AddrPort{}, err
	}
	address, _ := netip.AddrFromSlice(raw[:size])
	return netip.AddrPortFrom(address, binary.BigEndian.Uint16(raw[size:])), nil
}

// reply answers a request. The bound address is 0.0.0.0:0, because no client needs it.
func reply(client net.Conn, code byte) {
	_, _ = client.Write([]byte{version, code, 0, typeIPv4, 0, 0, 0, 0, 0, 0})
}

// pipe copies in both directions until both have ended. It forwards the end of one direction, so that
// the other one can end by itself.
func pipe(client, server net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, client)
		closeWrite(server)
	}()
	if _, err := io.Copy(client, server); err != nil {
		_ = client.Close() // like a machine without power
	}
	closeWrite(client)
	<-done
}

func closeWrite(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}

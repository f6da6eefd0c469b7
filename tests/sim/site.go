package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// loopbackAddress is the address at which functions on the same machine reach the simulators.
const loopbackAddress = "127.0.0.1"

// site is the folder that keeps the state of the simulators, and the IP at which they listen.
type site struct{ state, ip string }

// serve serves a handler until ctx ends. Its address is stored in a file in the state folder, so that
// it is the same after a restart.
func (s site) serve(ctx context.Context, name string, handler http.Handler) (string, error) {
	listener, err := s.listen(ctx, name)
	if err != nil {
		return "", fmt.Errorf("serve %s: %w", name, err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return "http://" + listener.Addr().String(), nil
}

// listen listens on the stored address of a server if it is free, and otherwise on any port.
func (s site) listen(ctx context.Context, name string) (net.Listener, error) {
	file := filepath.Join(s.state, name+".address")
	if kept, err := os.ReadFile(file); err == nil {
		if listener, err := new(net.ListenConfig).Listen(ctx, "tcp", string(kept)); err == nil {
			return listener, nil
		}
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(s.ip, "0"))
	if err != nil {
		return nil, err
	}
	return listener, os.WriteFile(file, []byte(listener.Addr().String()), 0o600)
}

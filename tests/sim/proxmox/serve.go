package proxmox

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"
)

// headerTimeout limits the time to read a request's header.
const headerTimeout = 10 * time.Second

// Endpoint is the address of a cluster's API.
type Endpoint struct {
	URL string
	// CA is the authority of its certificate, in PEM.
	CA []byte
}

// Start serves the API on an address until ctx ends, with a certificate of the cluster's authority.
// The port of the address may be 0.
func (s *Server) Start(ctx context.Context, address string) (Endpoint, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return Endpoint{}, fmt.Errorf("serve Proxmox VE: %w", err)
	}
	certificate, err := s.authority.issue(listener.Addr().(*net.TCPAddr).IP)
	if err != nil {
		_ = listener.Close()
		return Endpoint{}, err
	}
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}},
		// HTTP/2 has no reason phrases.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		ErrorLog:     log.New(discard{}, "", 0),
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.authority.Certificate})
	return Endpoint{URL: "https://" + listener.Addr().String(), CA: ca}, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

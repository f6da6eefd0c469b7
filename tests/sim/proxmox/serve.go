package proxmox

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
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

// Start serves the API on an address until ctx ends, with a certificate of an authority of its own.
// The port of the address may be 0.
func (s *Server) Start(ctx context.Context, address string) (Endpoint, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return Endpoint{}, fmt.Errorf("serve Proxmox VE: %w", err)
	}
	ca, certificate, err := issue(listener.Addr().(*net.TCPAddr).IP)
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
	return Endpoint{URL: "https://" + listener.Addr().String(), CA: ca}, nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// issue creates an authority, and a certificate of it for an address.
func issue(ip net.IP) (ca []byte, certificate tls.Certificate, err error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, certificate, fmt.Errorf("make the authority's key: %w", err)
	}
	authority := template("Proxmox Virtual Environment")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, authority, authority, caKey.Public(), caKey)
	if err != nil {
		return nil, certificate, fmt.Errorf("make the authority: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, certificate, fmt.Errorf("make the server's key: %w", err)
	}
	leaf := template("pve1")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames, leaf.IPAddresses = []string{"localhost"}, []net.IP{ip}
	der, err := x509.CreateCertificate(rand.Reader, leaf, authority, key.Public(), caKey)
	if err != nil {
		return nil, certificate, fmt.Errorf("make the server's certificate: %w", err)
	}
	ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	return ca, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func template(name string) *x509.Certificate {
	now := time.Now()
	const days = 30
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, days),
	}
}

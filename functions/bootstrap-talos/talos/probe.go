package talos

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/vitistack/stack/events/outbound"
)

// State is what a node is, told by its TLS handshake alone.
type State string

const (
	// Unreachable does not answer: it is off, starting, or cut off.
	Unreachable State = "Unreachable"
	// Maintenance waits for its configuration, and asks nobody who they are.
	Maintenance State = "Maintenance"
	// Configured has a certificate of the cluster's authority.
	Configured State = "Configured"
	// Skewed is ours, but its clock and the one here differ by so much that
	// nobody can talk to it.
	Skewed State = "Skewed"
	// Foreign has a configuration of another cluster.
	Foreign State = "Foreign"
)

// Probe tells the state of a node, and the fingerprint of the certificate that it
// shows. a is nil while the cluster has no keys; no node can be ours then.
func Probe(ctx context.Context, address string, a *Credentials) (State, Fingerprint) {
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	asked := false
	raw, err := outbound.FromEnvironment().DialContext(ctx, "tcp", net.JoinHostPort(address, APIPort))
	if err != nil {
		return Unreachable, Fingerprint{}
	}
	conn := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is judged by classify
		NextProtos:         []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
	})
	defer func() { _ = conn.Close() }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return Unreachable, Fingerprint{}
	}
	peer := conn.ConnectionState().PeerCertificates[0]
	return classify(peer, asked, a, time.Now()), sha256.Sum256(peer.Raw)
}

// classify judges a node by the certificate that it shows, and by whether it asks
// for one:
//
//	signed by the cluster's authority    ours, or skewed where it is not valid now
//	otherwise, asks for no certificate   maintenance
//	otherwise                            foreign
//
// Talos has the authority itself sign its nodes' certificates. Whose a node is does
// not depend on what time it is there, so that only the signature tells.
func classify(peer *x509.Certificate, asked bool, a *Credentials, now time.Time) State {
	switch {
	case a != nil && a.signed(peer):
		if now.Before(peer.NotBefore) || now.After(peer.NotAfter) {
			return Skewed
		}
		return Configured
	case !asked:
		return Maintenance
	default:
		return Foreign
	}
}

// Package talos is everything that is said to nodes through the Talos API: probes, machine
// configurations, etcd, upgrades, and the keys of a cluster. An address is an IP address without a
// port.
package talos

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/events/outbound"
)

// State is what the TLS handshake shows of a node.
type State string

// States of a node.
const (
	// Unreachable means that the node does not answer: it is off, starting or cut off.
	Unreachable State = "Unreachable"
	// Maintenance means that the node waits for a configuration. It accepts every client.
	Maintenance State = "Maintenance"
	// Configured means that the cluster's authority has signed the certificate.
	Configured State = "Configured"
	// ClockSkewed means that it has, but the clocks differ so much that the certificate is not valid.
	ClockSkewed State = "Skewed"
	// Foreign means that the node belongs to another cluster.
	Foreign State = "Foreign"
)

// Probe returns the state of a node, and the fingerprint of its certificate. a is nil before the
// cluster has keys.
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

// FindInMaintenance probes nodes, given by name and address, and returns the certificates of those in maintenance mode, by name.
// It begins no probe after the time limit, and leaves the other nodes to the next call.
func FindInMaintenance(ctx context.Context, nodes map[string]string, a *Credentials, limit time.Duration) map[string]Fingerprint {
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(plan.MaxConcurrentNodes)
	found, end := map[string]Fingerprint{}, time.Now().Add(limit)
	for name, address := range nodes {
		if time.Now().After(end) {
			break
		}
		group.Go(func() error {
			if state, shown := Probe(ctx, address, a); state == Maintenance {
				mu.Lock()
				defer mu.Unlock()
				found[name] = shown
			}
			return nil
		})
	}
	_ = group.Wait()
	return found
}

// classify decides the state of a node by its certificate, and by whether it requests one of the
// client:
//
//	signed by the cluster's authority        Configured, or ClockSkewed if it is not valid now
//	otherwise, requests no certificate       Maintenance
//	otherwise                                Foreign
//
// The authority itself signs the certificates of nodes. Validity is checked apart from the
// signature, because the clock of a node does not change its cluster.
func classify(peer *x509.Certificate, asked bool, a *Credentials, now time.Time) State {
	switch {
	case a != nil && a.signed(peer):
		if now.Before(peer.NotBefore) || now.After(peer.NotAfter) {
			return ClockSkewed
		}
		return Configured
	case !asked:
		return Maintenance
	default:
		return Foreign
	}
}

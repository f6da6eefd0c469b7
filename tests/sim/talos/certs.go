package talos

import (
	"crypto/tls"
	stdx509 "crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// identity has the certificates of a machine for clients and other nodes. It never changes. Its keys
// are generated at the first use.
type identity struct {
	// maintenance is whether clients need no certificate.
	maintenance bool
	server      func() (*tls.Certificate, error)
	// client authenticates the node to others. It is nil on workers, which cannot forward requests.
	client func() (*tls.Certificate, error)
	// accepted are the authorities of the cluster, in PEM.
	accepted *stdx509.CertPool
	// now is the node's clock, for certificates of others.
	now func() time.Time
}

// maintenanceIdentity returns an identity with a self-signed certificate.
func maintenanceIdentity(n wiring) (*identity, error) {
	ca, err := x509.NewSelfSignedCertificateAuthority()
	if err != nil {
		return nil, err
	}
	authority := &x509.PEMEncodedCertificateAndKey{Crt: ca.CrtPEM, Key: ca.KeyPEM}
	return &identity{
		maintenance: true,
		server:      issue(authority, n, nil, stdx509.ExtKeyUsageServerAuth),
	}, nil
}

// controlPlaneIdentity returns an identity that the authority in the configuration has signed.
func controlPlaneIdentity(cfg config.Provider, n wiring) (*identity, error) {
	security := cfg.Machine().Security()
	pool, err := acceptedCAs(cfg)
	if err != nil {
		return nil, err
	}
	if security.IssuingCA() == nil || len(security.IssuingCA().Key) == 0 {
		return nil, errors.New("machine.ca has no key")
	}
	return &identity{
		server:   issue(security.IssuingCA(), n, security.CertSANs(), stdx509.ExtKeyUsageServerAuth),
		client:   issue(security.IssuingCA(), n, nil, stdx509.ExtKeyUsageClientAuth, string(role.Impersonator)),
		accepted: pool,
		now:      n.now,
	}, nil
}

// issue returns a certificate that generates and certifies its key at the first use.
func issue(ca *x509.PEMEncodedCertificateAndKey, n wiring, sans []string, usage stdx509.ExtKeyUsage, organization ...string) func() (*tls.Certificate, error) {
	return sync.OnceValues(func() (*tls.Certificate, error) {
		authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(ca)
		if err != nil {
			return nil, err
		}
		options := []x509.Option{
			x509.CommonName(n.fqdn()),
			x509.NotBefore(n.now().Add(-10 * time.Second)),
			x509.NotAfter(n.now().Add(x509.DefaultCertificateValidityDuration)),
			x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
			x509.ExtKeyUsage([]stdx509.ExtKeyUsage{usage}),
		}
		if usage == stdx509.ExtKeyUsageServerAuth {
			ips, names := n.sans(sans)
			options = append(options, x509.IPAddresses(ips), x509.DNSNames(names))
		}
		if len(organization) > 0 {
			options = append(options, x509.Organization(organization...))
		}
		pair, err := x509.NewKeyPair(authority, options...)
		if err != nil {
			return nil, err
		}
		return pair.Certificate, nil
	})
}

// sans returns the names of a node in its certificate.
func (n wiring) sans(extra []string) ([]net.IP, []string) {
	ips := []net.IP{n.address.Addr().AsSlice(), net.IPv4(127, 0, 0, 1)}
	var names []string
	if n.hostname != "" {
		names = append(names, n.hostname)
		if n.fqdn() != n.hostname {
			names = append(names, n.fqdn())
		}
	}
	for _, vip := range n.vips {
		ips = append(ips, vip.AsSlice())
	}
	for _, san := range extra {
		if ip, err := netip.ParseAddr(san); err == nil {
			ips = append(ips, ip.AsSlice())
		} else if !slices.Contains(names, san) {
			names = append(names, san)
		}
	}
	return ips, names
}

func acceptedCAs(cfg config.Provider) (*stdx509.CertPool, error) {
	security := cfg.Machine().Security()
	pool, n := stdx509.NewCertPool(), 0
	for _, ca := range security.AcceptedCAs() {
		if pool.AppendCertsFromPEM(ca.Crt) {
			n++
		}
	}
	if ca := security.IssuingCA(); ca != nil && pool.AppendCertsFromPEM(ca.Crt) {
		n++
	}
	if n == 0 {
		return nil, errors.New("the configuration accepts no certificate authority")
	}
	return pool, nil
}

// serverTLS returns the TLS configuration of apid, which uses the identity at the time of the
// handshake.
func (b *boot) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			id := b.identity.Load()
			if id == nil {
				return nil, errors.New("the node has no identity yet")
			}
			cert, err := id.server()
			if err != nil {
				return nil, fmt.Errorf("issue the server certificate: %w", err)
			}
			c := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, Certificates: []tls.Certificate{*cert}}
			if !id.maintenance {
				c.ClientAuth, c.ClientCAs, c.VerifyPeerCertificate = tls.RequireAndVerifyClientCert, id.accepted, onlyClientAuth
				c.Time = id.now
			}
			return c, nil
		},
	}
}

// onlyClientAuth rejects certificates that are valid for a server as well.
func onlyClientAuth(_ [][]byte, chains [][]*stdx509.Certificate) error {
	if len(chains) == 0 {
		return errors.New("no verified chains")
	}
	for _, cert := range chains[0] {
		if !cert.IsCA && !slices.Equal(cert.ExtKeyUsage, []stdx509.ExtKeyUsage{stdx509.ExtKeyUsageClientAuth}) {
			return fmt.Errorf("certificate %q is missing the client auth extended key usage", cert.Subject)
		}
	}
	return nil
}

func firstCertificate(chain []byte) (*stdx509.Certificate, error) {
	block, _ := pem.Decode(chain)
	if block == nil {
		return nil, errors.New("no PEM certificate")
	}
	return stdx509.ParseCertificate(block.Bytes)
}

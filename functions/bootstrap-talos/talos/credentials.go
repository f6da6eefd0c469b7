package talos

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
)

// Lifetimes of client certificates: of those that a delivery makes for itself, and
// of the one in the talosconfig that people use.
const (
	clientLifetime      = time.Hour
	TalosconfigLifetime = 365 * 24 * time.Hour
)

// Credentials is how a delivery proves to nodes of a cluster who it is, and by whose certificates
// it knows them.
type Credentials struct {
	authorities []*x509.Certificate
	certificate tls.Certificate
}

// NewCredentials makes a client certificate for as long as a delivery may need it. Nodes are known
// also by the authorities of the other bundles.
func NewCredentials(bundle *secrets.Bundle, others ...*secrets.Bundle) (*Credentials, error) {
	pair, err := bundle.GenerateTalosAPIClientCertificateWithTTL(role.MakeSet(role.Admin), clientLifetime)
	if err != nil {
		return nil, fmt.Errorf("make client certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(pair.Crt, pair.Key)
	if err != nil {
		return nil, fmt.Errorf("make client certificate: %w", err)
	}
	a := &Credentials{certificate: certificate}
	for _, b := range append([]*secrets.Bundle{bundle}, others...) {
		authority, err := b.Certs.OS.GetCert()
		if err != nil {
			return nil, errors.New("make client certificate: the cluster's authority is no certificate")
		}
		a.authorities = append(a.authorities, authority)
	}
	return a, nil
}

func (a *Credentials) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	for _, authority := range a.authorities {
		pool.AddCert(authority)
	}
	return pool
}

// signed reports whether an authority of the cluster has signed a certificate.
func (a *Credentials) signed(c *x509.Certificate) bool {
	return slices.ContainsFunc(a.authorities, func(authority *x509.Certificate) bool { return c.CheckSignatureFrom(authority) == nil })
}

func (a *Credentials) TLSConfig() *tls.Config {
	return &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{a.certificate}, MinVersion: tls.VersionTLS12}
}

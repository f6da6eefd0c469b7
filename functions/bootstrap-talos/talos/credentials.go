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

// Lifetimes of client certificates: of those of a delivery, and of the one in the talosconfig.
const (
	clientLifetime      = time.Hour
	TalosconfigLifetime = 365 * 24 * time.Hour
)

// Credentials is the client certificate of a delivery, and the authorities that it trusts.
type Credentials struct {
	authorities []*x509.Certificate
	certificate tls.Certificate
}

// NewCredentials makes a client certificate that outlives a delivery. The authorities of the
// other bundles are trusted too.
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

// TLSConfig returns the configuration of a client of the cluster.
func (a *Credentials) TLSConfig() *tls.Config {
	return &tls.Config{RootCAs: a.pool(), Certificates: []tls.Certificate{a.certificate}, MinVersion: tls.VersionTLS12}
}

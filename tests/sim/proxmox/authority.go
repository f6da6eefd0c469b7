package proxmox

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// authority is the certificate authority of a cluster, which is made with its first node and is one for all of them.
type authority struct {
	// Certificate and Key are in DER.
	Certificate, Key []byte
}

// newAuthority creates an authority.
func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the authority's key: %w", err)
	}
	ca := template("Proxmox Virtual Environment")
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, ca, ca, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority: %w", err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	return &authority{Certificate: der, Key: keyDER}, err
}

// issue creates a certificate for an address.
func (a *authority) issue(ip net.IP) (certificate tls.Certificate, err error) {
	ca, err := x509.ParseCertificate(a.Certificate)
	if err != nil {
		return certificate, fmt.Errorf("read the authority: %w", err)
	}
	caKey, err := x509.ParseECPrivateKey(a.Key)
	if err != nil {
		return certificate, fmt.Errorf("read the authority's key: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, fmt.Errorf("make the server's key: %w", err)
	}
	leaf := template("pve1")
	leaf.KeyUsage, leaf.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	leaf.DNSNames, leaf.IPAddresses = []string{"localhost"}, []net.IP{ip}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return certificate, fmt.Errorf("make the server's certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// fingerprint returns the SHA-256 fingerprint of the authority, as openssl writes it.
func (a *authority) fingerprint() string {
	sum := sha256.Sum256(a.Certificate)
	return strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
}

func template(name string) *x509.Certificate {
	now := time.Now()
	const days = 30
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(0, 0, days),
	}
}

// RenewAuthority replaces the authority of the cluster, as an administrator does before it expires. The certificate in use stays.
func (s *Server) RenewAuthority() error {
	renewed, err := newAuthority()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authority = renewed
	s.save()
	return nil
}

// certificates lists the certificates of a host. Its own is left out, because only that of the cluster is read.
func certificates(c *call) (any, error) {
	return []any{map[string]any{"filename": "pve-root-ca.pem", "fingerprint": c.server.authority.fingerprint(), "subject": "/CN=Proxmox Virtual Environment"}}, nil
}

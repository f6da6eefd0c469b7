package talos

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"
)

// signed returns a certificate that authority has signed, or a self-signed one if authority is nil.
func signed(t *testing.T, authority *x509.Certificate, by crypto.Signer, from time.Time, lifetime time.Duration) *x509.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"test"}},
		NotBefore: from, NotAfter: from.Add(lifetime), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if authority == nil {
		authority, by = template, private
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, public, by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

func newAuthority(t *testing.T) (*x509.Certificate, crypto.Signer) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{Organization: []string{"talos"}}, // every authority has this name
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, private
}

func TestClassify(t *testing.T) {
	t.Parallel()
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	now := time.Now()
	ours, ourKey := newAuthority(t)
	theirs, theirKey := newAuthority(t)
	a := &Credentials{authorities: []*x509.Certificate{ours}}
	for name, tc := range map[string]struct {
		reason string
		peer   *x509.Certificate
		asked  bool
		access *Credentials
		want   State
	}{
		"Ours":          {"signed by the cluster", signed(t, ours, ourKey, now.Add(-time.Minute), day), true, a, Configured},
		"Behind":        {"a clock that is behind does not change the cluster", signed(t, ours, ourKey, now.Add(-10*year), day), true, a, ClockSkewed},
		"Ahead":         {"a clock that is ahead does not change it either", signed(t, ours, ourKey, now.Add(2*day), day), true, a, ClockSkewed},
		"Foreign":       {"another cluster's authority has the same name", signed(t, theirs, theirKey, now.Add(-time.Minute), day), true, a, Foreign},
		"ForeignBehind": {"a wrong clock does not make a node part of the cluster", signed(t, theirs, theirKey, now.Add(-10*year), day), true, a, Foreign},
		"Maintenance":   {"a self-signed server that requires no client certificate is in maintenance mode", signed(t, nil, nil, now.Add(-time.Minute), day), false, a, Maintenance},
		"Old":           {"the clock does not matter in maintenance mode", signed(t, nil, nil, now.Add(-10*year), day), false, a, Maintenance},
		"NoKeys":        {"without keys, no node belongs to the cluster", signed(t, ours, ourKey, now.Add(-time.Minute), day), true, nil, Foreign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := classify(tc.peer, tc.asked, tc.access, now); got != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// Package pki generates the keys and certificates of a local control plane once and stores them in a
// directory.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	lifetime = 10 * 365 * 24 * time.Hour
	renewal  = 30 * 24 * time.Hour // certificates that expire within it are renewed
)

// Files are the paths of the files that Ensure creates.
type Files struct {
	CA, ServingCert, ServingKey, AdminCert, AdminKey, ServiceAccountKey string
}

// Ensure creates what is missing or expires soon at the time now: a CA, the API server's certificate for 127.0.0.1, localhost and the in-cluster names,
// the certificate of an administrator (group system:masters), and the key that signs ServiceAccount tokens. Only the owner can read them. A second call
// changes nothing.
func Ensure(dir string, now time.Time) (Files, error) {
	f := Files{
		CA:          filepath.Join(dir, "ca.crt"),
		ServingCert: filepath.Join(dir, "apiserver.crt"), ServingKey: filepath.Join(dir, "apiserver.key"),
		AdminCert: filepath.Join(dir, "admin.crt"), AdminKey: filepath.Join(dir, "admin.key"),
		ServiceAccountKey: filepath.Join(dir, "service-account.key"),
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Files{}, fmt.Errorf("create %s: %w", dir, err)
	}
	ca, renewed, err := ensureCA(f.CA, filepath.Join(dir, "ca.key"), now)
	if err != nil {
		return Files{}, err
	}
	serving := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.IPv4(10, 96, 0, 1)},
	}
	admin := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := errors.Join(
		ca.ensure(f.ServingCert, f.ServingKey, serving, now, renewed),
		ca.ensure(f.AdminCert, f.AdminKey, admin, now, renewed),
		ensureKey(f.ServiceAccountKey),
	); err != nil {
		return Files{}, err
	}
	return f, nil
}

type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// ensureCA reports whether the CA is new, so that certificates of the old one are replaced.
func ensureCA(certFile, keyFile string, now time.Time) (authority, bool, error) {
	certificate, key, err := load(certFile, keyFile)
	if err != nil {
		return authority{}, false, err
	}
	if fresh(certificate, now) {
		return authority{certificate, key}, false, nil
	}
	if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return authority{}, false, fmt.Errorf("generate the key of the CA: %w", err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "vitistack-local"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	certificate, err = sign(certFile, keyFile, template, key, authority{template, key}, now)
	return authority{certificate, key}, true, err
}

// ensure creates a certificate unless there is a valid one. force replaces a valid one.
func (ca authority) ensure(certFile, keyFile string, template *x509.Certificate, now time.Time, force bool) error {
	certificate, _, err := load(certFile, keyFile)
	if err != nil {
		return err
	}
	if !force && fresh(certificate, now) && certificate.CheckSignatureFrom(ca.certificate) == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate the key of %s: %w", certFile, err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	_, err = sign(certFile, keyFile, template, key, ca, now)
	return err
}

func sign(certFile, keyFile string, template *x509.Certificate, key *ecdsa.PrivateKey, ca authority, now time.Time) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(lifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, key.Public(), ca.key)
	if err != nil {
		return nil, fmt.Errorf("sign %s: %w", certFile, err)
	}
	if err := errors.Join(writeKey(keyFile, key), write(certFile, "CERTIFICATE", der)); err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func fresh(certificate *x509.Certificate, now time.Time) bool {
	return certificate != nil && now.Add(renewal).Before(certificate.NotAfter)
}

// load returns nil for files that do not exist.
func load(certFile, keyFile string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	certDER, err := read(certFile)
	if err != nil || certDER == nil {
		return nil, nil, err
	}
	keyDER, err := read(keyFile)
	if err != nil || keyDER == nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s (remove it to have a new one made): %w", certFile, err)
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, fmt.Errorf("parse %s (remove it to have a new one made): %w", keyFile, err)
	}
	return certificate, key, nil
}

func ensureKey(file string) error {
	der, err := read(file)
	if err != nil || der != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate %s: %w", file, err)
	}
	return writeKey(file, key)
}

func writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", file, err)
	}
	return write(file, "EC PRIVATE KEY", der)
}

func write(file, kind string, der []byte) error {
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write a key or certificate: %w", err)
	}
	return nil
}

// read returns nil if the file does not exist.
func read(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read a key or certificate: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("read %s: it is not PEM; remove it to have a new one made", file)
	}
	return block.Bytes, nil
}

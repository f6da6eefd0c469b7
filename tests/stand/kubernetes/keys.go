package kubernetes

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// keys is the authority of a cluster, which writes certificates and kubeconfigs into a folder.
type keys struct {
	folder string
	cert   *x509.Certificate
	key    crypto.Signer
}

// newKeys creates an authority, and a key that signs tokens of ServiceAccounts.
func newKeys(folder string) (*keys, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert := template("kubernetes")
	cert.IsCA, cert.BasicConstraintsValid, cert.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature
	k := &keys{folder: folder, cert: cert, key: key}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return k, errors.Join(os.MkdirAll(folder, 0o700), k.sign("ca", cert, key), k.writeKey("service-accounts", tokens))
}

func template(name string, groups ...string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(7 * 24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
}

func (k *keys) path(name string) string { return filepath.Join(k.folder, name) }

// issue writes NAME.crt and NAME.key. Hosts are names and addresses.
func (k *keys) issue(name string, cert *x509.Certificate, hosts ...string) error {
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, host)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return k.sign(name, cert, key)
}

func (k *keys) sign(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, cert, k.cert, key.Public(), k.key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return errors.Join(os.WriteFile(k.path(name+".crt"), text, 0o600), k.writeKey(name, key))
}

func (k *keys) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(k.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// kubeconfig writes NAME.kubeconfig for a user with a new certificate.
func (k *keys) kubeconfig(name, server string, cert *x509.Certificate, hosts ...string) error {
	if err := k.issue(name, cert, hosts...); err != nil {
		return err
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: %q, certificate-authority: ca.crt}}]
users: [{name: user, user: {client-certificate: NAME.crt, client-key: NAME.key}}]
contexts: [{name: node, context: {cluster: node, user: user}}]
current-context: node
`, server)
	return os.WriteFile(k.path(name+".kubeconfig"), []byte(strings.ReplaceAll(text, "NAME", name)), 0o600)
}

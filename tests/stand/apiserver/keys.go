package apiserver

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const (
	caFile                = "ca.crt"
	serverCertFile        = "server.crt"
	serverKeyFile         = "server.key"
	serviceAccountKeyFile = "service-account.key"
)

// keys has the credentials of a client, in PEM.
type keys struct {
	ca, clientCert, clientKey []byte
}

// writeKeys creates an authority with a server certificate for 127.0.0.1 and an administrator's client
// certificate, and writes the server's files to dir.
func writeKeys(dir string) (keys, error) {
	authority := template("test authority")
	authority.IsCA, authority.BasicConstraintsValid = true, true
	authority.KeyUsage = x509.KeyUsageCertSign
	caKey, err := newKey()
	if err != nil {
		return keys{}, err
	}
	ca, err := sign(authority, authority, caKey.Public(), caKey)
	if err != nil {
		return keys{}, err
	}
	server := template("kube-apiserver")
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	server.DNSNames = []string{"localhost"}
	serverCert, serverKey, err := issue(server, authority, caKey)
	if err != nil {
		return keys{}, err
	}
	client := template("administrator")
	client.Subject.Organization = []string{"system:masters"}
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	clientCert, clientKey, err := issue(client, authority, caKey)
	if err != nil {
		return keys{}, err
	}
	tokens, err := newKey()
	if err != nil {
		return keys{}, err
	}
	tokenKey, err := encodeKey(tokens)
	if err != nil {
		return keys{}, err
	}
	for name, content := range map[string][]byte{
		caFile: ca, serverCertFile: serverCert, serverKeyFile: serverKey, serviceAccountKeyFile: tokenKey,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return keys{}, err
		}
	}
	return keys{ca: ca, clientCert: clientCert, clientKey: clientKey}, nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Minute),
		NotAfter:     now.Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// issue signs a certificate for a new key and returns both in PEM.
func issue(cert, authority *x509.Certificate, caKey crypto.Signer) (certPEM, keyPEM []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if certPEM, err = sign(cert, authority, key.Public(), caKey); err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return certPEM, keyPEM, err
}

func sign(cert, authority *x509.Certificate, public crypto.PublicKey, key crypto.Signer) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, authority, public, key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

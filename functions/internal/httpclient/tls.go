package httpclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS is the trust between client and server. The zero TLS trusts the
// certificates that the system trusts, and shows none of its own.
type TLS struct {
	// CA, Cert and Key are PEM: the authorities to trust instead of the system's,
	// and the certificate to show with its key.
	CA, Cert, Key []byte
	// ServerName is expected in the server's certificate instead of its host.
	ServerName string
	// Insecure accepts any certificate of the server.
	Insecure bool
}

// LoadTLS reads the three from files. A name that is empty leaves its part out.
func LoadTLS(caFile, certFile, keyFile string) (TLS, error) {
	var t TLS
	for _, part := range []struct {
		file string
		into *[]byte
	}{{caFile, &t.CA}, {certFile, &t.Cert}, {keyFile, &t.Key}} {
		if part.file == "" {
			continue
		}
		content, err := os.ReadFile(part.file)
		if err != nil {
			return TLS{}, fmt.Errorf("read a certificate or its key: %w", err)
		}
		*part.into = content
	}
	return t, nil
}

// SecretTLS takes the three from the keys ca.crt, tls.crt and tls.key of a
// Secret's data, as in Secrets of type kubernetes.io/tls. A key that is missing
// leaves its part out.
func SecretTLS(data map[string][]byte) TLS {
	return TLS{CA: data["ca.crt"], Cert: data["tls.crt"], Key: data["tls.key"]}
}

// Config is the trust as crypto/tls has it. Its error says what to write instead.
func (t TLS) Config() (*tls.Config, error) {
	config := &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         t.ServerName,
		InsecureSkipVerify: t.Insecure, //nolint:gosec // for servers with a self-signed certificate; off by default
	}
	if len(t.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, errors.New("the authority has no certificate in it: give PEM blocks of type CERTIFICATE")
		}
	}
	if len(t.Cert) == 0 && len(t.Key) == 0 {
		return config, nil
	}
	pair, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, errors.New("the client certificate and its key do not match, or one is missing: provide both as PEM")
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

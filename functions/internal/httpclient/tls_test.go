package httpclient_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/functions/internal/httpclient"
)

// authority signs certificates for tests.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}}
	a.pem = a.sign(a.cert, a.key)
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (a *authority) sign(cert *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue returns a certificate for name that is valid until a time.
func (a *authority) issue(name string, until time.Time) (cert, key []byte) {
	a.t.Helper()
	private := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.sign(template, private), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// serve starts a server that requires client certificates of authority a.
func (a *authority) serve(cert, key []byte) string {
	a.t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		a.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.parsed())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	server.Config.ErrorLog = quiet()
	server.StartTLS()
	a.t.Cleanup(server.Close)
	return server.URL
}

func (a *authority) parsed() *x509.Certificate {
	block, _ := pem.Decode(a.pem)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	later, earlier := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	good := ours.serve(ours.issue("127.0.0.1", later))
	named := ours.serve(ours.issue("kea.example.com", later))
	expired := ours.serve(ours.issue("127.0.0.1", earlier))
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	cert, key := ours.issue("client", later)
	otherCert, otherKey := theirs.issue("client", later)
	cases := map[string]struct {
		reason string
		url    string
		tls    httpclient.TLS
		want   string
	}{
		"Mutual":        {reason: "both sides show a certificate", url: good, tls: httpclient.TLS{CA: ours.pem, Cert: cert, Key: key}},
		"ServerName":    {reason: "ServerName replaces the host of the URL", url: named, tls: httpclient.TLS{CA: ours.pem, Cert: cert, Key: key, ServerName: "kea.example.com"}},
		"Insecure":      {reason: "verification is disabled", url: expired, tls: httpclient.TLS{Cert: cert, Key: key, Insecure: true}},
		"UnknownCA":     {reason: "the server may be an impostor", url: good, tls: httpclient.TLS{CA: theirs.pem, Cert: cert, Key: key}, want: "the server's certificate is signed by an authority that is not trusted"},
		"OtherHost":     {reason: "the certificate belongs to another host", url: named, tls: httpclient.TLS{CA: ours.pem, Cert: cert, Key: key}, want: "the server's certificate is for another host name"},
		"Expired":       {reason: "the text must not contain the time", url: expired, tls: httpclient.TLS{CA: ours.pem, Cert: cert, Key: key}, want: "the server's certificate has expired, or is not valid yet"},
		"NoClientCert":  {reason: "the server requires a client certificate", url: good, tls: httpclient.TLS{CA: ours.pem}, want: "the server does not accept the client certificate, or none was given"},
		"BadClientCert": {reason: "the server trusts another authority", url: good, tls: httpclient.TLS{CA: ours.pem, Cert: otherCert, Key: otherKey}, want: "the server does not accept the client certificate, or none was given"},
		"Plain":         {reason: "the URL has the wrong scheme", url: strings.Replace(plain.URL, "http:", "https:", 1), tls: httpclient.TLS{CA: ours.pem}, want: "the server does not speak TLS: write http instead of https, or turn TLS on at the server"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t, httpclient.Config{URL: tc.url, TLS: tc.tls, DisableKeepAlives: true}).Do(t.Context(), httpclient.Request{Method: http.MethodGet}, nil)
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: got %v", tc.reason, err)
				}
				return
			}
			var e *httpclient.Error
			if !errors.As(err, &e) || e.Kind != httpclient.Untrusted || e.Transient() || err.Error() != "GET 127.0.0.1: "+tc.want {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestLoadTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, []byte("authority"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := httpclient.LoadTLS(ca, "", "")
	if err != nil || string(got.CA) != "authority" || got.Cert != nil || got.Key != nil {
		t.Errorf("got %v, error %v", got, err)
	}
	if _, err := httpclient.LoadTLS(ca, filepath.Join(dir, "missing.pem"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file must be an error, got %v", err)
	}
	if got := httpclient.SecretTLS(map[string][]byte{"tls.key": []byte("k")}); string(got.Key) != "k" || got.CA != nil {
		t.Errorf("from a Secret: got %v", got)
	}
}

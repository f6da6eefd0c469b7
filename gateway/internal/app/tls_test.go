package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/tests/fakeapi"
)

// authority issues certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.key = a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.write("ca.crt", "CERTIFICATE", der)
	return a
}

func (a *authority) newKey() *ecdsa.PrivateKey {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *authority) write(name, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// issue writes name.crt and name.key.
func (a *authority) issue(name string, serial int64) {
	a.t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key := a.newKey()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".key", "PRIVATE KEY", private)
	a.write(name+".crt", "CERTIFICATE", der)
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// client trusts the authority, and has a certificate of that name unless it is
// empty.
func (a *authority) client(name string, change ...func(*tls.Config)) *http.Client {
	a.t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AddCert(a.cert)
	if name != "" {
		pair, err := tls.LoadX509KeyPair(a.path(name+".crt"), a.path(name+".key"))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	for _, f := range change {
		f(c)
	}
	transport := &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}
	a.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// ask returns the status code, and the serial number of the server's certificate;
// 0 where there is no answer.
func ask(c *http.Client, url string) (int, int64) {
	res, err := c.Get(url)
	if err != nil {
		return 0, 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	_ = res.Body.Close()
	return res.StatusCode, res.TLS.PeerCertificates[0].SerialNumber.Int64()
}

func TestTLS(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", 10)
	a.issue("kari", 20)
	s := startCold(t, func(*fakeapi.Server) {}, "--tls.enabled=true", "--tls.certFile="+a.path("server.crt"), "--tls.keyFile="+a.path("server.key"),
		"--tls.caFile="+a.path("ca.crt"), "--tls.minVersion=1.3", "--auth.enabled=true")
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	plain, kari := a.client(""), a.client("kari")
	eventually(t, "the gateway to be ready", func() bool { code, _ := ask(plain, s.url+"/ready"); return code == 200 })
	if code, _ := ask(plain, s.url+"/api/v1/clusters"); code != 401 {
		t.Errorf("without a certificate: %d", code)
	}
	if code, _ := ask(kari, s.url+"/api/v1/clusters"); code != 200 {
		t.Errorf("with a certificate: %d", code)
	}
	if code, _ := ask(a.client("", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), s.url+"/ready"); code != 0 {
		t.Errorf("with TLS 1.2: %d", code)
	}
	stranger := newAuthority(t)
	stranger.issue("eve", 30)
	eve, err := tls.LoadX509KeyPair(stranger.path("eve.crt"), stranger.path("eve.key"))
	if err != nil {
		t.Fatal(err)
	}
	force := func(c *tls.Config) {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &eve, nil }
	}
	if code, _ := ask(a.client("", force), s.url+"/api/v1/clusters"); code != 0 {
		t.Errorf("with a stranger's certificate: %d", code)
	}
	a.issue("server", 11)
	eventually(t, "the new certificate", func() bool { _, serial := ask(plain, s.url+"/ready"); return serial == 11 })

	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("\x16\x03\x01\xff\xff this is no hello"))
	_ = conn.Close()
	if code, _ := ask(plain, s.url+"/ready"); code != 200 {
		t.Errorf("after a malformed hello: %d", code)
	}
}

func TestTLSDemandsCertificates(t *testing.T) {
	t.Parallel()
	a := newAuthority(t)
	a.issue("server", 10)
	a.issue("kari", 20)
	s := startCold(t, func(*fakeapi.Server) {}, "--tls.enabled=true", "--tls.certFile="+a.path("server.crt"), "--tls.keyFile="+a.path("server.key"),
		"--tls.caFile="+a.path("ca.crt"), "--tls.clientAuth=require")
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	kari := a.client("kari")
	eventually(t, "the gateway to be ready", func() bool { code, _ := ask(kari, s.url+"/ready"); return code == 200 })
	if code, _ := ask(a.client(""), s.url+"/ready"); code != 0 {
		t.Errorf("without a certificate: %d", code)
	}
}

package talos

import (
	"bytes"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/role"
	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/vitistack/stack/tests/stand/lab"
)

const (
	talosPort = "50000"
	// proxyMark is the mark of the connections of a proxy, which are not redirected to it.
	proxyMark = 7
)

// errLost ends the proxied request whose answer is lost.
var errLost = errors.New("the answer is lost")

// loseAnswer redirects the connections of the stack to the Talos API of the first control plane to a proxy. The next request of a method that the node
// accepts is made, and the connection is cut instead of its answer. That also ends the redirection, and closes the returned channel.
func (e *env) loseAnswer(t *testing.T, method string) (lost <-chan struct{}) {
	t.Helper()
	address := e.controlPlane(t, 0)
	serverTLS, clientTLS, err := e.proxyTLS(address)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(lab.Gateway, "0"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	server := &http.Server{TLSConfig: serverTLS, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	server.Handler = newProxy(net.JoinHostPort(address, talosPort), method, clientTLS, sync.OnceFunc(func() {
		if err := nft("delete table ip lost"); err != nil {
			t.Error(err)
		}
		_ = server.Close()
		close(done)
	}))
	go func() { _ = server.ServeTLS(listener, "", "") }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := nft(fmt.Sprintf(`add table ip lost
add chain ip lost output { type nat hook output priority -100; }
add rule ip lost output ip daddr %s tcp dport %s meta mark != %d dnat to %s:%s`, address, talosPort, proxyMark, lab.Gateway, port)); err != nil {
		t.Fatal(err)
	}
	return done
}

// newProxy returns a handler that forwards requests to a node, and calls cut instead of returning the answer of an accepted request of a method.
func newProxy(node, method string, clientTLS *tls.Config, cut func()) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "https", Host: node}) },
		Transport:      &http.Transport{TLSClientConfig: clientTLS, ForceAttemptHTTP2: true, DialContext: markedDialer.DialContext},
		FlushInterval:  -1, // answers of gRPC are streams
		ErrorLog:       log.New(io.Discard, "", 0),
		ModifyResponse: func(r *http.Response) error { return loseIfAccepted(r, method) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(err, errLost) {
				cut()
			}
			w.WriteHeader(http.StatusBadGateway)
		},
	}
}

// awaitLost waits until loseAnswer has lost the answer of a method.
func (e *env) awaitLost(lost <-chan struct{}, method string) {
	e.t.Helper()
	select {
	case <-lost:
		e.step("the answer of %s was lost", method)
	case <-time.After(5 * time.Minute):
		e.t.Fatalf("the stack has not requested %s after 5 minutes", method)
	}
}

// loseIfAccepted returns errLost if a response is that of a method, and not an error of gRPC.
func loseIfAccepted(r *http.Response, method string) error {
	if !strings.HasSuffix(r.Request.URL.Path, "/"+method) {
		return nil
	}
	body, err := io.ReadAll(r.Body) // the status of gRPC is in the trailer
	if err != nil {
		return err
	}
	if r.Trailer.Get("Grpc-Status") == "0" {
		return errLost
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return nil
}

// proxyTLS returns the configurations of a server that clients take for a node, and of a client of that node, by the keys of the cluster.
func (e *env) proxyTLS(address string) (server, client *tls.Config, err error) {
	e.t.Helper()
	var bundle secrets.Bundle
	if err := yaml.Unmarshal(e.secret("talos-secrets", "secrets.yaml"), &bundle); err != nil {
		return nil, nil, err
	}
	bundle.Clock = secrets.NewClock()
	authority, err := x509.NewCertificateAuthorityFromCertificateAndKey(bundle.Certs.OS)
	if err != nil {
		return nil, nil, err
	}
	pair, err := x509.NewKeyPair(authority, x509.IPAddresses([]net.IP{net.ParseIP(address)}), x509.NotAfter(time.Now().Add(time.Hour)),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}))
	if err != nil {
		return nil, nil, err
	}
	admin, err := bundle.GenerateTalosAPIClientCertificate(role.MakeSet(role.Admin))
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(admin.Crt, admin.Key)
	if err != nil {
		return nil, nil, err
	}
	roots := stdx509.NewCertPool()
	roots.AppendCertsFromPEM(bundle.Certs.OS.Crt)
	client = &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}}
	node := &tls.Dialer{NetDialer: markedDialer, Config: client.Clone()}
	return &tls.Config{
		Certificates: []tls.Certificate{*pair.Certificate}, ClientCAs: roots, ClientAuth: tls.RequireAndVerifyClientCert,
		// A handshake with the proxy succeeds only if one with the node does.
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			conn, err := node.DialContext(hello.Context(), "tcp", net.JoinHostPort(address, talosPort))
			if err != nil {
				return nil, err
			}
			return nil, conn.Close()
		},
	}, client, nil
}

// markedDialer connects with proxyMark.
var markedDialer = &net.Dialer{Timeout: 2 * time.Second, Control: func(_, _ string, c syscall.RawConn) error {
	var marked error
	if err := c.Control(func(fd uintptr) { marked = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, proxyMark) }); err != nil {
		return err
	}
	return marked
}}

// nft runs commands of nftables in the network namespace of the lab.
func nft(commands string) error {
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(commands)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft %s: %w: %s", commands, err, out)
	}
	return nil
}

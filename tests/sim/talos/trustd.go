package talos

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	stdx509 "crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/siderolabs/crypto/x509"
	securityapi "github.com/siderolabs/talos/pkg/machinery/api/security"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// trustd certifies workers that present the machine token.
type trustd struct {
	securityapi.UnimplementedSecurityServiceServer
	boot *boot
}

func (b *boot) listenTrustd() {
	if b.trustd != nil {
		return
	}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(b.trustdTLS())),
		grpc.UnaryInterceptor(b.trustdUnary),
	)
	securityapi.RegisterSecurityServiceServer(server, &trustd{boot: b})
	e, err := b.listen(trustdPort, server)
	if err != nil {
		b.fail("listen for workers", err)
		return
	}
	b.trustd = e
}

// trustdTLS uses the node's certificate and requests none from clients.
func (b *boot) trustdTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			id := b.identity.Load()
			if id == nil {
				return nil, errors.New("the node has no identity yet")
			}
			return id.server()
		},
	}
}

func (b *boot) trustdUnary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	var resp any
	err := b.applyFault(ctx, b.node.fleet.plan.Next("trustd"), b.trustdEndpoint, func() error {
		md, _ := metadata.FromIncomingContext(ctx)
		cfg := b.configuration()
		if given := md.Get("token"); cfg == nil || len(given) == 0 ||
			subtle.ConstantTimeCompare([]byte(given[0]), []byte(cfg.Machine().Security().Token())) != 1 {
			return status.Error(codes.Unauthenticated, "unauthorized")
		}
		var err error
		resp, err = handler(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (b *boot) trustdEndpoint() *endpoint {
	b.node.fleet.mu.Lock()
	defer b.node.fleet.mu.Unlock()
	return b.trustd
}

func (b *boot) configuration() config.Provider {
	b.node.fleet.mu.Lock()
	defer b.node.fleet.mu.Unlock()
	return b.node.config
}

// Certificate signs a server certificate. It never signs a client certificate: it drops an
// organization in the request.
func (t *trustd) Certificate(_ context.Context, in *securityapi.CertificateRequest) (*securityapi.CertificateResponse, error) {
	block, _ := pem.Decode(in.Csr)
	if block == nil {
		return nil, status.Error(codes.InvalidArgument, "failed to decode CSR")
	}
	request, err := stdx509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "failed to parse CSR: %s", err)
	}
	options := []x509.Option{
		x509.KeyUsage(stdx509.KeyUsageDigitalSignature),
		x509.ExtKeyUsage([]stdx509.ExtKeyUsage{stdx509.ExtKeyUsageServerAuth}),
	}
	if len(request.Subject.Organization) > 0 {
		options = append(options, x509.OverrideSubject(func(subject *pkix.Name) { subject.Organization = nil }))
	}
	security := t.boot.configuration().Machine().Security()
	signed, err := x509.NewCertificateFromCSRBytes(security.IssuingCA().Crt, security.IssuingCA().Key, in.Csr, options...)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "failed to sign CSR: %s", err)
	}
	return &securityapi.CertificateResponse{Ca: caBundle(t.boot.configuration()), Crt: signed.X509CertificatePEM}, nil
}

// caBundle returns the authorities that a configuration accepts, in PEM.
func caBundle(cfg config.Provider) []byte {
	var all []byte
	if ca := cfg.Machine().Security().IssuingCA(); ca != nil {
		all = append(all, ca.Crt...)
	}
	for _, ca := range cfg.Machine().Security().AcceptedCAs() {
		all = append(all, ca.Crt...)
	}
	return all
}

// enrollPause is the delay before a worker retries, unless a change occurs earlier.
const enrollPause = time.Second

// enroll requests a certificate from the control plane until it gets one or the boot ends, and then
// listens with it.
func (b *boot) enroll() {
	f := b.node.fleet
	for {
		f.mu.Lock()
		cfg, network, changed := b.node.config, b.network, f.changed
		endpoints := b.trustEndpoints()
		f.mu.Unlock()
		if b.ctx.Err() != nil || cfg == nil {
			return
		}
		id, err := enrolled(b.ctx, cfg, network, endpoints)
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			if b.node.boot == b && b.network.address == network.address && b.node.config == cfg {
				b.identity.Store(id)
				b.listenAPID()
				f.announce()
			}
			return
		}
		pause := time.NewTimer(enrollPause)
		select {
		case <-b.ctx.Done():
			pause.Stop()
			return
		case <-changed:
			pause.Stop()
		case <-pause.C:
		}
	}
}

// enrolled tries the endpoints in turn.
func enrolled(ctx context.Context, cfg config.Provider, n wiring, endpoints []string) (*identity, error) {
	accepted, err := acceptedCAs(cfg)
	if err != nil {
		return nil, err
	}
	bundle := caBundle(cfg)
	authority, err := firstCertificate(bundle)
	if err != nil {
		return nil, err
	}
	ips, names := n.sans(cfg.Machine().Security().CertSANs())
	csr, pair, err := x509.NewCSRAndIdentityFromCA(authority, x509.IPAddresses(ips), x509.DNSNames(names), x509.CommonName(n.fqdn()))
	if err != nil {
		return nil, err
	}
	err = errors.New("no control plane node is known")
	for _, host := range endpoints {
		var resp *securityapi.CertificateResponse
		if resp, err = certify(ctx, host, accepted, cfg.Machine().Security().Token(), csr.X509CertificateRequestPEM); err != nil {
			continue
		}
		cert, certErr := tls.X509KeyPair(resp.Crt, pair.Key)
		pool := stdx509.NewCertPool()
		if certErr != nil || !pool.AppendCertsFromPEM(resp.Ca) {
			return nil, fmt.Errorf("trustd on %s sent no usable certificate: %w", host, certErr)
		}
		return &identity{server: func() (*tls.Certificate, error) { return &cert, nil }, accepted: pool, now: n.now}, nil
	}
	return nil, err
}

func certify(ctx context.Context, host string, accepted *stdx509.CertPool, token string, csr []byte) (*securityapi.CertificateResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := dialNode(host, trustdPort, accepted, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	return securityapi.NewSecurityServiceClient(conn).Certificate(
		metadata.AppendToOutgoingContext(ctx, "token", token), &securityapi.CertificateRequest{Csr: csr})
}

// trustEndpoints returns where a worker finds a control plane: the cluster's endpoint, and the control
// plane nodes from discovery. Callers hold Fleet.mu.
func (b *boot) trustEndpoints() []string {
	cfg := b.node.config
	if cfg == nil {
		return nil
	}
	var hosts []string
	if endpoint := cfg.Cluster().Endpoint(); endpoint != nil {
		hosts = append(hosts, endpoint.Hostname())
	}
	if !cfg.Cluster().Discovery().Enabled() {
		return hosts
	}
	for _, n := range b.node.cluster().members() {
		if n.controlPlane() && n.boot != nil && n.boot.trustd != nil {
			hosts = append(hosts, n.boot.network.address.Addr().String())
		}
	}
	return hosts
}

// resolve returns the address of a member of the cluster by its hostname, as the node's own DNS does.
// It resolves any other name with the system.
func (b *boot) resolve(target string) string {
	f := b.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if c := b.node.cluster(); c != nil {
		for _, n := range c.members() {
			if n.boot != nil && strings.EqualFold(n.boot.network.hostname, target) {
				return n.boot.network.address.Addr().String()
			}
		}
	}
	return target
}

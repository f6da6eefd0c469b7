package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/hardware"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/events/outbound"
)

// nodeState is what a node is, told by its TLS handshake alone.
type nodeState string

const (
	// stateUnreachable does not answer: it is off, starting, or cut off.
	stateUnreachable nodeState = "Unreachable"
	// stateMaintenance waits for its configuration, and asks nobody who they are.
	stateMaintenance nodeState = "Maintenance"
	// stateOurs has a certificate of the cluster's authority.
	stateOurs nodeState = "Configured"
	// stateSkewed is ours, but its clock and the one here differ by so much that
	// nobody can talk to it.
	stateSkewed nodeState = "Skewed"
	// stateForeign has a configuration of another cluster.
	stateForeign nodeState = "Foreign"
)

// Limits of a delivery's talks with nodes.
const (
	apiPort      = "50000"
	dialTimeout  = 2 * time.Second
	shortRPC     = 5 * time.Second
	bootstrapRPC = 10 * time.Second
)

// fingerprint is the SHA-256 of a certificate.
type fingerprint [sha256.Size]byte

// probe tells the state of a node, and the fingerprint of the certificate that it
// shows. a is nil while the cluster has no keys; no node can be ours then.
func probe(ctx context.Context, address string, a *access) (nodeState, fingerprint) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	asked := false
	raw, err := outbound.FromEnvironment().DialContext(ctx, "tcp", net.JoinHostPort(address, apiPort))
	if err != nil {
		return stateUnreachable, fingerprint{}
	}
	conn := tls.Client(raw, &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is judged by classify
		NextProtos:         []string{"h2"},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
	})
	defer func() { _ = conn.Close() }()
	if err := conn.HandshakeContext(ctx); err != nil {
		return stateUnreachable, fingerprint{}
	}
	peer := conn.ConnectionState().PeerCertificates[0]
	return classify(peer, asked, a, time.Now()), sha256.Sum256(peer.Raw)
}

// classify judges a node by the certificate that it shows, and by whether it asks
// for one:
//
//	signed by the cluster's authority    ours, or skewed where it is not valid now
//	otherwise, asks for no certificate   maintenance
//	otherwise                            foreign
//
// Talos has the authority itself sign its nodes' certificates. Whose a node is does
// not depend on what time it is there, so that only the signature tells.
func classify(peer *x509.Certificate, asked bool, a *access, now time.Time) nodeState {
	switch {
	case a != nil && a.signed(peer):
		if now.Before(peer.NotBefore) || now.After(peer.NotAfter) {
			return stateSkewed
		}
		return stateOurs
	case !asked:
		return stateMaintenance
	default:
		return stateForeign
	}
}

// talkInsecurely opens a client to a node in maintenance mode. It is bound to the
// certificate of a fingerprint, so that nobody can take the node's place between
// two calls. What is asked ends with the context that it returns, after the limit, and
// the caller has to call the function.
func talkInsecurely(ctx context.Context, address string, pinned fingerprint, limit time.Duration) (context.Context, *client.Client, func(), error) {
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is compared instead
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || sha256.Sum256(state.PeerCertificates[0].Raw) != pinned {
				return errors.New("the node shows another certificate than before")
			}
			return nil
		},
	}
	return dial(ctx, address, config, limit)
}

// talk opens a client to a node of the cluster, in the same way.
func talk(ctx context.Context, address string, a *access, limit time.Duration) (context.Context, *client.Client, func(), error) {
	return dial(ctx, address, a.config(), limit)
}

func dial(ctx context.Context, address string, config *tls.Config, limit time.Duration) (context.Context, *client.Client, func(), error) {
	c, err := client.New(ctx, client.WithTLSConfig(config), client.WithEndpoints(address), client.WithGRPCDialOptions(grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
		return outbound.FromEnvironment().DialContext(ctx, "tcp", at)
	})))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	end := func() {
		cancel()
		_ = c.Close()
	}
	return ctx, c, end, nil
}

// identity is by what a node is recognised before it has a configuration.
type identity struct {
	// uuid is the identifier that its firmware shows, and macs are the permanent
	// addresses of its interfaces, all in lower case.
	uuid string
	macs []string
}

// is tells whether a node is the machine with a UID and these MAC addresses. One of
// the two is enough: not every hypervisor lets choose the UUID, and not every
// network the addresses.
func (i identity) is(uid string, macs []string) bool {
	return i.uuid == strings.ToLower(uid) || slices.ContainsFunc(i.macs, func(mac string) bool { return slices.Contains(macs, mac) })
}

func (i identity) String() string {
	return fmt.Sprintf("system UUID %s and MAC addresses %s", i.uuid, strings.Join(i.macs, ", "))
}

// identify reads what a node in maintenance mode shows of itself.
func identify(ctx context.Context, address string, pinned fingerprint) (identity, error) {
	ctx, c, end, err := talkInsecurely(ctx, address, pinned, shortRPC)
	if err != nil {
		return identity{}, err
	}
	defer end()
	info, err := safe.StateGetByID[*hardware.SystemInformation](ctx, c.COSI, hardware.SystemInformationID)
	if err != nil {
		return identity{}, fmt.Errorf("read system information of %s: %w", address, err)
	}
	links, err := safe.StateListAll[*network.LinkStatus](ctx, c.COSI)
	if err != nil {
		return identity{}, fmt.Errorf("list the interfaces of %s: %w", address, err)
	}
	id := identity{uuid: strings.ToLower(info.TypedSpec().UUID)}
	for l := range links.All() {
		if mac := net.HardwareAddr(l.TypedSpec().PermanentAddr).String(); mac != "" && l.TypedSpec().Physical() {
			id.macs = append(id.macs, mac)
		}
	}
	return id, nil
}

// bootstrap lets a node begin the cluster's etcd. That it has been done before is
// success: the node itself remembers it, whoever lost the answer.
func bootstrap(ctx context.Context, address string, a *access) error {
	ctx, c, end, err := talk(ctx, address, a, bootstrapRPC)
	if err != nil {
		return err
	}
	defer end()
	err = c.Bootstrap(ctx, &machine.BootstrapRequest{})
	if err == nil || status.Code(err) == codes.AlreadyExists {
		return nil
	}
	return fmt.Errorf("bootstrap etcd on %s: %w", address, err)
}

// fetchKubeconfig asks a control plane for an administrator's kubeconfig.
func fetchKubeconfig(ctx context.Context, address string, a *access) ([]byte, error) {
	ctx, c, end, err := talk(ctx, address, a, shortRPC)
	if err != nil {
		return nil, err
	}
	defer end()
	data, err := c.Kubeconfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("fetch kubeconfig from %s: %w", address, err)
	}
	return data, nil
}

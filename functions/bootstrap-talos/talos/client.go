package talos

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc"

	"github.com/vitistack/stack/events/outbound"
)

// APIPort is the port of the Talos API, and the others are deadlines of its calls.
const (
	APIPort      = "50000"
	DialTimeout  = 2 * time.Second
	ShortTimeout = 5 * time.Second
	longTimeout  = 10 * time.Second
)

// connectPinned opens a client to a node in maintenance mode. It accepts only the certificate of
// the fingerprint, so that no other server can take the place of the node between two calls.
// Calls have to use the returned context, which ends after the limit, and the caller has to call
// the returned function.
func connectPinned(ctx context.Context, address string, pinned Fingerprint, limit time.Duration) (context.Context, *client.Client, func(), error) {
	config := &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is compared instead
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 || sha256.Sum256(state.PeerCertificates[0].Raw) != pinned {
				return errors.New("the node shows another certificate than before")
			}
			return nil
		},
	}
	return Dial(ctx, address, config, limit)
}

// Connect opens a client to a node of the cluster. Calls have to use the returned context, which
// ends after the limit, and the caller has to call the returned function.
func Connect(ctx context.Context, address string, a *Credentials, limit time.Duration) (context.Context, *client.Client, func(), error) {
	return Dial(ctx, address, a.TLSConfig(), limit)
}

// Dial is Connect with another TLS configuration.
func Dial(ctx context.Context, address string, config *tls.Config, limit time.Duration) (context.Context, *client.Client, func(), error) {
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

// Fingerprint is the SHA-256 of a certificate.
type Fingerprint [sha256.Size]byte

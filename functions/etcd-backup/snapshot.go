package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/internal/talosconfig"
)

// errDamaged says that a snapshot was cut off or changed, because it does not end in its own
// hash.
var errDamaged = errors.New("the snapshot does not end in its SHA-256: it is damaged or cut off")

// pageSize divides the size of every etcd database.
const pageSize = 512

// checksumReader passes a snapshot on and verifies it: its last 32 bytes are the SHA-256 of
// all bytes before them (https://etcd.io/docs/v3.6/op-guide/recovery). A damaged snapshot ends
// in errDamaged instead of io.EOF.
type checksumReader struct {
	from io.Reader
	// tail are the last bytes, which may be the hash.
	tail []byte
	body hash.Hash
	all  hash.Hash
	size int64
}

func newChecksumReader(from io.Reader) *checksumReader {
	return &checksumReader{from: from, body: sha256.New(), all: sha256.New()}
}

func (v *checksumReader) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.all.Write(p[:n])
	v.size += int64(n)
	v.tail = append(v.tail, p[:n]...)
	if extra := len(v.tail) - sha256.Size; extra > 0 {
		v.body.Write(v.tail[:extra])
		v.tail = append(v.tail[:0], v.tail[extra:]...)
	}
	if errors.Is(err, io.EOF) && !v.isComplete() {
		return n, errDamaged
	}
	return n, err
}

func (v *checksumReader) isComplete() bool {
	return v.size > sha256.Size && v.size%pageSize == sha256.Size && bytes.Equal(v.body.Sum(nil), v.tail)
}

// sum returns the SHA-256 of the whole file, as sha256sum prints it.
func (v *checksumReader) sum() string { return hex.EncodeToString(v.all.Sum(nil)) }

// openSnapshot asks the control planes of a talosconfig for a snapshot, one after the other,
// and returns the stream of the first that answers. Close closes the connection.
func openSnapshot(ctx context.Context, document []byte) (io.ReadCloser, error) {
	current, err := talosconfig.Read(document)
	if err != nil {
		return nil, reconcile.UserError{Reason: "TalosconfigDamaged", Message: "the Secret of the cluster's talosconfig cannot be read: delete it, and bootstrap-talos creates it again"}
	}
	if len(current.Endpoints) == 0 {
		return nil, reconcile.UserError{Reason: "TalosconfigDamaged", Message: "the talosconfig of the cluster names no endpoints: delete its Secret, and bootstrap-talos creates it again"}
	}
	var problems []error
	for _, endpoint := range current.Endpoints {
		stream, err := openSnapshotAt(ctx, current, endpoint)
		if err == nil {
			return stream, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// openSnapshotAt uses gRPC directly, because Talos' client package would make up half of the
// function's cold start.
func openSnapshotAt(ctx context.Context, current *talosconfig.Context, endpoint string) (io.ReadCloser, error) {
	identity, err := tlsConfigOf(current)
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(endpoint); err != nil {
		endpoint = net.JoinHostPort(endpoint, talosPort)
	}
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(credentials.NewTLS(identity)),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
			return outbound.FromEnvironment().DialContext(ctx, "tcp", at)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	c, err := startSnapshot(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("take snapshot on %s: %w", endpoint, err)
	}
	return c, nil
}

// startSnapshot requests a snapshot and reads its first part, which shows a refusal. It first
// checks that etcd runs: otherwise Talos would wait until the deadline and end the stream
// without an error and without data.
func startSnapshot(ctx context.Context, conn *grpc.ClientConn) (*snapshotStream, error) {
	client := machine.NewMachineServiceClient(conn)
	if err := checkEtcdRuns(ctx, client); err != nil {
		return nil, err
	}
	snapshot, err := client.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	c := &snapshotStream{stream: snapshot, conn: conn}
	c.rest, err = c.nextPart()
	if errors.Is(err, io.EOF) || (err == nil && len(c.rest) == 0) {
		return nil, errors.New("the snapshot is empty")
	}
	return c, err
}

// answerTimeout bounds how long a node may take to list its services. A node that accepts connections and hangs would otherwise take up the
// time of the delivery, and the other control planes would never be asked.
const answerTimeout = 10 * time.Second

// checkEtcdRuns returns an error if the service etcd of a node does not run, or the node does not answer.
func checkEtcdRuns(ctx context.Context, client machine.MachineServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	answer, err := client.ServiceList(ctx, &emptypb.Empty{})
	if err != nil {
		return fmt.Errorf("list services: %w", err)
	}
	for _, message := range answer.GetMessages() {
		for _, s := range message.GetServices() {
			if s.GetId() != "etcd" {
				continue
			}
			if s.GetState() == "Running" {
				return nil
			}
			return fmt.Errorf("etcd is %s there", s.GetState())
		}
	}
	return errors.New("there is no etcd")
}

// talosPort is the port of the Talos API.
const talosPort = "50000"

// tlsConfigOf returns the client certificate and the authorities of a talosconfig.
func tlsConfigOf(current *talosconfig.Context) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(current.Crt, current.Key)
	trusted := x509.NewCertPool()
	if err != nil || !trusted.AppendCertsFromPEM(current.CA) {
		return nil, reconcile.UserError{Reason: "TalosconfigDamaged", Message: "the certificates of the cluster's talosconfig cannot be read: delete its Secret, and bootstrap-talos creates it again"}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{pair}}, nil
}

// snapshotStream reads a stream of parts, and owns its connection.
type snapshotStream struct {
	stream grpc.ServerStreamingClient[common.Data]
	conn   *grpc.ClientConn
	rest   []byte
}

func (c *snapshotStream) Read(p []byte) (n int, err error) {
	for len(c.rest) == 0 {
		if c.rest, err = c.nextPart(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// nextPart returns the next part of the stream, and io.EOF at its end. A node that fails says
// so in the metadata of a part.
func (c *snapshotStream) nextPart() ([]byte, error) {
	part, err := c.stream.Recv()
	if err != nil {
		return nil, err
	}
	if problem := part.GetMetadata().GetError(); problem != "" {
		return nil, errors.New(problem)
	}
	return part.GetBytes(), nil
}

func (c *snapshotStream) Close() error { return c.conn.Close() }

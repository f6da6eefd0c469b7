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

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/internal/talosconfig"
)

// errDamaged is a snapshot that does not end in its own hash: it was cut off, or
// changed on its way.
var errDamaged = errors.New("the snapshot does not end in its SHA-256: it is damaged or cut off")

// page is what the size of etcd's database is a multiple of.
const page = 512

// verified passes a snapshot on and checks it meanwhile: its last 32 bytes are the
// SHA-256 of all before them (https://etcd.io/docs/v3.6/op-guide/recovery). Where
// they are not, its end is errDamaged instead of io.EOF, so that nobody takes it for
// whole.
type verified struct {
	from io.Reader
	// tail are the last bytes, which may be the hash.
	tail []byte
	body hash.Hash
	all  hash.Hash
	size int64
}

func verify(from io.Reader) *verified {
	return &verified{from: from, body: sha256.New(), all: sha256.New()}
}

func (v *verified) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.all.Write(p[:n])
	v.size += int64(n)
	v.tail = append(v.tail, p[:n]...)
	if extra := len(v.tail) - sha256.Size; extra > 0 {
		v.body.Write(v.tail[:extra])
		v.tail = append(v.tail[:0], v.tail[extra:]...)
	}
	if errors.Is(err, io.EOF) && !v.whole() {
		return n, errDamaged
	}
	return n, err
}

func (v *verified) whole() bool {
	return v.size > sha256.Size && v.size%page == sha256.Size && bytes.Equal(v.body.Sum(nil), v.tail)
}

// sum is the SHA-256 of the file, as sha256sum tells it.
func (v *verified) sum() string { return hex.EncodeToString(v.all.Sum(nil)) }

// open asks the control planes of a talosconfig for a snapshot, in turn, and returns
// the stream of the first that answers. Closing it ends the connection.
func open(ctx context.Context, document []byte) (io.ReadCloser, error) {
	current, err := talosconfig.Read(document)
	if err != nil {
		return nil, fault{"TalosconfigDamaged", "the Secret of the cluster's talosconfig cannot be read: delete it, and it is made again"}
	}
	if len(current.Endpoints) == 0 {
		return nil, fault{"TalosconfigDamaged", "the talosconfig of the cluster names no endpoints: delete its Secret, and it is made again"}
	}
	var problems []error
	for _, endpoint := range current.Endpoints {
		stream, err := openAt(ctx, current, endpoint)
		if err == nil {
			return stream, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// openAt speaks gRPC itself: the whole client of Talos would cost half of the
// function's cold start.
func openAt(ctx context.Context, current *talosconfig.Context, endpoint string) (io.ReadCloser, error) {
	identity, err := identityOf(current)
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(endpoint); err != nil {
		endpoint = net.JoinHostPort(endpoint, apid)
	}
	conn, err := grpc.NewClient("passthrough:///"+endpoint, grpc.WithTransportCredentials(credentials.NewTLS(identity)),
		grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
			return outbound.FromEnvironment().DialContext(ctx, "tcp", at)
		}))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	c, err := begin(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("take snapshot on %s: %w", endpoint, err)
	}
	return c, nil
}

// begin asks a node for a snapshot and reads its first part, with which a refusal comes. A
// node whose etcd does not run is not asked: Talos would wait until the deadline, and then
// end the stream without an error and without data.
func begin(ctx context.Context, conn *grpc.ClientConn) (*connected, error) {
	client := machine.NewMachineServiceClient(conn)
	if err := etcdRuns(ctx, client); err != nil {
		return nil, err
	}
	snapshot, err := client.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		return nil, err
	}
	c := &connected{stream: snapshot, conn: conn}
	c.rest, err = c.next()
	if errors.Is(err, io.EOF) || (err == nil && len(c.rest) == 0) {
		return nil, errors.New("the snapshot is empty")
	}
	return c, err
}

// etcdRuns returns an error where the service etcd of a node does not run.
func etcdRuns(ctx context.Context, client machine.MachineServiceClient) error {
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

// apid is the port of the API of Talos.
const apid = "50000"

// identityOf is by whom a talosconfig wants to be known, and whom it trusts.
func identityOf(current *talosconfig.Context) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(current.Crt, current.Key)
	trusted := x509.NewCertPool()
	if err != nil || !trusted.AppendCertsFromPEM(current.CA) {
		return nil, fault{"TalosconfigDamaged", "the certificates of the cluster's talosconfig cannot be read: delete its Secret, and it is made again"}
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted, Certificates: []tls.Certificate{pair}}, nil
}

// connected reads a stream of parts, and has a connection of its own.
type connected struct {
	stream grpc.ServerStreamingClient[common.Data]
	conn   *grpc.ClientConn
	rest   []byte
}

func (c *connected) Read(p []byte) (n int, err error) {
	for len(c.rest) == 0 {
		if c.rest, err = c.next(); err != nil {
			return 0, err
		}
	}
	n = copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// next is the next part of the stream, and io.EOF at its end. A node that cannot go
// on says so in the metadata.
func (c *connected) next() ([]byte, error) {
	part, err := c.stream.Recv()
	if err != nil {
		return nil, err
	}
	if problem := part.GetMetadata().GetError(); problem != "" {
		return nil, errors.New(problem)
	}
	return part.GetBytes(), nil
}

func (c *connected) Close() error { return c.conn.Close() }

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	"google.golang.org/grpc"

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
	file, current, err := talosconfig.Read(document)
	if err != nil {
		return nil, fault{"TalosconfigDamaged", "the Secret of the cluster's talosconfig cannot be read: delete it, and it is made again"}
	}
	if len(current.Endpoints) == 0 {
		return nil, fault{"TalosconfigDamaged", "the talosconfig of the cluster names no endpoints: delete its Secret, and it is made again"}
	}
	var problems []error
	for _, endpoint := range current.Endpoints {
		stream, err := openAt(ctx, file, endpoint)
		if err == nil {
			return stream, nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

func openAt(ctx context.Context, file *config.Config, endpoint string) (io.ReadCloser, error) {
	c, err := client.New(ctx, client.WithConfig(file), client.WithEndpoints(endpoint), client.WithGRPCDialOptions(grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
		return outbound.FromEnvironment().DialContext(ctx, "tcp", at)
	})))
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	stream, err := c.EtcdSnapshot(ctx, &machine.EtcdSnapshotRequest{})
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("take snapshot on %s: %w", endpoint, err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(stream, first); err != nil { // a refusal comes with the first byte
		_ = stream.Close()
		_ = c.Close()
		return nil, fmt.Errorf("take snapshot on %s: %w", endpoint, err)
	}
	return &connected{Reader: io.MultiReader(bytes.NewReader(first), stream), stream: stream, client: c}, nil
}

// connected is a stream that has a connection of its own.
type connected struct {
	io.Reader
	stream io.Closer
	client *client.Client
}

func (c *connected) Close() error { return errors.Join(c.stream.Close(), c.client.Close()) }

package talos

import (
	"context"
	"crypto/tls"
	stdx509 "crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"sync"

	"github.com/siderolabs/talos/pkg/machinery/api/common"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/vitistack/stack/tests/sim/underlay"
)

// targets are the other nodes that a call is forwarded to.
type targets struct {
	nodes []string
	// many is whether the answers are collected and labelled.
	many bool
}

// collectable are the services whose answers can be collected.
var collectable = []string{
	"/machine.MachineService/", "/cluster.ClusterService/", "/inspect.InspectService/",
	"/storage.StorageService/", "/time.TimeService/",
}

// receive reads the caller's roles into the context, and the targets from the metadata. nil is this
// node.
func (b *boot) receive(ctx context.Context, method string) (context.Context, *targets, error) {
	id := b.identity.Load()
	if id == nil {
		return nil, nil, status.Error(codes.Unavailable, "the node is restarting")
	}
	ctx = context.WithValue(ctx, rolesKey{}, callerRoles(ctx, id.maintenance))
	md, _ := metadata.FromIncomingContext(ctx)
	if id.maintenance || len(md.Get("proxyfrom")) > 0 {
		return ctx, nil, nil
	}
	if len(md.Get("node")) > 1 {
		return nil, nil, status.Error(codes.InvalidArgument, "node metadata must be single-valued")
	}
	to := b.addressed(md, id.client == nil)
	switch {
	case to == nil:
		return ctx, nil, nil
	case to.many && !hasAnyPrefix(method, collectable):
		return nil, nil, status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", method)
	case id.client == nil:
		return nil, nil, status.Error(codes.PermissionDenied, "no request forwarding")
	}
	return ctx, to, nil
}

// addressed returns the targets. A node that cannot forward answers itself if it is the only target.
func (b *boot) addressed(md metadata.MD, alone bool) *targets {
	to := &targets{nodes: md.Get("node")}
	if nodes := md.Get("nodes"); len(nodes) > 0 {
		to = &targets{nodes: nodes, many: true}
	}
	if len(to.nodes) == 0 || (alone && len(to.nodes) == 1 && b.isLocal(to.nodes[0])) {
		return nil
	}
	return to
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

func (b *boot) isLocal(target string) bool {
	b.node.fleet.mu.Lock()
	defer b.node.fleet.mu.Unlock()
	n := b.network
	return target == n.address.Addr().String() || target == n.hostname || target == n.fqdn()
}

// peers are a node's connections to other nodes.
type peers struct {
	mu    sync.Mutex
	conns map[string]*grpc.ClientConn
	gone  bool
}

func newPeers() *peers { return &peers{conns: map[string]*grpc.ClientConn{}} }

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = true
	for _, c := range p.conns {
		_ = c.Close()
	}
}

// peer connects to another node with this node's own certificate. A target is an address or the
// hostname of a member of the cluster.
func (b *boot) peer(target string) (*grpc.ClientConn, error) {
	if target == "" || strings.Contains(target, "/") {
		return nil, status.Errorf(codes.Internal, "invalid target %q", target)
	}
	host := b.resolve(target)
	b.peers.mu.Lock()
	defer b.peers.mu.Unlock()
	if c, ok := b.peers.conns[target]; ok {
		return c, nil
	}
	id := b.identity.Load()
	if b.peers.gone || id == nil || id.client == nil {
		return nil, status.Error(codes.Unavailable, "the node is restarting")
	}
	cert, err := id.client()
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	conn, err := dialNode(host, apidPort, id.accepted, cert)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	b.peers.conns[target] = conn
	return conn, nil
}

func dialNode(host string, port int, accepted *stdx509.CertPool, cert *tls.Certificate, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: accepted}
	if cert != nil {
		c.Certificates = []tls.Certificate{*cert}
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Is6() {
		host = "[" + host + "]"
	}
	return grpc.NewClient(fmt.Sprintf("passthrough:///%s:%d", host, port), append(options,
		grpc.WithContextDialer(underlay.Dial),
		grpc.WithTransportCredentials(credentials.NewTLS(c)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(constants.GRPCMaxMessageSize)),
		grpc.WithNoProxy(),
	)...)
}

// outgoing returns the context of a forwarded call: with the caller's roles, and a mark that prevents
// another forwarding.
func outgoing(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	md = md.Copy()
	from := md.Get(":authority")
	if len(from) == 0 {
		from = []string{"unknown"}
	}
	for _, key := range []string{":authority", "node", "nodes"} {
		md.Delete(key)
	}
	md.Set("proxyfrom", from...)
	md.Set(constants.APIAuthzRoleMetadataKey, rolesOf(ctx).Strings()...)
	return metadata.NewOutgoingContext(ctx, md)
}

// message returns an empty request or answer of a method.
func message(method string, of func(protoreflect.MethodDescriptor) protoreflect.MessageDescriptor) (proto.Message, error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown service %s", service)
	}
	m := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, status.Errorf(codes.Unimplemented, "unknown method %s", name)
	}
	t, err := protoregistry.GlobalTypes.FindMessageByName(of(m).FullName())
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return t.New().Interface(), nil
}

func (b *boot) forwardUnary(ctx context.Context, method string, req any, to *targets) (any, error) {
	answers := make([]proto.Message, len(to.nodes))
	errs := make([]error, len(to.nodes))
	var wg sync.WaitGroup
	for i, target := range to.nodes {
		wg.Go(func() {
			answer, err := message(method, protoreflect.MethodDescriptor.Output)
			if err == nil {
				var conn *grpc.ClientConn
				if conn, err = b.peer(target); err == nil {
					err = conn.Invoke(outgoing(ctx), method, req, answer)
				}
			}
			answers[i], errs[i] = answer, err
		})
	}
	wg.Wait()
	if !to.many {
		return answers[0], errs[0]
	}
	all, err := message(method, protoreflect.MethodDescriptor.Output)
	if err != nil {
		return nil, err
	}
	for i, target := range to.nodes {
		collect(all, answers[i], target, errs[i])
	}
	return all, nil
}

// collect adds one node's messages to the answer, each with the node's name. For a failed node it adds
// one with the error.
func collect(all, answer proto.Message, target string, err error) {
	field := all.ProtoReflect().Descriptor().Fields().ByName("messages")
	if field == nil {
		return
	}
	list := all.ProtoReflect().Mutable(field).List()
	if err != nil {
		item := list.NewElement()
		label(item.Message(), target, err)
		list.Append(item)
		return
	}
	from := answer.ProtoReflect().Get(field).List()
	for i := range from.Len() {
		item := from.Get(i)
		label(item.Message(), target, nil)
		list.Append(item)
	}
}

// label sets the node's name in a message.
func label(m protoreflect.Message, target string, err error) {
	field := m.Descriptor().Fields().ByName("metadata")
	if field == nil {
		return
	}
	meta := &common.Metadata{Hostname: target}
	if err != nil {
		meta.Error, meta.Status = err.Error(), status.Convert(err).Proto()
	}
	m.Set(field, protoreflect.ValueOfMessage(meta.ProtoReflect()))
}

// forwardStream forwards a stream to one node, or joins the answers of many.
func (b *boot) forwardStream(info *grpc.StreamServerInfo, stream grpc.ServerStream, to *targets) error {
	if info.IsClientStream && len(to.nodes) > 1 {
		return status.Errorf(codes.InvalidArgument, "one-2-many proxying is not supported for method %s", info.FullMethod)
	}
	ctx, cancel := context.WithCancel(outgoing(stream.Context()))
	defer cancel()
	backends := make([]grpc.ClientStream, 0, len(to.nodes))
	var send sync.Mutex
	fail := func(target string, err error) error {
		if !to.many {
			return err
		}
		m, newErr := message(info.FullMethod, protoreflect.MethodDescriptor.Output)
		if newErr != nil {
			return newErr
		}
		label(m.ProtoReflect(), target, err)
		send.Lock()
		defer send.Unlock()
		return stream.SendMsg(m)
	}
	results := make(chan error, len(to.nodes))
	pending := 0
	for _, target := range to.nodes {
		backend, err := b.openStream(ctx, info, target)
		if err != nil {
			if err := fail(target, err); err != nil {
				return err
			}
			continue
		}
		backends = append(backends, backend)
		pending++
		go func() {
			err := relay(info.FullMethod, backend, func(m proto.Message) error {
				if to.many {
					label(m.ProtoReflect(), target, nil)
				}
				send.Lock()
				defer send.Unlock()
				return stream.SendMsg(m)
			})
			if err != nil {
				err = fail(target, err)
			}
			results <- err
		}()
	}
	if err := pump(info, stream, backends); err != nil {
		return err
	}
	for range pending {
		if err := <-results; err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) openStream(ctx context.Context, info *grpc.StreamServerInfo, target string) (grpc.ClientStream, error) {
	conn, err := b.peer(target)
	if err != nil {
		return nil, err
	}
	return conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: info.IsServerStream, ClientStreams: info.IsClientStream}, info.FullMethod)
}

// pump copies what the client sends to every backend.
func pump(info *grpc.StreamServerInfo, stream grpc.ServerStream, backends []grpc.ClientStream) error {
	for {
		m, err := message(info.FullMethod, protoreflect.MethodDescriptor.Input)
		if err != nil {
			return err
		}
		switch err := stream.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			for _, backend := range backends {
				_ = backend.CloseSend() // the relay reads its end
			}
			return nil
		case err != nil:
			return err
		}
		for _, backend := range backends {
			_ = backend.SendMsg(m) // the relay reads the error
		}
	}
}

// relay copies the answers of a backend to the client.
func relay(method string, backend grpc.ClientStream, send func(proto.Message) error) error {
	for {
		m, err := message(method, protoreflect.MethodDescriptor.Output)
		if err != nil {
			return err
		}
		switch err := backend.RecvMsg(m); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := send(m); err != nil {
			return err
		}
	}
}

package talos

import (
	"context"
	"net"
	"strings"

	cosi "github.com/cosi-project/runtime/api/v1alpha1"
	clusterapi "github.com/siderolabs/talos/pkg/machinery/api/cluster"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	storageapi "github.com/siderolabs/talos/pkg/machinery/api/storage"
	timeapi "github.com/siderolabs/talos/pkg/machinery/api/time"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// api implements the services of a node for one boot.
type api struct {
	machineapi.UnimplementedMachineServiceServer
	clusterapi.UnimplementedClusterServiceServer
	boot *boot
}

// identify gives a configured node its certificates, and then lets it listen. A control plane node
// issues its own certificates. A worker requests them from one.
func (b *boot) identify() {
	if !b.network.address.IsValid() {
		b.fail("listen", errNoAddress)
		return
	}
	if b.node.controlPlane() {
		id, err := controlPlaneIdentity(b.node.config, b.network)
		if err != nil {
			b.fail("make the API certificate", err)
			return
		}
		b.identity.Store(id)
		b.listenAPID()
		b.listenTrustd()
		return
	}
	f := b.node.fleet
	f.work.Add(1)
	go func() {
		defer f.work.Done()
		b.enroll()
	}()
}

// listenAPID opens the API unless it is open.
func (b *boot) listenAPID() {
	if b.apid != nil {
		return
	}
	e, err := b.listen(apidPort, b.newAPID())
	if err != nil {
		b.fail("listen", err)
		return
	}
	b.apid = e
}

// listen serves gRPC on a port of the node's address.
func (b *boot) listen(port uint16, s *grpc.Server) (*endpoint, error) {
	return listen(b.network.address.Addr(), port, b.withHandshakeFault,
		backend{serve: func(l net.Listener) { _ = s.Serve(l) }, finish: s.GracefulStop, stop: s.Stop})
}

func (b *boot) newAPID() *grpc.Server {
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(b.serverTLS())),
		grpc.MaxRecvMsgSize(constants.GRPCMaxMessageSize),
		grpc.ChainUnaryInterceptor(b.unary),
		grpc.ChainStreamInterceptor(b.stream),
		grpc.UnknownServiceHandler(b.unknown),
	)
	a := &api{boot: b}
	machineapi.RegisterMachineServiceServer(server, a)
	storageapi.RegisterStorageServiceServer(server, &storageService{boot: b})
	cosi.RegisterStateServer(server, &stateService{boot: b})
	clusterapi.RegisterClusterServiceServer(server, a)
	timeapi.RegisterTimeServiceServer(server, &timeService{boot: b})
	if b.node.atLeast(config.TalosVersion1_13) {
		machineapi.RegisterLifecycleServiceServer(server, &lifecycleService{boot: b})
		machineapi.RegisterImageServiceServer(server, &imageService{boot: b})
	}
	return server
}

// unknown answers for services that the node's version lacks.
func (b *boot) unknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	service, _, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	return status.Errorf(codes.Unimplemented, "unknown service %s", service)
}

func (b *boot) apidEndpoint() *endpoint {
	b.node.fleet.mu.Lock()
	defer b.node.fleet.mu.Unlock()
	return b.apid
}

// admit decides whether a call is permitted on this node.
func (b *boot) admit(ctx context.Context, method string) error {
	id := b.identity.Load()
	if id == nil {
		return status.Error(codes.Unavailable, "the node is restarting")
	}
	if id.maintenance && !b.maintenanceSpeaks13() {
		return maintenanceOnly(method)
	}
	return authorize(rolesOf(ctx), method)
}

func (b *boot) maintenanceSpeaks13() bool {
	f := b.node.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	return b.node.atLeast(config.TalosVersion1_13)
}

// maintenanceOnly has the methods that Talos up to 1.12 offers without a configuration, to clients
// that are not on SideroLink.
func maintenanceOnly(method string) error {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	switch service {
	case "cosi.resource.State", "storage.StorageService":
		return nil
	case "machine.MachineService":
		switch name {
		case "ApplyConfiguration":
			return nil
		case "Version", "Upgrade", "Reset", "MetaWrite", "MetaDelete":
			return status.Error(codes.Unimplemented, "API is not implemented in maintenance mode")
		}
		return status.Errorf(codes.Unimplemented, "method %s not implemented", name)
	}
	return status.Errorf(codes.Unimplemented, "unknown service %s", service)
}

func (b *boot) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	ctx, targets, err := b.receive(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	if targets != nil {
		return b.forwardUnary(ctx, info.FullMethod, req, targets)
	}
	var resp any
	err = b.applyFault(ctx, b.node.fleet.plan.Next(operation(info.FullMethod)), b.apidEndpoint, func() error {
		if err := b.admit(ctx, info.FullMethod); err != nil {
			return err
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

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamWithContext) Context() context.Context { return s.ctx }

func (b *boot) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ctx, targets, err := b.receive(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	stream = streamWithContext{stream, ctx}
	if targets != nil {
		return b.forwardStream(info, stream, targets)
	}
	return b.applyFault(ctx, b.node.fleet.plan.Next(operation(info.FullMethod)), b.apidEndpoint, func() error {
		if err := b.admit(ctx, info.FullMethod); err != nil {
			return err
		}
		return handler(srv, stream)
	})
}

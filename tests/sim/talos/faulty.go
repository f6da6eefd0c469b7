package talos

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/vitistack/stack/tests/sim/faults"
)

// connectionReset as a fault's error drops the client's connection.
const connectionReset = "reset"

// operation returns the name of a method in a fault plan: "MachineService/Bootstrap".
func operation(method string) string {
	name := strings.TrimPrefix(method, "/")
	return name[strings.LastIndex(name[:strings.Index(name, "/")], ".")+1:]
}

// applyFault runs a call with its fault.
func (b *boot) applyFault(ctx context.Context, fault faults.Fault, on func() *endpoint, call func() error) error {
	if err := fault.Wait(ctx); err != nil {
		return status.FromContextError(err).Err()
	}
	if reason, ok := fault.Before(); ok {
		return b.fault(ctx, reason, on)
	}
	if err := call(); err != nil {
		return err
	}
	if reason, ok := fault.Lost(); ok {
		return b.fault(ctx, reason, on)
	}
	return nil
}

// fault returns the planned error: a gRPC code by its name, the end of the connection, or any other
// text, which is Unknown.
func (b *boot) fault(ctx context.Context, reason string, on func() *endpoint) error {
	if reason == connectionReset {
		if p, ok := peer.FromContext(ctx); ok {
			if e := on(); e != nil {
				e.hangUp(p.Addr)
			}
		}
		return status.Error(codes.Unavailable, "connection reset")
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		if strings.EqualFold(strings.ReplaceAll(reason, "_", ""), code.String()) {
			return status.Error(code, "fault: "+reason)
		}
	}
	return status.Error(codes.Unknown, reason)
}

package kea

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Connection is one Kea server in a delivery: what it has, or the error after which it is not
// used any more.
type Connection struct {
	client *Client
	Server Server
	State  State
	Err    error
}

// Connections are the Kea servers of a delivery, the primary one first.
type Connections []*Connection

// Connect reaches all servers and reads each of them, concurrently. A server that fails has
// Err set.
func Connect(ctx context.Context, controls []*Client, read func(context.Context, Server) (State, error)) Connections {
	all := make(Connections, len(controls))
	for i, c := range controls {
		all[i] = &Connection{client: c}
	}
	all.Each(func(s *Connection) {
		if s.Server, s.Err = connect(ctx, s.client); s.Err == nil {
			s.State, s.Err = read(ctx, s.Server)
		}
	})
	return all
}

// Refresh reads the servers that are up again.
func (p Connections) Refresh(ctx context.Context, read func(context.Context, Server) (State, error)) {
	p.Up().Each(func(s *Connection) { s.State, s.Err = read(ctx, s.Server) })
}

// Each calls f for every server concurrently, and waits.
func (p Connections) Each(f func(*Connection)) {
	var wait sync.WaitGroup
	for _, s := range p {
		wait.Go(func() { f(s) })
	}
	wait.Wait()
}

// Up returns the servers without an error so far.
func (p Connections) Up() Connections {
	return slices.DeleteFunc(slices.Clone(p), func(s *Connection) bool { return s.Err != nil })
}

// Down returns the servers with an error.
func (p Connections) Down() Connections {
	return slices.DeleteFunc(slices.Clone(p), func(s *Connection) bool { return s.Err == nil })
}

// States returns the state of each server.
func (p Connections) States() []State {
	states := make([]State, len(p))
	for i, s := range p {
		states[i] = s.State
	}
	return states
}

// NeedLock reports whether any server may be changed only while holding the Lock.
func (p Connections) NeedLock() bool {
	return slices.ContainsFunc(p, func(s *Connection) bool { return s.Server.NeedsLock() })
}

// Problem returns the first error that is no failure of a server: a UserError about its
// subnets or reservations, or ErrChanged.
func (p Connections) Problem() error {
	for _, s := range p {
		if errors.As(s.Err, new(reconcile.UserError)) || errors.Is(s.Err, ErrChanged) {
			return s.Err
		}
	}
	return nil
}

// ReadSubnet returns a function for Connect that reads the subnet of a network.
func ReadSubnet(network netip.Prefix, leases bool) func(context.Context, Server) (State, error) {
	return func(ctx context.Context, s Server) (State, error) { return s.ReadSubnet(ctx, network, leases) }
}

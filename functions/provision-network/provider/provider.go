// Package provider defines where the segments of networks come from. Each provider is a
// package below this one and one line in the registry of provision-network.
package provider

import (
	"context"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Interface provides segments and takes them back. A segment is identified by the UID of
// its NetworkNamespace.
type Interface interface {
	// Provide returns the segment of nn. The first call creates it, and every later call for
	// the same UID returns the same segment. It returns a reconcile.UserError if the spec of
	// nn has to change, and an Error if the provider has no segment for nn now. If that is Outdated, the caller releases the
	// segment of the earlier request. Provide does that only for a network that holds no segment (plan.HoldsSegment).
	Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error)
	// Release gives the segment of nn back. It succeeds if there is no segment. It returns an
	// Error while the provider is removing the segment, or cannot remove it.
	Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error
}

// Server is a provider that keeps segments where they can be looked up.
type Server interface {
	Interface
	// Find returns the segment of nn and creates nothing. It returns a permanent Error with
	// ReasonGone if the server has no segment of nn, and other errors as Provide does.
	Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error)
	// CheckRequest returns an error that says in what seg differs from the request in the
	// spec of nn.
	CheckRequest(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error
}

// Lister is a provider whose segments of all networks can be listed.
type Lister interface {
	// Created lists the objects that Provide has created, with the UID of their
	// NetworkNamespace.
	Created(ctx context.Context) ([]v1alpha1.Orphan, error)
}

// Prober is a provider that is asked by requests of its own.
type Prober interface {
	// Probe sends the cheapest request that shows whether the provider answers.
	Probe(ctx context.Context) error
}

// Unavailable is a provider that this installation does not have, or that a network may
// not use. Every call returns Err.
type Unavailable struct{ Err error }

// Provide returns Err.
func (u Unavailable) Provide(context.Context, *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	return segment.Segment{}, u.Err
}

// Release returns Err, because only the provider itself can release what it provided.
func (u Unavailable) Release(context.Context, *v1alpha2.NetworkNamespace) error { return u.Err }

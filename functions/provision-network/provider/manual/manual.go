// Package manual provides the segment that a NetworkNamespace describes itself.
package manual

import (
	"context"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Provider reads the segment from the spec of the NetworkNamespace.
type Provider struct{}

// Provide returns the segment in the spec, and a reconcile.UserError that names the field
// that is wrong.
func (Provider) Provide(_ context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	return segment.FromSpec(nn)
}

// Release does nothing, because Provide creates nothing.
func (Provider) Release(context.Context, *v1alpha2.NetworkNamespace) error { return nil }

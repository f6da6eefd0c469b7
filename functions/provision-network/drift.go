package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// compareWithProvider compares the segment of a network that is Ready with what its server
// has. It writes what has to be corrected into the condition; the segment stays. A server
// that does not answer is compared at the next full resync.
func (f *function) compareWithProvider(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	server, isServer := f.provider(nn.Annotations[v1alpha1.AnnotationProvider]).(provider.Server)
	if !isServer {
		return nil
	}
	seg, err := f.findSegment(ctx, nn, server)
	if err == nil {
		err = checkUnchanged(nn, seg)
	}
	before := nn.DeepCopy()
	var problem provider.Error
	switch {
	case err == nil:
		setSettings(nn, seg)
		_, err = f.kube.PatchStatus(ctx, before, nn)
		return err
	case !errors.As(err, &problem):
		return fmt.Errorf("compare network %s/%s with its provider: %w", nn.Namespace, nn.Name, err)
	case !problem.Permanent:
		events.Report(ctx, nn.Status.Phase, problem.Message)
		return nil
	}
	outcome := setSegmentResult(nn, segment.Segment{}, problem, f.now())
	_, err = reconcile.PatchStatus(ctx, f.kube, before, nn, nn.Status.Phase, outcome)
	return err
}

// setSettings copies the ID, the DNS servers and the egress addresses of a segment into the status of a network that has the
// segment. Machines keep their addresses and their VLAN whatever these are, so a provider may change them.
func setSettings(nn *v1alpha2.NetworkNamespace, seg segment.Segment) {
	has, err := segment.FromStatus(nn)
	if err != nil {
		return
	}
	has.ID, has.DNS, has.IPv4Egress, has.IPv6Egress = seg.ID, seg.DNS, seg.IPv4Egress, seg.IPv6Egress
	segment.SetStatus(nn, has)
}

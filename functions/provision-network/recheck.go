package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
)

// finder is a source that can tell what it has without making anything.
type finder interface {
	// Find returns the segment of nn. It returns a final fault where there is none any
	// more, and other faults as Provide does.
	Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error)
}

const reasonGone = "SegmentGone"

// gone says that a source has forgotten a segment that machines may use. Nothing is
// made in its place: that would be another one.
func gone(b backend, nn *v1alpha2.NetworkNamespace, what string) fault {
	return final(reasonGone, "%s has %s of this network any more, which stays as it is, since machines may use it: restore there what has the UID %s, or delete this network and create it again",
		b.name, what, nn.UID)
}

// recheck compares a network that has been Ready for a while with what its source
// has. What somebody has to correct is told by the condition; addresses stay. A source
// that cannot be asked now is asked at the next turn.
func (f *function) recheck(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	from, ok := f.source(nn.Annotations[v1alpha1.AnnotationProvider]).(finder)
	if !ok {
		return nil
	}
	seg, err := f.find(ctx, nn, from)
	if err == nil {
		err = unchanged(nn, seg)
	}
	var problem fault
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &problem):
		return fmt.Errorf("recheck network %s/%s: %w", nn.Namespace, nn.Name, err)
	case !problem.final:
		events.Report(ctx, nn.Status.Phase, problem.message)
		return nil
	}
	before := nn.DeepCopy()
	told := decide(nn, segment{}, problem, f.now())
	return f.write(ctx, before, nn, told)
}

// find is the segment that a source has for a network that is Ready.
func (f *function) find(ctx context.Context, nn *v1alpha2.NetworkNamespace, from finder) (segment, error) {
	seg, err := from.Find(ctx, nn)
	counted(nn, "find", err)
	return seg, err
}

// unchanged is a final fault where the segment of a network that is Ready is described
// in another way than the network has given it out.
func unchanged(nn *v1alpha2.NetworkNamespace, seg segment) error {
	has, err := held(nn)
	if err != nil || has.same(seg) && has.ipv4Gateway == seg.ipv4Gateway && has.ipv6Gateway == seg.ipv6Gateway {
		return nil
	}
	if provider, _ := providerOf(nn.Spec); provider == v1alpha2.ProviderManual {
		_, path := manualBlock(nn.Spec)
		return final("SegmentChanged", "spec.%s says %s now, but the network has given out %s, which stays, because machines use it: write that back, or delete this network and create it again",
			path, seg, has)
	}
	return final("SourceChanged", "the source says %s now, but has provided %s, which stays, because machines may use it: correct it there", seg, has)
}

// suited is a final fault where the segment of a network that is Ready is not what its
// spec asks NAM or NetBox for any more.
func suited(nn *v1alpha2.NetworkNamespace) error {
	has, err := held(nn)
	if err != nil {
		return nil
	}
	provider, _ := providerOf(nn.Spec)
	switch provider {
	case v1alpha2.ProviderNAM:
		err = has.answers(namSize(nn))
	case v1alpha2.ProviderNetBox:
		err = has.answersExactly(netboxRequest(nn))
	}
	if err != nil {
		return final("RequestChanged", "the segment is not what the spec asks for any more (%s), and stays as it is, since machines may use it: change spec.networkProvisioning.%s back, or delete this network and create it again",
			err, provider)
	}
	return nil
}

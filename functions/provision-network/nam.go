package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/wire"
)

// nam takes the segment from a Network Automation Manager, by the API of
// nam.openapi.yaml. A segment's key there is the UID of its NetworkNamespace, so
// that asking again, after whatever happened, gives the same segment.
type nam struct{ wire *wire.Client }

var namBackend = backend{name: "the Network Automation Manager", url: "NAM_URL", access: "NAM_TOKEN, or the client certificate"}

// namRequest is the body of PUT /segments/{uid}.
type namRequest struct {
	Name                 string              `json:"name"`
	Namespace            string              `json:"namespace"`
	DatacenterIdentifier v1alpha2.Identifier `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier v1alpha2.Identifier `json:"supervisorIdentifier,omitempty"`
	IPFamilies           []v1alpha2.IPFamily `json:"ipFamilies"`
	IPv4PrefixLength     int32               `json:"ipv4PrefixLength,omitempty"`
	IPv6PrefixLength     int32               `json:"ipv6PrefixLength,omitempty"`
}

// namSegment is its answer.
type namSegment struct {
	description
	UID     string `json:"uid"`
	State   string `json:"state"`
	Message string `json:"message"`
}

// States of a segment at the manager.
const (
	namPending  = "pending"
	namReady    = "ready"
	namError    = "error"
	namDeleting = "deleting"
)

// Provide asks for the segment. The manager's 200 is there, 202 is at work.
func (n nam) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	size := namSize(nn)
	if len(size.IPFamilies) == 0 {
		size.IPFamilies = []v1alpha2.IPFamily{v1alpha2.IPv4}
	}
	var answer namSegment
	res, err := n.wire.Do(ctx, wire.Request{Method: http.MethodPut, Path: segmentPath(nn), Body: namRequest{
		Name: nn.Name, Namespace: nn.Namespace,
		DatacenterIdentifier: nn.Spec.DatacenterIdentifier, SupervisorIdentifier: nn.Spec.SupervisorIdentifier,
		IPFamilies: size.IPFamilies, IPv4PrefixLength: size.IPv4PrefixLength, IPv6PrefixLength: size.IPv6PrefixLength,
	}}, &answer)
	if isConflict(err) && nn.Status.IPv4Prefix == "" && nn.Status.IPv6Prefix == "" {
		return segment{}, n.replace(ctx, nn, err)
	}
	if err != nil {
		return segment{}, faultOf(namBackend, err)
	}
	seg, err := answer.read(nn, res.RetryAfter())
	if err != nil {
		return segment{}, err
	}
	if err := seg.answers(size); err != nil {
		return segment{}, unexpected(namBackend, err.Error())
	}
	return seg, nil
}

// replace takes back a segment that was made for what the spec said before, and from which
// nothing has been given out, so that the next request makes another one. A conflict about
// anything else stays what it is.
func (n nam) replace(ctx context.Context, nn *v1alpha2.NetworkNamespace, conflict error) error {
	if _, err := n.wire.Do(ctx, wire.Request{Method: http.MethodGet, Path: segmentPath(nn)}, &namSegment{}); err != nil {
		return faultOf(namBackend, conflict)
	}
	if err := n.Release(ctx, nn); err != nil {
		return err
	}
	return working(namBackend.name+" has taken back the segment that was made before the spec changed, and is asked for another", time.Second)
}

func namSize(nn *v1alpha2.NetworkNamespace) v1alpha2.SegmentRequest {
	if p := nn.Spec.NetworkProvisioning; p != nil && p.NAM != nil {
		return *p.NAM
	}
	return v1alpha2.SegmentRequest{}
}

// Find asks how the segment is, which makes none.
func (n nam) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	var answer namSegment
	res, err := n.wire.Do(ctx, wire.Request{Method: http.MethodGet, Path: segmentPath(nn)}, &answer)
	switch {
	case isMissing(err):
		return segment{}, gone(namBackend, nn, "no segment")
	case err != nil:
		return segment{}, faultOf(namBackend, err)
	}
	return answer.read(nn, res.RetryAfter())
}

// read is the segment that the manager tells of, if it is there.
func (answer namSegment) read(nn *v1alpha2.NetworkNamespace, after time.Duration) (segment, error) {
	if answer.UID != string(nn.UID) {
		return segment{}, unexpected(namBackend, "it is about the segment of another network")
	}
	switch answer.State {
	case namPending:
		return segment{}, working(namBackend.name+" is making the segment", after)
	case namDeleting:
		return segment{}, working(namBackend.name+" is taking back the segment that this network had", after)
	case namError:
		return segment{}, final("SourceFailed", "%s could not make the segment: %s", namBackend.name, cmp.Or(answer.Message, "it does not say why"))
	case namReady:
	default:
		return segment{}, unexpected(namBackend, fmt.Sprintf("state %q is not one of pending, ready, error and deleting", answer.State))
	}
	s, err := answer.segment()
	if err != nil {
		return segment{}, unexpected(namBackend, err.Error())
	}
	return s, nil
}

// isMissing tells whether the manager has no such segment. Its 404 is believed only
// in the form of its API: a proxy that knows no such address says 404 as well.
func isMissing(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Kind == wire.NotFound && e.Detail() != ""
}

// isConflict tells whether the manager has a segment of this network that was made by another
// request.
func isConflict(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Kind == wire.Conflict
}

// Release has the manager take the segment back.
func (n nam) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	res, err := n.wire.Do(ctx, wire.Request{Method: http.MethodDelete, Path: segmentPath(nn)}, nil)
	switch {
	case isMissing(err):
		return nil
	case err != nil:
		return faultOf(namBackend, err)
	case res.Status == http.StatusAccepted:
		return working(namBackend.name+" is taking the segment back", res.RetryAfter())
	case res.Status != http.StatusNoContent:
		return unexpected(namBackend, fmt.Sprintf("status %d is neither 202 nor 204", res.Status))
	default:
		return nil
	}
}

func segmentPath(nn *v1alpha2.NetworkNamespace) string {
	return "/segments/" + url.PathEscape(string(nn.UID))
}

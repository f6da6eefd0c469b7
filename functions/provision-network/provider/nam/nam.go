// Package nam provides segments of a Network Automation Manager, by the API of
// nam.openapi.yaml.
package nam

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// Provider requests segments of the manager. The key of a segment is the UID of its
// NetworkNamespace, so that a repeated request returns the same segment.
type Provider struct{ client *httpclient.Client }

// New returns the provider that sends its requests by client.
func New(client *httpclient.Client) provider.Interface { return Provider{client} }

// TokenScheme returns the scheme of the Authorization header.
func TokenScheme(string) string { return "Bearer" }

// Probe implements provider.Prober.
func (p Provider) Probe(ctx context.Context) error {
	_, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodGet, Path: "/healthz"}, nil)
	return err
}

// Backend is how messages name the Network Automation Manager.
var Backend = provider.Backend{Name: "the Network Automation Manager", URL: "NAM_URL", Access: "NAM_TOKEN, or the client certificate"}

// request is the body of PUT /segments/{uid}.
type request struct {
	Name                 string              `json:"name"`
	Namespace            string              `json:"namespace"`
	DatacenterIdentifier v1alpha2.Identifier `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier v1alpha2.Identifier `json:"supervisorIdentifier,omitempty"`
	IPFamilies           []v1alpha2.IPFamily `json:"ipFamilies"`
	IPv4PrefixLength     int32               `json:"ipv4PrefixLength,omitempty"`
	IPv6PrefixLength     int32               `json:"ipv6PrefixLength,omitempty"`
}

// response is a segment with its state.
type response struct {
	segment.Description
	UID     string `json:"uid"`
	State   string `json:"state"`
	Message string `json:"message"`
}

// States of a segment.
const (
	statePending  = "pending"
	stateReady    = "ready"
	stateError    = "error"
	stateDeleting = "deleting"
)

// Provide requests the segment. The manager answers 200 with the segment, or 202 while it
// creates it.
func (p Provider) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	size := requestedSize(nn)
	if len(size.IPFamilies) == 0 {
		size.IPFamilies = []v1alpha2.IPFamily{v1alpha2.IPv4}
	}
	var answer response
	res, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodPut, Path: segmentPath(nn), Body: request{
		Name: nn.Name, Namespace: nn.Namespace,
		DatacenterIdentifier: nn.Spec.DatacenterIdentifier, SupervisorIdentifier: nn.Spec.SupervisorIdentifier,
		IPFamilies: size.IPFamilies, IPv4PrefixLength: size.IPv4PrefixLength, IPv6PrefixLength: size.IPv6PrefixLength,
	}}, &answer)
	if provider.IsKind(err, httpclient.Conflict) && !plan.HoldsSegment(nn) {
		return segment.Segment{}, p.resolveConflict(ctx, nn, err)
	}
	if err != nil {
		return segment.Segment{}, Backend.RequestError(err)
	}
	seg, err := answer.segment(nn, res.RetryAfter())
	if err != nil {
		return segment.Segment{}, err
	}
	if err := seg.CheckRequest(size); err != nil {
		return segment.Segment{}, Backend.InvalidResponse(err.Error())
	}
	return seg, nil
}

// resolveConflict returns an Error that is Outdated for the segment of an earlier request. A network that was created again may have lost its status, and
// machines may use its segment, so that its segment stays.
func (p Provider) resolveConflict(ctx context.Context, nn *v1alpha2.NetworkNamespace, conflict error) error {
	if len(v1alpha1.FormerUIDs(nn)) == 0 {
		return p.findOutdated(ctx, nn, conflict)
	}
	return provider.PermanentError("SourceConflict", "%s has the segment of this network, which was created again, for another request, and machines may use it: "+
		"write the spec.datacenterIdentifier, spec.supervisorIdentifier and spec.networkProvisioning.nam that the network had before, in a network of the same name and namespace, or delete this network, which releases the segment, and create it again", Backend.Name)
}

// findOutdated returns an Error that is Outdated if the manager has a segment of the network, which was requested by an
// earlier spec. It is only for a network that has allocated nothing of the
// segment. Any other conflict is returned as it is.
func (p Provider) findOutdated(ctx context.Context, nn *v1alpha2.NetworkNamespace, conflict error) error {
	if _, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodGet, Path: segmentPath(nn)}, &response{}); err != nil {
		return Backend.RequestError(conflict)
	}
	return provider.OutdatedError(Backend.Name)
}

func requestedSize(nn *v1alpha2.NetworkNamespace) v1alpha2.SegmentRequest {
	if p := nn.Spec.NetworkProvisioning; p != nil && p.NAM != nil {
		return *p.NAM
	}
	return v1alpha2.SegmentRequest{}
}

// CheckRequest implements provider.Server.
func (Provider) CheckRequest(nn *v1alpha2.NetworkNamespace, seg segment.Segment) error {
	return seg.CheckRequest(requestedSize(nn))
}

// Find implements provider.Server.
func (p Provider) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	var answer response
	res, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodGet, Path: segmentPath(nn)}, &answer)
	switch {
	case provider.IsNotFound(err):
		if err := p.checkManager(ctx); err != nil {
			return segment.Segment{}, err
		}
		return segment.Segment{}, Backend.SegmentGone(v1alpha1.OriginalUID(nn), "segment")
	case err != nil:
		return segment.Segment{}, Backend.RequestError(err)
	}
	return answer.segment(nn, res.RetryAfter())
}

// segment returns the segment of a response, and an Error if it is not ready.
func (r response) segment(nn *v1alpha2.NetworkNamespace, after time.Duration) (segment.Segment, error) {
	if r.UID != string(v1alpha1.OriginalUID(nn)) {
		return segment.Segment{}, Backend.InvalidResponse("it is about the segment of another network")
	}
	switch r.State {
	case statePending:
		return segment.Segment{}, provider.Working(Backend.Name+" is creating the segment", after)
	case stateDeleting:
		return segment.Segment{}, provider.Working(Backend.Name+" is removing the earlier segment of this network", after)
	case stateError:
		return segment.Segment{}, provider.PermanentError(provider.ReasonFailed, "%s could not create the segment: %s", Backend.Name, cmp.Or(r.Message, "it gives no reason"))
	case stateReady:
	default:
		return segment.Segment{}, Backend.InvalidResponse(fmt.Sprintf("state %q is not one of pending, ready, error and deleting", r.State))
	}
	s, err := r.Segment()
	if err != nil {
		return segment.Segment{}, Backend.InvalidResponse(err.Error())
	}
	return s, nil
}

// Release deletes the segment. The manager answers 204 once it is gone, or 202 while it
// removes it.
func (p Provider) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	res, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodDelete, Path: segmentPath(nn)}, nil)
	switch {
	case provider.IsNotFound(err):
		return p.checkManager(ctx)
	case err != nil:
		return Backend.RequestError(err)
	case res.Status == http.StatusAccepted:
		return provider.Working(Backend.Name+" is removing the segment", res.RetryAfter())
	case res.Status != http.StatusNoContent:
		return Backend.InvalidResponse(fmt.Sprintf("status %d is neither 202 nor 204", res.Status))
	default:
		return nil
	}
}

// checkManager returns an Error if what has answered that it has no segment does not list segments either: a gateway that does
// not know the address, and another API, answer 404 in JSON as the manager does. A manager that refuses the list to the client exists.
func (p Provider) checkManager(ctx context.Context) error {
	var answer struct {
		Items *[]json.RawMessage `json:"items"`
	}
	_, err := p.client.Do(ctx, httpclient.Request{Method: http.MethodGet, Path: "/segments", Query: url.Values{"limit": {"1"}}}, &answer)
	switch {
	case provider.IsKind(err, httpclient.Unauthorized):
		return nil
	case err != nil:
		return Backend.RequestError(err)
	case answer.Items == nil:
		return Backend.InvalidResponse("it is not a list of segments")
	default:
		return nil
	}
}

// segmentPath returns the path of the segment of a network, whose key is the first UID of the network, because
// the manager cannot give a segment another key.
func segmentPath(nn *v1alpha2.NetworkNamespace) string {
	return "/segments/" + url.PathEscape(string(v1alpha1.OriginalUID(nn)))
}

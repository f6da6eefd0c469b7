// Package external provides segments of an IPAM that is asked by an event and answers by an
// event. It serves every provider that has no package of its own.
package external

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// AnswerTime is the least time that an IPAM has to answer before it is asked again.
const AnswerTime = 30 * time.Second

// Provider requests segments of the IPAM with its name. The IPAM identifies a segment by
// the UID of its NetworkNamespace, so that a repeated request has the same answer.
type Provider struct {
	Name   string
	Sender Sender
	Now    func() time.Time
}

// Sender sends events to the Broker.
type Sender interface {
	Send(ctx context.Context, e event.Event) error
}

// Provide sends the request and returns at once. The answer is another event, for
// ReadAnswer.
func (p Provider) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	if nn.Status.ProvisioningPhase == v1alpha2.ProvisioningReady {
		return segment.FromStatus(nn)
	}
	request := events.NetworkRequested{
		Object: objectOf(nn), Provider: p.Name,
		DatacenterIdentifier: string(nn.Spec.DatacenterIdentifier), SupervisorIdentifier: string(nn.Spec.SupervisorIdentifier),
	}
	if np := nn.Spec.NetworkProvisioning; np != nil {
		request.Parameters = np.Parameters
	}
	id := events.RequestID(fmt.Sprintf("requested.%d", nn.Generation), p.Now(), AnswerTime)
	if err := p.send(ctx, nn, events.TypeNetworkRequested, id, request); err != nil {
		return segment.Segment{}, err
	}
	return segment.Segment{}, provider.Error{
		Reason: provider.ReasonWorking, RetryAfter: AnswerTime,
		Message: fmt.Sprintf("waiting for IPAM %s to answer the event of type %s", p.Name, events.TypeNetworkRequested),
	}
}

// Release tells the IPAM that the segment is free. A second call sends the same event, and the release after a later change of the
// spec is another event.
func (p Provider) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	id := fmt.Sprintf("released.%s.%d", p.Name, nn.Generation)
	return p.send(ctx, nn, events.TypeNetworkReleased, id, events.NetworkReleased{
		Object: objectOf(nn), Provider: p.Name, ID: nn.Status.NamespaceID,
		IPv4Prefix: nn.Status.IPv4Prefix, IPv6Prefix: nn.Status.IPv6Prefix,
	})
}

func (p Provider) send(ctx context.Context, nn *v1alpha2.NetworkNamespace, eventType, id string, data any) error {
	e, err := newEvent(eventType, p.Name, objectOf(nn), data)
	if err != nil {
		return err
	}
	e.SetID(objectOf(nn).UID + "." + id)
	return p.Sender.Send(ctx, e)
}

// newEvent returns an event about a network for the IPAM that serves a provider.
func newEvent(eventType, providerName string, nn events.Object, data any) (event.Event, error) {
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/functions/provision-network")
	e.SetExtension("provider", providerName) // for the filter of a Trigger
	ref := events.Ref{APIVersion: v1alpha2.GroupVersion.String(), Kind: "NetworkNamespace", Namespace: nn.Namespace, Name: nn.Name}
	ref.Set(&e, nn.UID)
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write event %s: %w", eventType, err)
	}
	return e, nil
}

// objectOf identifies a network to its IPAM. A network that was created again keeps its first UID there.
func objectOf(nn *v1alpha2.NetworkNamespace) events.Object {
	return events.Object{UID: string(v1alpha1.OriginalUID(nn)), Namespace: nn.Namespace, Name: nn.Name}
}

// Answer is the answer of an IPAM: the segment of the network with a UID, or Err, which
// says why there is none. Provider may be empty.
type Answer struct {
	UID, Provider string
	Segment       segment.Segment
	Err           error
}

// ReadAnswer reads the event of an IPAM. It returns a permanent error if the data is not
// that of its type. The gateway checks the schema, and ReadAnswer checks it again before anything is written.
func ReadAnswer(in event.Event) (Answer, error) {
	if in.Type() == events.TypeNetworkFailed {
		var data events.NetworkFailed
		if err := json.Unmarshal(in.Data(), &data); err != nil || data.UID == "" {
			return Answer{}, invalidData(in)
		}
		message := cmp.Or(data.Message, "it gives no reason")
		return Answer{UID: data.UID, Provider: data.Provider, Err: provider.PermanentError(conditionReason(data.Reason), "the IPAM provides no segment: %s", message)}, nil
	}
	var data struct {
		segment.Description
		UID      string `json:"uid"`
		Provider string `json:"provider"`
	}
	if err := json.Unmarshal(in.Data(), &data); err != nil || data.UID == "" {
		return Answer{}, invalidData(in)
	}
	a := Answer{UID: data.UID, Provider: data.Provider}
	if a.Segment, a.Err = data.Segment(); a.Err != nil {
		a.Err = provider.Backend{Name: "the IPAM"}.InvalidResponse(a.Err.Error())
	}
	return a, nil
}

func invalidData(in event.Event) error {
	return events.Permanent(fmt.Errorf("read event %s: its data has to be that of %s", in.ID(), in.Type()))
}

// ReleaseEvent returns the event that releases the segment of an answer whose network no
// longer exists. It reports false if the answer has no segment, or lacks the subject or the
// provider that the event needs. It names the segment by the network's UID alone: the rest of the answer is
// what its sender wrote. Its ID is made of the answer's, because the IPAM may have received the event of the
// deletion before.
func (a Answer) ReleaseEvent(in event.Event) (*event.Event, bool) {
	_, place, _ := strings.Cut(in.Subject(), "/namespaces/")
	parts := strings.Split(place, "/")
	if in.Type() != events.TypeNetworkProvisioned || a.Provider == "" || len(parts) != 3 {
		return nil, false
	}
	nn := events.Object{UID: a.UID, Namespace: parts[0], Name: parts[2]}
	e, err := newEvent(events.TypeNetworkReleased, a.Provider, nn, events.NetworkReleased{Object: nn, Provider: a.Provider})
	e.SetID(fmt.Sprintf("%s.released.%s.%s", a.UID, a.Provider, in.ID()))
	return &e, err == nil
}

// conditionReason returns the reason of an IPAM, or provider.ReasonFailed if it is not one
// word in CamelCase.
func conditionReason(reason string) string {
	const maxLength = 64
	if reason == "" || len(reason) > maxLength || reason[0] < 'A' || reason[0] > 'Z' {
		return provider.ReasonFailed
	}
	for _, c := range reason {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return provider.ReasonFailed
		}
	}
	return reason
}

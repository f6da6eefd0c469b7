package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
)

// external takes the segment from an IPAM that is asked by an event, and answers by
// one. It is every provider that has no source of its own. The IPAM knows a segment
// by the UID of its NetworkNamespace: asked again, it answers with the same one.
type external struct {
	name   string
	sender sender
	now    func() time.Time
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

// answerTime is how long an IPAM has at least before it is asked again.
const answerTime = 30 * time.Second

// Provide asks, and returns at once: the answer comes as another event, which
// answer puts into the status.
func (x external) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	if provided := nn.Status; provided.ProvisioningPhase == v1alpha2.ProvisioningReady {
		return held(nn)
	}
	request := events.NetworkRequested{
		Object: object(nn), Provider: x.name,
		DatacenterIdentifier: string(nn.Spec.DatacenterIdentifier), SupervisorIdentifier: string(nn.Spec.SupervisorIdentifier),
	}
	if p := nn.Spec.NetworkProvisioning; p != nil {
		request.Parameters = p.Parameters
	}
	if err := x.send(ctx, nn, events.TypeNetworkRequested, x.turn(nn), request); err != nil {
		return segment{}, err
	}
	return segment{}, fault{
		reason: reasonWorking, after: answerTime,
		message: fmt.Sprintf("IPAM %s has been asked by an event of type %s, and has not answered yet", x.name, events.TypeNetworkRequested),
	}
}

// turn names a request. A request that is repeated after answerTime has another name,
// because an answer has an identifier made of the request's, and the gateway takes an
// identifier once: the answer to the first request may have been lost behind it.
func (x external) turn(nn *v1alpha2.NetworkNamespace) string {
	return fmt.Sprintf("requested.%d.%d", nn.Generation, x.now().Truncate(answerTime).Unix())
}

// Release tells the IPAM that the segment is free. An event that is sent twice is
// the same event.
func (x external) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	return x.send(ctx, nn, events.TypeNetworkReleased, "released", events.NetworkReleased{
		Object: object(nn), Provider: x.name, ID: nn.Status.NamespaceID,
		IPv4Prefix: nn.Status.IPv4Prefix, IPv6Prefix: nn.Status.IPv6Prefix,
	})
}

func (x external) send(ctx context.Context, nn *v1alpha2.NetworkNamespace, eventType, what string, data any) error {
	e, err := write(eventType, x.name, object(nn), data)
	if err != nil {
		return err
	}
	e.SetID(string(nn.UID) + "." + what)
	return x.sender.Send(ctx, e)
}

// write makes an event for the IPAM that serves a provider, about a network.
func write(eventType, provider string, nn events.Object, data any) (event.Event, error) {
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/functions/" + name)
	e.SetExtension("provider", provider) // for the filter of a Trigger
	ref := events.Ref{APIVersion: v1alpha2.GroupVersion.String(), Kind: kindNetwork, Namespace: nn.Namespace, Name: nn.Name}
	ref.Set(&e, nn.UID)
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		return e, fmt.Errorf("write event %s: %w", eventType, err)
	}
	return e, nil
}

func object(nn *v1alpha2.NetworkNamespace) events.Object {
	return events.Object{UID: string(nn.UID), Namespace: nn.Namespace, Name: nn.Name}
}

// answer is what an IPAM says: the segment, or why there is none.
type answer struct {
	uid, provider string
	segment       segment
	err           error
}

// readAnswer reads an event of an IPAM. Its data has passed the gateway's schema,
// but anybody may send to the broker.
func readAnswer(in event.Event) (answer, error) {
	if in.Type() == events.TypeNetworkFailed {
		var data events.NetworkFailed
		if err := json.Unmarshal(in.Data(), &data); err != nil || data.UID == "" {
			return answer{}, events.Permanent(fmt.Errorf("read event %s: its data has to be that of %s", in.ID(), in.Type()))
		}
		said := cmp.Or(data.Message, "it does not say why")
		return answer{uid: data.UID, provider: data.Provider, err: final(reasonOf(data.Reason), "the IPAM provides no segment: %s", said)}, nil
	}
	var data struct {
		description
		UID      string `json:"uid"`
		Provider string `json:"provider"`
	}
	if err := json.Unmarshal(in.Data(), &data); err != nil || data.UID == "" {
		return answer{}, events.Permanent(fmt.Errorf("read event %s: its data has to be that of %s", in.ID(), in.Type()))
	}
	a := answer{uid: data.UID, provider: data.Provider}
	if a.segment, a.err = data.segment(); a.err != nil {
		a.err = unexpected(backend{name: "the IPAM"}, a.err.Error())
	}
	return a, nil
}

// refuse is the event that sets the segment of an answer free, whose network is
// gone. Only the answer can say which network that was: there is none where its
// subject or provider is missing, or where it has no segment. Its identifier is made
// of the answer's, since an IPAM has known that of the release for longer.
func (a answer) refuse(in event.Event) (*event.Event, bool) {
	_, place, _ := strings.Cut(in.Subject(), "/namespaces/")
	parts := strings.Split(place, "/")
	if in.Type() != events.TypeNetworkProvisioned || a.provider == "" || len(parts) != 3 {
		return nil, false
	}
	nn := events.Object{UID: a.uid, Namespace: parts[0], Name: parts[2]}
	e, err := write(events.TypeNetworkReleased, a.provider, nn, events.NetworkReleased{
		Object: nn, Provider: a.provider, ID: a.segment.id, IPv4Prefix: text(a.segment.ipv4), IPv6Prefix: text(a.segment.ipv6),
	})
	e.SetID(in.ID() + ".released")
	return &e, err == nil
}

// reasonOf is an IPAM's reason, or a general one where that is not one word as
// conditions want it.
func reasonOf(said string) string {
	const longest = 64
	if said == "" || len(said) > longest || said[0] < 'A' || said[0] > 'Z' {
		return "SourceFailed"
	}
	for _, c := range said {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') {
			return "SourceFailed"
		}
	}
	return said
}

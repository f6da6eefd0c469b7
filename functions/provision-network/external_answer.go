package main

import (
	"context"
	"fmt"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider/external"
)

// handleAnswer reconciles the network that an external IPAM answers about. If the network
// no longer exists, the reply is the event that releases the segment. An answer whose subject is another object is a permanent error.
func (f *function) handleAnswer(ctx context.Context, in event.Event) (*event.Event, error) {
	answer, err := external.ReadAnswer(in)
	if err != nil {
		return nil, err
	}
	nn, err := f.networkByUID(ctx, answer.UID)
	if err != nil {
		return nil, err
	}
	if nn == nil {
		return releaseLateAnswer(ctx, in, answer)
	}
	ref := events.Ref{APIVersion: v1alpha2.GroupVersion.String(), Kind: "NetworkNamespace", Namespace: nn.Namespace, Name: nn.Name}
	if err := ref.CheckSubject(in); err != nil {
		return nil, err
	}
	asked := nn.Annotations[v1alpha1.AnnotationProvider]
	_, isRegistered := f.providers[asked]
	if asked == "" || isRegistered || (answer.Provider != "" && answer.Provider != asked) {
		return nil, events.Permanent(fmt.Errorf("use the answer for network %s/%s: its provider is %s, and has not been asked by an event", nn.Namespace, nn.Name, asked))
	}
	if answer.Err != nil && isReady(nn) {
		events.Report(ctx, nn.Status.Phase, "Dropped a refusal that came after the segment")
		return nil, nil
	}
	o := reconcileOptions{answer: &answer}
	return nil, kube.OnConflict(func() error { return f.reconcileNetwork(ctx, nn.Namespace, nn.Name, o) })
}

// isAnswerFor reports whether an answer is of the provider that the spec of nn names. After
// the spec has changed, the segment of an earlier provider is released, not used.
func isAnswerFor(nn *v1alpha2.NetworkNamespace, answer *external.Answer) bool {
	providerName, _ := plan.ProviderOf(nn.Spec)
	return answer != nil && nn.Annotations[v1alpha1.AnnotationProvider] == providerName
}

// releaseLateAnswer replies to the answer of an IPAM for a network that no longer exists. The
// event of the deletion was sent before the IPAM had a segment.
func releaseLateAnswer(ctx context.Context, in event.Event, answer external.Answer) (*event.Event, error) {
	reply, ok := answer.ReleaseEvent(in)
	if !ok {
		events.Report(ctx, "", "Dropped an answer for a network that does not exist")
		return nil, nil
	}
	events.Report(ctx, phaseDeleting, "Released the segment of a network that no longer exists")
	return reply, nil
}

// networkByUID returns the network with a UID, or nil.
func (f *function) networkByUID(ctx context.Context, uid string) (*v1alpha2.NetworkNamespace, error) {
	list := &v1alpha2.NetworkNamespaceList{}
	if err := f.kube.List(ctx, "", "", list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		if string(v1alpha1.OriginalUID(&list.Items[i])) == uid {
			return &list.Items[i], nil
		}
	}
	return nil, nil
}

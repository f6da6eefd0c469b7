package main

import (
	"context"
	"errors"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
)

// api reads pages of objects of all namespaces and single objects, and writes metadata, the
// ConfigMap orphans, and the Leases of rounds.
type api interface {
	orphans.API
	ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error
	Create(ctx context.Context, obj kube.Object) error
	Update(ctx context.Context, obj kube.Object) error
}

// sender sends events to the broker.
type sender interface {
	Send(ctx context.Context, e event.Event) error
}

// isOver reports whether a slice has lasted for a time. A slice is not over before an object
// was handled, so that each slice makes progress.
func (p *round) isOver(limit time.Duration) bool {
	return p.handled && p.now().Sub(p.sliceStart) >= limit
}

// keyed is an object with a key, which is its place in a list of all namespaces.
type keyed interface{ key() string }

// list is one page of a list.
type list[T keyed] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

// forEach calls do for the objects of a list after the place where the round stopped, in the
// order of their keys, until the slice is over. It reports whether it has read the last page.
func forEach[T keyed](ctx context.Context, p *round, resource schema.GroupVersionResource, page kube.Page, do func(T) error) (complete bool, err error) {
	at := &p.progress
	skip := at.After
	for {
		var got list[T]
		page.Continue = at.Continue
		err := p.api.ListInto(ctx, resource, page, &got)
		if next, expired := kube.ContinueExpired(err); expired && next != at.Continue {
			at.Continue, skip = next, at.After
			continue
		}
		if err != nil {
			return false, err
		}
		at.Pages++
		for _, item := range got.Items {
			key := item.key()
			if skip != "" && key <= skip {
				continue
			}
			if p.isOver(sliceLimit) {
				return false, nil
			}
			if err := do(item); err != nil {
				return false, err
			}
			at.After, p.handled = key, true
			at.Objects++
		}
		if at.Continue = got.Metadata.Continue; at.Continue == "" {
			at.After = ""
			return true, nil
		}
		if p.isOver(sliceDuration) {
			return false, nil
		}
	}
}

// post sends an event, and reports whether the Broker has answered. A Broker that does not answer in time
// is no error: it has the event, and a subscriber is slow. The round goes on, so that the other objects need not wait.
func (p *round) post(ctx context.Context, e event.Event) (answered bool, err error) {
	err = p.sender.Send(ctx, e)
	if errors.Is(err, events.ErrUnanswered) {
		return false, nil
	}
	return err == nil, err
}

// send sends the event of an object and removes the annotation that requested it, so that it
// can be requested again.
func (p *round) send(ctx context.Context, k kind, o object) error {
	ref := events.Ref{
		APIVersion: k.resource.GroupVersion().String(), Kind: k.name,
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name,
	}
	p.progress.Sent++
	answered, err := p.post(ctx, p.event(ref, o.Metadata.UID, o.Metadata.ResourceVersion))
	if err != nil || !answered || !o.isRequested() {
		return err
	}
	obj := k.make()
	obj.SetNamespace(o.Metadata.Namespace)
	obj.SetName(o.Metadata.Name)
	err = p.api.Merge(ctx, obj, map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "annotations": map[string]any{v1alpha1.AnnotationReconcile: nil},
	}})
	if kube.NotFound(err) || kube.Conflict(err) {
		return nil
	}
	return err
}

func (p *round) event(ref events.Ref, uid, version string) event.Event {
	return events.NewReconcileRequest("/functions/"+name, ref, uid, version+"."+p.round)
}

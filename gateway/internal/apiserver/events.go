package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Event is a Kubernetes Event about an object.
type Event struct {
	// Type is Normal or Warning.
	Type    string
	Reason  string
	Message string
	// Count is how often it has happened, from First to Last.
	Count       int
	First, Last time.Time
	// Source is the program that recorded it.
	Source string
}

// Bounds of the Events of one object. The API server lists them by their names, which are hashes, so that the newest ones may be on any page.
const (
	maxEvents      = 200
	eventsPageSize = 500
	maxEventPages  = 20
)

// Events returns the newest Kubernetes Events about the object with a UID, the newest first. The Events of an object without a namespace
// are in the namespace default.
func (c *Client) Events(ctx context.Context, namespace, uid string) ([]Event, error) {
	options := &metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", uid).String(), Limit: eventsPageSize}
	namespace = cmp.Or(namespace, metav1.NamespaceDefault)
	var all []Event
	for range maxEventPages {
		list := &corev1.EventList{}
		if err := c.core.Get().Namespace(namespace).Resource("events").VersionedParams(options, c.params).Do(ctx).Into(list); err != nil {
			return nil, fmt.Errorf("read Events of %s in %s: %w", uid, namespace, err)
		}
		for i := range list.Items {
			all = append(all, eventOf(&list.Items[i]))
		}
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b Event) int { return b.Last.Compare(a.Last) })
	return all[:min(len(all), maxEvents)], nil
}

// eventOf reads an Event as recorders of both APIs write it: with a count and two times, or with one time and a series.
func eventOf(e *corev1.Event) Event {
	out := Event{
		Type: e.Type, Reason: e.Reason, Message: e.Message, Count: max(int(e.Count), 1),
		First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time, Source: cmp.Or(e.Source.Component, e.ReportingController),
	}
	if out.First.IsZero() {
		out.First = e.EventTime.Time
	}
	if e.Series != nil {
		out.Count, out.Last = int(e.Series.Count), e.Series.LastObservedTime.Time
	}
	if out.First.IsZero() {
		out.First = e.CreationTimestamp.Time
	}
	if out.Last.IsZero() {
		out.Last = out.First
	}
	return out
}

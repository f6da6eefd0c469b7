package events

import (
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
)

// TestCheckSubject compares the subjects of events with one object.
func TestCheckSubject(t *testing.T) {
	t.Parallel()
	prod := Ref{APIVersion: "vitistack.io/v1alpha2", Kind: "NetworkNamespace", Namespace: "team-a", Name: "prod"}
	for name, tc := range map[string]struct {
		reason, subject string
		isRefused       bool
	}{
		"Same":         {reason: "it is the object", subject: "/apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/prod"},
		"OtherVersion": {reason: "each version of the API has the same objects", subject: "/apis/vitistack.io/v1alpha1/namespaces/team-a/networknamespaces/prod"},
		"None":         {reason: "only a sender without limits may leave it out"},
		"Ticket":       {reason: "only a sender without limits may name something else", subject: "WO-1234"},
		"Namespace":    {reason: "a key of team-b may send it", subject: "/apis/vitistack.io/v1alpha2/namespaces/team-b/networknamespaces/prod", isRefused: true},
		"NoPrefix":     {reason: "the gateway reads it as the same path", subject: "vitistack.io/v1alpha2/namespaces/team-b/networknamespaces/prod", isRefused: true},
		"Name":         {reason: "it is another object", subject: "/apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/test", isRefused: true},
		"Kind":         {reason: "it is another object", subject: "/apis/vitistack.io/v1alpha2/namespaces/team-a/machines/prod", isRefused: true},
	} {
		e := event.New()
		e.SetSubject(tc.subject)
		if err := prod.CheckSubject(e); IsPermanent(err) != tc.isRefused {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
	}
}

package network_test

import (
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/network"
)

func TestIsUsageEvent(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	wrote := func(manager, subresource string, second int) metav1.ManagedFieldsEntry {
		at := metav1.NewTime(start.Add(time.Duration(second) * time.Second))
		return metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at}
	}
	user, ready, count := wrote("kubectl", "", 1), wrote("provision-network", "status", 2), wrote(network.UsageManager, "status", 3)
	for name, tc := range map[string]struct {
		reason, eventType string
		fields            []metav1.ManagedFieldsEntry
		want              bool
	}{
		"Count":      {"only the count is new", events.TypeUpdate, []metav1.ManagedFieldsEntry{user, ready, count}, true},
		"Ready":      {"objects wait for the segment", events.TypeUpdate, []metav1.ManagedFieldsEntry{user, ready}, false},
		"SameSecond": {"the segment may have come after the count", events.TypeUpdate, []metav1.ManagedFieldsEntry{user, wrote("provision-network", "status", 3), count}, false},
		"Changed":    {"a user has changed the network since the count", events.TypeUpdate, []metav1.ManagedFieldsEntry{wrote("kubectl", "", 4), ready, count}, false},
		"Reference":  {"the event carries no object", events.TypeRefUpdate, []metav1.ManagedFieldsEntry{user, ready, count}, false},
		"Resync":     {"events may have been lost", events.TypeResync, []metav1.ManagedFieldsEntry{user, ready, count}, false},
	} {
		e := event.New()
		e.SetType(tc.eventType)
		if err := e.SetData(event.ApplicationJSON, &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{ManagedFields: tc.fields}}); err != nil {
			t.Fatal(err)
		}
		if got := network.IsUsageEvent(e); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

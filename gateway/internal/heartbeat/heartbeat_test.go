package heartbeat

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

const namespace = "vitistack-system"

func newWatcher(t *testing.T) *Watcher {
	t.Helper()
	return &Watcher{
		Store: inventory.NewStore("test"), Namespace: namespace, Heartbeats: parse(t, "*/10 * * * * *"), Rounds: parse(t, "*/10 * * * *"),
		Renew: func(context.Context, string, string, time.Time) error { return nil },
	}
}

// lease stores a Lease as another replica or a function has renewed it.
func (w *Watcher) lease(name string, renewed time.Time) {
	w.Store.Put(&inventory.Object{
		Kind: inventory.KindLease, Key: inventory.Key{Namespace: namespace, Name: name}, ResourceVersion: renewed.String(), Facts: &inventory.Lease{Renewed: renewed},
	})
}

// statuses returns the statuses of the Broker, both sources and resync.
func statuses(all []inventory.Dependency) string {
	var words []string
	for _, d := range all {
		words = append(words, d.Status)
	}
	return strings.Join(words, " ")
}

// TestFaults follows the statuses through the faults of each part.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	start := at(t, "01 10:00:00")
	beat := func(second int, leases ...string) {
		for _, l := range leases {
			w.lease(l, start.Add(time.Duration(second)*time.Second))
		}
	}
	all := []string{leaseBroker, leaseSource, leaseResources}
	for _, step := range []struct {
		reason string
		second int
		beats  []string
		want   string
	}{
		{"nothing has come yet", 1, nil, "unknown unknown unknown unknown"},
		{"all have come", 10, append(all, leaseResync), "healthy healthy healthy healthy"},
		{"one source has stopped", 20, []string{leaseBroker, leaseResources}, "healthy healthy healthy healthy"},
		{"one source has been silent for three intervals", 41, []string{leaseBroker, leaseResources}, "healthy unhealthy healthy healthy"},
		{"the source is back", 50, all, "healthy healthy healthy healthy"},
		{"the Broker hides what happens at the sources", 85, nil, "unhealthy unknown unknown healthy"},
		{"the Broker hides resync", 3600, nil, "unhealthy unknown unknown unknown"},
		{"the Broker is back, and the sources have not had the time", 3610, []string{leaseBroker}, "healthy unknown unknown unknown"},
		{"the sources are back, and no round was due", 3620, all, "healthy healthy healthy unknown"},
	} {
		beat(step.second, step.beats...)
		got := w.check(start, start.Add(time.Duration(step.second)*time.Second))
		if statuses(got) != step.want {
			t.Errorf("after %d s: %s, want %s: %s", step.second, statuses(got), step.want, step.reason)
		}
		for _, d := range got {
			if silent := d.Status == inventory.Unhealthy; silent != (d.Message != "") || silent && !strings.Contains(d.Message, "kubectl -n "+namespace) || strings.Contains(d.Message, "%") {
				t.Errorf("after %d s: %s %s is %s and says %q", step.second, d.Kind, d.Name, d.Status, d.Message)
			}
		}
	}
	for second := 3630; second < 3600+2400; second += 10 {
		beat(second, all...)
		w.check(start, start.Add(time.Duration(second)*time.Second))
	}
	if got := statuses(w.Last()); got != "healthy healthy healthy unhealthy" {
		t.Errorf("without a round for more than half an hour: %s", got)
	}
}

// TestLeaseThatCannotBeWritten has heartbeats arrive while the API server refuses to write Leases.
func TestLeaseThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	written := 0
	w.Renew = func(context.Context, string, string, time.Time) error {
		written++
		return errors.New("refused")
	}
	start := at(t, "01 10:00:00")
	for second := range 60 {
		for _, l := range []string{leaseBroker, leaseSource, leaseResources} {
			for _, fraction := range []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond} {
				_ = w.Record(t.Context(), l, start.Add(time.Duration(second)*time.Second+fraction))
			}
		}
	}
	if got := statuses(w.check(start, start.Add(time.Minute))); !strings.HasPrefix(got, "healthy healthy healthy") {
		t.Errorf("what this process received does not count: %s", got)
	}
	if written > 180 {
		t.Errorf("%d writes in a minute for a flood of heartbeats", written)
	}
}

func TestLeaseOf(t *testing.T) {
	t.Parallel()
	w := newWatcher(t)
	for name, tc := range map[string]struct {
		reason, eventType, source, kind, namespace, name, want string
	}{
		"Ping":          {"the heartbeat itself", events.TypePing, "/apis/v1/namespaces/vitistack-system/pingsources/heartbeat", "", "", "", leaseBroker},
		"OtherPing":     {"resync's own PingSource", events.TypePing, "/apis/v1/namespaces/vitistack-system/pingsources/resync", "", "", "", ""},
		"Elsewhere":     {"the heartbeat of another installation", events.TypePing, "/apis/v1/namespaces/other/pingsources/heartbeat", "", "", "", ""},
		"Reference":     {"ApiServerSource vitistack sends references", events.TypeRefUpdate, "https://kubernetes", "Lease", namespace, leaseBroker, leaseSource},
		"Resource":      {"ApiServerSource vitistack-resources sends objects", events.TypeUpdate, "https://kubernetes", "Lease", namespace, leaseBroker, leaseResources},
		"OwnLease":      {"a Lease that the gateway renews because of an event must cause none", events.TypeRefUpdate, "https://kubernetes", "Lease", namespace, leaseSource, ""},
		"OtherKind":     {"a change of a Machine", events.TypeRefUpdate, "https://kubernetes", "Machine", namespace, leaseBroker, ""},
		"OtherInstall":  {"the Lease of another installation", events.TypeRefUpdate, "https://kubernetes", "Lease", "other", leaseBroker, ""},
		"NoObject":      {"an event without attributes", events.TypeRefUpdate, "https://kubernetes", "", "", "", ""},
		"NoChangeEvent": {"resync's events do not come from a source", events.TypeResync, "/functions/resync", "Lease", namespace, leaseBroker, ""},
	} {
		e := event.New()
		e.SetID("1")
		e.SetType(tc.eventType)
		e.SetSource(tc.source)
		if tc.kind != "" {
			events.Ref{APIVersion: "coordination.k8s.io/v1", Kind: tc.kind, Namespace: tc.namespace, Name: tc.name}.Set(&e, "")
		}
		got, ok := w.LeaseOf(e)
		if ok != (tc.want != "") || ok && got != tc.want {
			t.Errorf("%s: %q, %v, want %q: %s", name, got, ok, tc.want, tc.reason)
		}
	}
}

package app

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/fakeapi"
)

// TestRequestsResync requests a resync as long as an object is due, and no longer. The request names the object.
func TestRequestsResync(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	ready := []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web", UID: "u1", Generation: 2}}
	m.Status.ObservedGeneration, m.Status.Conditions = 1, ready
	s := startCold(t, func(api *fakeapi.Server) { api.Put(t, "machines", m) }, "--broker.sink="+b.URL, "--resync.period=1s")
	s.waitReady()
	rounds := func() []string {
		b.mu.Lock()
		defer b.mu.Unlock()
		var ids []string
		for _, e := range b.events {
			if e.Type() == events.TypeResyncRequested {
				ids = append(ids, e.ID())
			}
		}
		return ids
	}
	eventually(t, "a request for each period", func() bool { return len(rounds()) >= 3 })
	b.mu.Lock()
	for _, e := range b.events {
		if e.Type() == events.TypeResyncRequested && string(e.Data()) != `{"objects":[{"kind":"Machine","namespace":"team-a","name":"web"}]}` {
			t.Errorf("the request names %s, want the Machine that is due", e.Data())
		}
	}
	b.mu.Unlock()
	if ids := rounds(); len(slices.Compact(slices.Clone(ids))) != len(ids) {
		t.Errorf("rounds of different periods have the same id: %v", ids)
	}
	m.Status.ObservedGeneration = 2
	s.api.Put(t, "machines", m)
	eventually(t, "the machine is seen", func() bool {
		return s.get("/api/v1/machines/team-a%2Fweb").StatusCode == http.StatusOK
	})
	last := len(rounds())
	quiet := time.Now()
	eventually(t, "the end of the rounds", func() bool {
		if n := len(rounds()); n != last {
			last, quiet = n, time.Now()
		}
		return time.Since(quiet) > 3*time.Second
	})
	p := &v1alpha1.MachineProvider{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", UID: "u2", Generation: 1}}
	p.Status.ObservedGeneration, p.Status.Conditions, p.Status.MachineCount = 1, ready, 1
	s.api.Put(t, "machineproviders", p)
	eventually(t, "a round for a provider that counts a machine which is not there", func() bool { return len(rounds()) > last })
}

// TestRequestsSoon lets an object become due in a period in which another one has been requested, and requires a request for it in the same period.
func TestRequestsSoon(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	due := func(name string) *v1alpha1.Machine {
		return &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID(name), Generation: 1}}
	}
	s := startCold(t, func(api *fakeapi.Server) { api.Put(t, "machines", due("broken")) }, "--broker.sink="+b.URL, "--resync.period=1h")
	s.waitReady()
	await := func(name string) {
		eventually(t, "a request for "+name, func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return slices.ContainsFunc(b.events, func(e event.Event) bool {
				return e.Type() == events.TypeResyncRequested && strings.Contains(string(e.Data()), name)
			})
		})
	}
	await("broken")
	s.api.Put(t, "machines", due("lost"))
	await("lost")
}

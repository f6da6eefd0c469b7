package resyncrequest

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// TestNewRequest names the objects that are due, unless they are too many: then resync reads all.
func TestNewRequest(t *testing.T) {
	t.Parallel()
	for due, want := range map[int]int{1: 1, mostNamed: mostNamed, mostNamed + 1: 0} {
		e, err := newRequest(7, machines("vm", due))
		if err != nil {
			t.Fatal(err)
		}
		var data events.ResyncRequested
		if err := e.DataAs(&data); err != nil {
			t.Fatal(err)
		}
		if len(data.Objects) != want {
			t.Errorf("request %s for %d objects names %d, want %d", e.ID(), due, len(data.Objects), want)
		}
		if want > 0 && data.Objects[0] != (events.DueObject{Kind: "Machine", Namespace: "team-a", Name: "vm-0"}) {
			t.Errorf("the request names %+v first", data.Objects[0])
		}
	}
}

// TestRequestID gives requests of several replicas the same id only if they say the same in the same period.
func TestRequestID(t *testing.T) {
	t.Parallel()
	id := func(period int64, due []events.DueObject) string {
		e, err := newRequest(period, due)
		if err != nil {
			t.Fatal(err)
		}
		return e.ID()
	}
	first := id(7, machines("vm", 1))
	if id(7, machines("vm", 1)) != first {
		t.Error("the same request has another id")
	}
	if id(7, machines("vm", 2)) == first || id(8, machines("vm", 1)) == first {
		t.Error("another request has the same id")
	}
}

// machines returns references to so many Machines.
func machines(prefix string, count int) (all []events.DueObject) {
	for i := range count {
		all = append(all, events.DueObject{Kind: string(inventory.KindMachine), Namespace: "team-a", Name: fmt.Sprint(prefix, "-", i)})
	}
	return all
}

// TestRequestsOncePerPeriod lets objects become due one after another, and requires that a request names each of them once in a period, and
// soon, although others stay due.
func TestRequestsOncePerPeriod(t *testing.T) {
	t.Parallel()
	b := &broker{refuses: true}
	server := httptest.NewServer(b)
	t.Cleanup(server.Close)
	store := inventory.NewStore("test")
	r := &Requester{
		Store: store, Period: time.Minute, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		Broker: events.NewSender(func(context.Context) (string, error) { return server.URL, nil }),
	}
	start := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	for _, step := range []struct {
		reason string
		after  time.Duration
		// due become due.
		due []events.DueObject
		// want are the numbers of objects that requests name, and wait is the time until the next search.
		want []int
		wait time.Duration
	}{
		{"nothing is due", 0, nil, nil, 0},
		{"the Broker does not accept the request", 2 * time.Second, machines("broken", 1), nil, retryInterval},
		{"an object is due that nothing repairs", 12 * time.Second, nil, []int{1}, requestInterval},
		{"nothing else is due", 17 * time.Second, nil, nil, 0},
		{"the events of others were lost", 18 * time.Second, machines("lost", 5), []int{5}, requestInterval},
		{"a request names each object once in a period", 59 * time.Second, nil, nil, 0},
		{"the next period names all that are still due", 60 * time.Second, nil, []int{6}, requestInterval},
		{"within a period no request has resync read all", 65 * time.Second, machines("many", mostNamed+10), []int{mostNamed}, requestInterval},
		{"the others follow", 70 * time.Second, nil, []int{10}, requestInterval},
		{"the first request of a period has resync read all", 120 * time.Second, nil, []int{0}, requestInterval},
		{"it covers all", 125 * time.Second, nil, nil, 0},
		{"an object that becomes due later is named", 126 * time.Second, machines("late", 1), []int{1}, requestInterval},
	} {
		for _, o := range step.due {
			store.Put(&inventory.Object{
				Kind: inventory.Kind(o.Kind), Key: inventory.Key{Namespace: o.Namespace, Name: o.Name}, UID: o.Name,
				Updated: start.Add(-time.Hour), Reconcile: &inventory.Reconcile{}, Facts: &inventory.Machine{},
			})
		}
		if wait := r.requestDue(t.Context(), start.Add(step.after)); wait != step.wait {
			t.Errorf("%s: the next search is after %s, want %s", step.reason, wait, step.wait)
		}
		if got := b.take(); !slices.Equal(got, step.want) {
			t.Errorf("%s: the requests name %d objects, want %d", step.reason, got, step.want)
		}
	}
	if len(slices.Compact(slices.Sorted(slices.Values(b.ids)))) != len(b.ids) {
		t.Errorf("requests have the same id: %v", b.ids)
	}
}

// broker records requests. It refuses the first one if refuses is set.
type broker struct {
	refuses bool
	ids     []string
	named   []int
}

func (b *broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e, err := cehttp.NewEventFromHTTPRequest(r)
	var data events.ResyncRequested
	if err != nil || e.DataAs(&data) != nil || b.refuses {
		b.refuses = false
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	b.ids, b.named = append(b.ids, e.ID()), append(b.named, len(data.Objects))
	w.WriteHeader(http.StatusAccepted)
}

// take returns the numbers of objects that the requests since the last call name.
func (b *broker) take() []int {
	defer func() { b.named = nil }()
	return b.named
}

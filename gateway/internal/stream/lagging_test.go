package stream_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// TestSlowClient stops reading for longer than the hub buffers frames. The client must have the
// present state in the end.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	r := w.connect("", stream.Filter{})
	r.until("synced")
	w.fallBehind()
	w.set("team-a", "end", "Running")
	for r.phases["end"] != "Running" {
		r.next()
	}
	for name, phase := range r.phases {
		if want := w.store.Current().Collection(inventory.TopicMachines).Find(name).Phase; want != phase {
			t.Errorf("%s is %s, the client has %s", name, want, phase)
		}
	}
}

// fallBehind publishes changes until a client that does not read lags.
func (w *world) fallBehind() {
	w.t.Helper()
	for n := 0; w.hub.Stats().Lagging == 0; n++ {
		if n > 200_000 {
			w.t.Fatal("the client never lagged")
		}
		w.set("team-a", fmt.Sprintf("m%d", n%50), fmt.Sprintf("Phase%d", n))
	}
}

// TestCountsComeWithTheSnapshot reads the stream of a new client and of one that has lagged. Values
// without a topic are within the snapshots, so that they are not taken for changes.
func TestCountsComeWithTheSnapshot(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	w.hub.SendDeliveries(map[string]map[string]uint64{"create-vm": {"done": 3}})
	r := w.connect("", stream.Filter{})
	all := func() []string {
		var order []string
		for {
			event, _ := r.next()
			order = append(order, event)
			if event == "synced" {
				return order[slices.Index(order, "snapshot"):]
			}
		}
	}
	want := slices.Repeat([]string{"snapshot"}, len(inventory.Topics))
	want = append(want, "summary", "deliveries", "synced")
	if diff := cmp.Diff(want, all()); diff != "" {
		t.Errorf("a new client (-want +got):\n%s", diff)
	}
	w.fallBehind()
	if diff := cmp.Diff(want, all()); diff != "" {
		t.Errorf("a client that has lagged (-want +got):\n%s", diff)
	}
}

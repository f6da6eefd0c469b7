package stream_test

import (
	"fmt"
	"testing"

	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// largest is the size of a frame that a connection of 100 kbit/s transfers in less than a heartbeat of 4 s.
const largest = 40 << 10

// TestFramesAreBounded connects to 1,000 machines and then changes and deletes all at once. No frame is so large that a slow connection
// seems dead meanwhile, and a client that is cut off between the frames of one change does not resume after the change.
func TestFramesAreBounded(t *testing.T) {
	t.Parallel()
	const machines = 1000
	w := newWorld(t, stream.Limits{})
	putAll := func(phase string) {
		for i := range machines {
			w.put("team-a", fmt.Sprintf("machine-%04d", i), phase)
		}
		w.publish()
	}
	putAll("Creating")
	r := w.connect("", stream.Filter{})
	r.until("synced")
	if r.longest > largest || len(r.phases) != machines {
		t.Errorf("the snapshot has %d machines, and a frame of %d bytes", len(r.phases), r.longest)
	}
	readChange := func(what string) {
		t.Helper()
		before, parts := r.lastID, 0
		for {
			event, _ := r.next()
			if event == "patch" {
				parts++
			}
			if event == "summary" {
				break
			}
			if r.lastID != before && parts == 1 {
				t.Errorf("%s: the first of several frames has the identifier", what)
			}
		}
		if r.longest > largest || parts < 2 {
			t.Errorf("%s: %d frames, of up to %d bytes", what, parts, r.longest)
		}
	}
	putAll("Running")
	readChange("changes")
	for name, phase := range r.phases {
		if phase != "Running" {
			t.Fatalf("machine %s is %s after the changes", name, phase)
		}
	}
	for i := range machines {
		w.store.Remove(inventory.KindMachine, inventory.Key{Namespace: "team-a", Name: fmt.Sprintf("machine-%04d", i)})
	}
	w.publish()
	r.until("summary")
	if r.longest > largest || len(r.phases) != 0 {
		t.Errorf("%d machines are left, and a frame has %d bytes", len(r.phases), r.longest)
	}
}

package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/gateway/internal/history"
)

func TestTimeline(t *testing.T) {
	t.Parallel()
	s := start(t)
	furnish(t, s)
	out := s.get("/api/v1/clusters/uid-shop/timeline").object(t)
	var got []string
	for _, one := range out["spans"].([]any) {
		span := one.(map[string]any)
		step, _ := span["step"].(string)
		done := "done"
		if span["end"] == nil {
			done = "open"
		}
		line := fmt.Sprintf("%v %v %v %v %s", span["layer"], span["topic"], span["name"], step, done)
		if step != "" && span["end"] != nil {
			line += fmt.Sprintf(" %v", span["seconds"])
		}
		got = append(got, line)
	}
	want := []string{
		"1 networks net  open", "2 addresses shop-cp-0  open",
		"3 machines shop-cp-0  open", "3 machines shop-cp-1  open", "3 machines shop-cp-2  open",
		"4 clusters shop  open", "4 clusters shop MachinesRunning done 20", "4 clusters shop Bootstrapped done 10", "4 clusters shop NodesReady open",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
}

// TestTimelineEvents reads the events of a cluster, and not those of one that had its
// name before. Where there are too many it says so.
func TestTimelineEvents(t *testing.T) {
	t.Parallel()
	const maxTimelineEvents = 500
	s := start(t)
	s.api.Put(t, "kubernetesclusters", aCluster("team-a", "shop", "Running"))
	eventually(t, "the cluster", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "1" })
	happen := func(id string, at time.Time) history.Event {
		return history.Event{
			ID: id, Source: "/test", Type: "infrastructure.machine.created", Time: at,
			Object: history.Object{Kind: "Machine", Namespace: "team-a", Name: id}, Cluster: "shop", Data: json.RawMessage("{}"),
		}
	}
	write := func(all ...history.Event) {
		t.Helper()
		if _, err := s.app.history.Write(t.Context(), history.Record{Events: all}); err != nil {
			t.Fatal(err)
		}
	}
	look := func() (ids []string, partial string) {
		t.Helper()
		out := s.get("/api/v1/clusters/uid-shop/timeline").object(t)
		for _, e := range out["events"].([]any) {
			if e := e.(map[string]any); e["source"] == "/test" {
				ids = append(ids, e["id"].(string))
			}
		}
		partial, _ = out["partial"].(string)
		return ids, partial
	}
	write(happen("former", born.Add(-time.Minute)), happen("first", born.Time), happen("second", born.Add(time.Minute)))
	ids, partial := look()
	if diff := cmp.Diff([]string{"first", "second"}, ids); diff != "" || partial != "" {
		t.Errorf("events (-want +got):\n%s\nleft out: %s", diff, partial)
	}
	var many []history.Event
	for n := range maxTimelineEvents {
		many = append(many, happen(fmt.Sprint("many-", n), born.Add(time.Hour)))
	}
	write(many...)
	if ids, partial := look(); len(ids) != maxTimelineEvents || ids[len(ids)-1] != many[maxTimelineEvents-1].ID || !strings.Contains(partial, "the newest 500") {
		t.Errorf("%d events up to %s, left out: %s", len(ids), ids[len(ids)-1], partial)
	}
}

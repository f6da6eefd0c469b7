package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events"
)

// requestFor returns the request of the gateway for some objects.
func requestFor(t *testing.T, id string, named ...events.DueObject) event.Event {
	t.Helper()
	e := event.New()
	e.SetID(id)
	e.SetSource("/gateway/resync")
	e.SetType(events.TypeResyncRequested)
	if err := e.SetData(event.ApplicationJSON, events.ResyncRequested{Objects: named}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestNamedObjects sends events for the named objects that need a reconcile, and reads no other object.
func TestNamedObjects(t *testing.T) {
	t.Parallel()
	const ready = `"status":{"machineCount":3,"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}`
	const queued = `"spec":{"networkNamespaceName":"net","networkConfigurationName":"%[1]s"},"status":{"phase":"Pending","observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"PoolExhausted"}]}`
	waiting := func(name, created string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"shop","name":"%[1]s","uid":"%[1]s","resourceVersion":"1","generation":1,"creationTimestamp":"%[2]s"},`+queued+`}`, name, created)
	}
	docs := map[string][]string{
		"machines": {`{"items":[{"metadata":{"namespace":"shop","name":"new","uid":"m1","resourceVersion":"1","generation":1}},
			{"metadata":{"namespace":"shop","name":"ready","uid":"m2","resourceVersion":"1","generation":1},` + ready + `},
			{"metadata":{"namespace":"shop","name":"other","uid":"m3","resourceVersion":"1","generation":1}},
			{"metadata":{"namespace":"shop","name":"fresh","uid":"m4","resourceVersion":"1","generation":1,"creationTimestamp":"2026-01-02T03:04:04Z"}}]}`},
		"machineproviders": {`{"items":[{"metadata":{"name":"kubevirt","uid":"p1","resourceVersion":"1","generation":1},` + ready + `}]}`},
		"ipallocations":    {`{"items":[` + waiting("young", "2026-01-02T02:00:00Z") + `,` + waiting("old", "2026-01-02T01:00:00Z") + `]}`},
	}
	in := func(kind, name string) events.DueObject {
		return events.DueObject{Kind: kind, Namespace: "shop", Name: name}
	}
	provider := events.DueObject{Kind: machineProvider, Name: "kubevirt"}
	for name, tc := range map[string]struct {
		reason string
		named  []events.DueObject
		want   sent
	}{
		"Due":      {"the other due Machine is not named", []events.DueObject{in(machine, "new")}, sent{"Machine/new m1.1.r1 for m1"}},
		"Meantime": {"it has become Ready since the gateway looked", []events.DueObject{in(machine, "ready")}, nil},
		"Deleted":  {"it does not exist any more", []events.DueObject{in(machine, "gone")}, nil},
		"Fresh":    {"the event of its creation may be in transit", []events.DueObject{in(machine, "fresh")}, nil},
		"Counted":  {"the gateway has counted its Machines", []events.DueObject{provider}, sent{"MachineProvider/kubevirt p1.1.r1 for p1"}},
		"Queued":   {"an address of the pool goes to the IPAllocation that has waited longest", []events.DueObject{in(ipAllocation, "young"), in(ipAllocation, "old")}, sent{"IPAllocation/old old.1.r1 for old"}},
		"Several":  {"all kinds at once", []events.DueObject{in(ipAllocation, "old"), in(machine, "new"), provider}, sent{"IPAllocation/old old.1.r1 for old", "Machine/new m1.1.r1 for m1", "MachineProvider/kubevirt p1.1.r1 for p1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got sent
			var written []string
			f := &function{api: pages{docs, &written}, sender: &got, now: func() time.Time { return now }, grace: 20 * time.Second}
			if _, err := f.handle(t.Context(), requestFor(t, "r1", tc.named...)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(written) > 0 {
				t.Errorf("%s: wrote %v, and sent (-want +got):\n%s", tc.reason, written, diff)
			}
		})
	}
}

// TestNamedObjectsTakeTurns requests what a delivery has no time for with another event. Each object is read once, and gets
// one event.
func TestNamedObjectsTakeTurns(t *testing.T) {
	t.Parallel()
	const objects = 40
	d := newDeliveries(t, startLargeServer(t, 1000, time.Second), 4)
	var named []events.DueObject
	for i := range objects {
		named = append(named, events.DueObject{Kind: machine, Namespace: "t0000", Name: fmt.Sprintf("o%07d", i)})
	}
	d.queue = append(d.queue, requestFor(t, "r1", named...))
	d.deliver()
	for _, o := range named {
		if got := d.ids["Machine t0000/"+o.Name]; len(got) != 1 {
			t.Errorf("Machine %s got events %v, want one", o.Name, got)
		}
	}
	if got := d.server.lists.Load(); got != objects || len(d.ids) != objects {
		t.Errorf("%d reads and events for %d objects, want %d of both", got, len(d.ids), objects)
	}
	if limit := sliceLimit + 2*time.Second; d.count < 2 || d.longest > limit {
		t.Errorf("%d deliveries, the longest of %s, want several of at most %s", d.count, d.longest, limit)
	}
}

// TestInvalidRequest refuses a request for what no object can be.
func TestInvalidRequest(t *testing.T) {
	t.Parallel()
	broken := requestFor(t, "r1")
	broken.DataEncoded = []byte(`{"objects":1}`)
	for reason, in := range map[string]event.Event{
		"a kind that is never due":               requestFor(t, "r1", events.DueObject{Kind: "Secret", Namespace: "shop", Name: "keys"}),
		"a name that selects something else":     requestFor(t, "r1", events.DueObject{Kind: machine, Namespace: "shop", Name: "a/b"}),
		"a namespace that is a path":             requestFor(t, "r1", events.DueObject{Kind: machine, Namespace: "../x", Name: "a"}),
		"a field selector for all other objects": requestFor(t, "r1", events.DueObject{Kind: machine, Namespace: "shop"}),
		"data of another type":                   broken,
	} {
		f := &function{api: pages{}, now: func() time.Time { return now }}
		if _, err := f.handle(t.Context(), in); !events.IsPermanent(err) {
			t.Errorf("%s: got %v, want a permanent error", reason, err)
		}
	}
}

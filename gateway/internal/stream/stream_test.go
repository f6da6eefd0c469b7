package stream_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/stream"
)

// world is a store with its hub.
type world struct {
	t       *testing.T
	store   *inventory.Store
	hub     *stream.Hub
	version int
}

func newWorld(t *testing.T, limits stream.Limits) *world {
	t.Helper()
	if limits.Heartbeat == 0 {
		limits.Heartbeat = time.Hour
	}
	if limits.Clients == 0 {
		limits.Clients, limits.ClientsPerAddress = 100, 100
	}
	s := inventory.NewStore("epoch")
	w := &world{t: t, store: s, hub: stream.NewHub(s.Current(), limits)}
	t.Cleanup(w.hub.Close)
	return w
}

// set sets the phase of a machine and publishes it.
func (w *world) set(namespace, name, phase string) {
	w.t.Helper()
	w.put(namespace, name, phase)
	w.publish()
}

func (w *world) publish() { w.hub.Publish(w.store.Commit(time.Unix(0, 0))) }

// put sets the phase of a machine.
func (w *world) put(namespace, name, phase string) {
	w.t.Helper()
	w.version++
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(w.version),
	}}
	m.Status.Phase = v1alpha1.MachinePhase(phase)
	o, err := inventory.FromKubernetes(m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.Put(o)
}

// reader is a client of the stream.
type reader struct {
	t    *testing.T
	conn net.Conn
	scan *bufio.Scanner
	done chan struct{}
	// phases has the phases that the client knows.
	phases map[string]string
	lastID string
	// longest is the size of the largest data of one event.
	longest int
}

func (w *world) connect(lastID string, filter stream.Filter) *reader {
	w.t.Helper()
	return w.connectWhile(func() bool { return true }, lastID, filter)
}

// connectWhile connects a client that has access as long as allowed returns true.
func (w *world) connectWhile(allowed func() bool, lastID string, filter stream.Filter) *reader {
	w.t.Helper()
	c, err := w.hub.Subscribe("10.0.0.1", lastID, filter)
	if err != nil {
		w.t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		w.t.Fatal(err)
	}
	r := &reader{t: w.t, conn: near, scan: bufio.NewScanner(near), done: make(chan struct{}), phases: map[string]string{}}
	r.scan.Buffer(nil, 16<<20)
	go func() {
		defer close(r.done)
		c.Serve(far, nil, allowed)
		_ = far.Close()
	}()
	w.t.Cleanup(func() { _ = near.Close(); <-r.done })
	_ = near.SetReadDeadline(time.Now().Add(20 * time.Second))
	return r
}

// next reads one event and applies it.
func (r *reader) next() (event string, data map[string]any) {
	r.t.Helper()
	for r.scan.Scan() {
		line := r.scan.Text()
		switch {
		case strings.HasPrefix(line, "id: "):
			r.lastID = line[4:]
		case strings.HasPrefix(line, "event: "):
			event = line[7:]
		case strings.HasPrefix(line, "data: "):
			r.longest = max(r.longest, len(line))
			if err := json.Unmarshal([]byte(line[6:]), &data); err != nil {
				r.t.Fatalf("data of %s: %v", event, err)
			}
		case line == "" && event != "":
			r.apply(event, data)
			return event, data
		}
	}
	r.t.Fatalf("the stream ended: %v", r.scan.Err())
	return "", nil
}

func (r *reader) apply(event string, data map[string]any) {
	upserts, _ := data["upserts"].([]any)
	if event == "snapshot" && data["topic"] == "machines" {
		if data["part"] == 0.0 {
			clear(r.phases)
		}
		upserts, _ = data["items"].([]any)
	}
	for _, u := range upserts {
		item := u.(map[string]any)
		r.phases[item["name"].(string)] = item["phase"].(string)
	}
	removes, _ := data["removes"].([]any)
	for _, id := range removes {
		delete(r.phases, id.(string))
	}
}

// until reads up to an event.
func (r *reader) until(event string) map[string]any {
	r.t.Helper()
	for {
		if got, data := r.next(); got == event {
			return data
		}
	}
}

func TestSnapshotThenPatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	w.set("team-a", "m1", "Pending")
	r := w.connect("", stream.Filter{})
	if hello := r.until("hello"); hello["resumed"] != false || hello["epoch"] != "epoch" {
		t.Errorf("hello: %v", hello)
	}
	r.until("synced")
	if r.phases["m1"] != "Pending" {
		t.Errorf("the snapshot has %v", r.phases)
	}
	w.set("team-a", "m1", "Running")
	r.until("patch")
	r.until("summary")
	if r.phases["m1"] != "Running" {
		t.Errorf("after the patch: %v", r.phases)
	}
	w.store.Remove(inventory.KindMachine, inventory.Key{Namespace: "team-a", Name: "m1"})
	w.publish()
	r.until("patch")
	if len(r.phases) != 0 {
		t.Errorf("after the removal: %v", r.phases)
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	w.set("team-a", "m1", "Pending")
	first := w.connect("", stream.Filter{})
	first.until("synced")
	_ = first.conn.Close()
	<-first.done
	w.set("team-a", "m1", "Creating")
	w.set("team-a", "m1", "Running")
	cases := map[string]struct {
		reason  string
		lastID  string
		resumes bool
	}{
		"Gap":     {reason: "the missed changes are buffered", lastID: first.lastID, resumes: true},
		"Epoch":   {reason: "another process has no buffer for it", lastID: "other-1"},
		"Future":  {reason: "the position was never sent", lastID: "epoch-99999"},
		"Garbage": {reason: "the text is no position", lastID: "<script>"},
		"None":    {reason: "a new client has no position", lastID: ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := w.connect(tc.lastID, stream.Filter{})
			r.t = t
			if got := r.until("hello")["resumed"]; got != tc.resumes {
				t.Errorf("%s: resumed is %v", tc.reason, got)
			}
			if tc.resumes {
				r.until("patch")
				if r.phases["m1"] != "Creating" {
					t.Errorf("%s: the first missed change is %v", tc.reason, r.phases)
				}
				r.until("patch")
			} else {
				r.until("synced")
			}
			if r.phases["m1"] != "Running" {
				t.Errorf("%s: ends with %v", tc.reason, r.phases)
			}
		})
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	w.set("team-a", "a1", "Pending")
	w.set("team-b", "b1", "Pending")
	topics, unknown := stream.ParseTopics("machines,events")
	if unknown != "" {
		t.Fatal(unknown)
	}
	r := w.connect("", stream.Filter{Topics: topics, Namespace: "team-a"})
	r.until("synced")
	w.set("team-b", "b1", "Running")
	w.hub.SendEvent("team-b", []byte(`{"name":"b"}`))
	w.set("team-a", "a1", "Running")
	w.hub.SendEvent("team-a", []byte(`{"name":"a"}`))
	if event := r.until("event"); event["name"] != "a" {
		t.Errorf("an event of another namespace arrived: %v", event)
	}
	if len(r.phases) != 1 || r.phases["a1"] != "Running" {
		t.Errorf("the client of team-a has %v", r.phases)
	}
	if _, unknown := stream.ParseTopics("machines,nonsense"); unknown != "nonsense" {
		t.Errorf("unknown topic: %q", unknown)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{Clients: 2, ClientsPerAddress: 1})
	if _, err := w.hub.Subscribe("a", "", stream.Filter{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.hub.Subscribe("a", "", stream.Filter{}); !errors.Is(err, stream.ErrFullForAddress) {
		t.Errorf("a second client of one address: %v", err)
	}
	if _, err := w.hub.Subscribe("b", "", stream.Filter{}); err != nil {
		t.Errorf("a client of another address: %v", err)
	}
	if _, err := w.hub.Subscribe("c", "", stream.Filter{}); !errors.Is(err, stream.ErrFull) {
		t.Errorf("a client above the limit: %v", err)
	}
}

func TestLeaversAreNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{Clients: 1, ClientsPerAddress: 1})
	r := w.connect("", stream.Filter{})
	r.until("synced")
	_ = r.conn.Close()
	select {
	case <-r.done:
	case <-time.After(3 * time.Minute):
		t.Fatal("the client has disconnected, but the hub writes to it")
	}
	if n := w.hub.Stats().Clients; n != 0 {
		t.Errorf("%d clients are left", n)
	}
}

func TestHeartbeatAndShutdown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{Heartbeat: 20 * time.Millisecond})
	r := w.connect("", stream.Filter{Topics: map[string]bool{"clusters": true}})
	r.until("synced")
	w.set("team-a", "m1", "Running")
	r.until("heartbeat")
	r.until("heartbeat")
	if r.lastID != "epoch-2" {
		t.Errorf("after a heartbeat the position is %s, want epoch-2", r.lastID)
	}
	w.hub.Close()
	r.until("shutdown")
	<-r.done
	if _, err := w.hub.Subscribe("a", "", stream.Filter{}); !errors.Is(err, stream.ErrClosed) {
		t.Errorf("subscribe after the end: %v", err)
	}
}

// TestEndOfPermission revokes the permission of a client that gets events all the time and is never
// idle.
func TestEndOfPermission(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{Heartbeat: 20 * time.Millisecond})
	var allowed atomic.Bool
	allowed.Store(true)
	r := w.connectWhile(allowed.Load, "", stream.Filter{})
	r.until("synced")
	r.until("heartbeat")
	r.until("heartbeat")
	allowed.Store(false)
	go func() { _, _ = io.Copy(io.Discard, r.conn) }()
	deadline := time.After(3 * time.Minute)
	for n := 0; ; n++ {
		w.set("team-a", "m1", fmt.Sprintf("Phase%d", n))
		select {
		case <-r.done:
			return
		case <-deadline:
			t.Fatal("the client still gets every event")
		default:
		}
	}
}

// TestDeliveries sends the delivery counters of functions: once to connected clients, and to later
// ones at their start.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, stream.Limits{})
	countsUntil := func(r *reader, until string) (counts []any) {
		for {
			event, data := r.next()
			if event == "deliveries" {
				counts = append(counts, data["create-vm"])
			}
			if event == until {
				return counts
			}
		}
	}
	early := w.connect("", stream.Filter{})
	if got := countsUntil(early, "synced"); got != nil {
		t.Errorf("before the first count: %v", got)
	}
	for range 2 {
		w.hub.SendDeliveries(map[string]map[string]uint64{"create-vm": {"done": 3, "retry": 1}})
	}
	w.set("a", "m", "Running")
	want := []any{map[string]any{"done": 3.0, "retry": 1.0}}
	if diff := cmp.Diff(want, countsUntil(early, "patch")); diff != "" {
		t.Errorf("a connected client (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, countsUntil(w.connect("", stream.Filter{}), "synced")); diff != "" {
		t.Errorf("a later client (-want +got):\n%s", diff)
	}
}

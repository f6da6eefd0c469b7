package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
)

const perNamespace = 1000

// largeServer is a simulated API server with many objects of four resources in namespaces of
// perNamespace objects. Each list takes time on its clock.
type largeServer struct {
	*httptest.Server
	t        *testing.T
	objects  int
	pageTime time.Duration
	clock    atomic.Int64
	lists    atomic.Int64

	mu     sync.Mutex
	leases map[string]map[string]any // of rounds
	// versions counts the writes.
	versions int
	// compactions counts how often all continue tokens have expired. hints is whether the answer to an
	// expired token contains another one.
	compactions int
	hints       bool
	// withAddresses makes the IPAllocations Ready with an address. Those whose Lease has another holder have lost theirs.
	withAddresses bool
}

func startLargeServer(t *testing.T, objects int, pageTime time.Duration) *largeServer {
	t.Helper()
	s := &largeServer{t: t, objects: objects, pageTime: pageTime, leases: map[string]map[string]any{}}
	s.clock.Store(now.UnixNano())
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *largeServer) now() time.Time { return time.Unix(0, s.clock.Load()).UTC() }

func (s *largeServer) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.compactions++
}

func (s *largeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch last := parts[len(parts)-1]; {
	case strings.Contains(r.URL.Path, "/configmaps/"):
		_, _ = fmt.Fprint(w, `{"metadata":{"name":"orphans","namespace":"vitistack-system"}}`)
	case strings.Contains(r.URL.Path, "/namespaces/vitistack-system/leases"):
		s.serveRound(w, r, last)
	case r.Method == http.MethodGet:
		s.serveList(w, r, last)
	default:
		http.NotFound(w, r)
	}
}

func (s *largeServer) status(w http.ResponseWriter, code int, reason, next string) {
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","metadata":{"continue":%q},"reason":%q,"code":%d}`, next, reason, code)
}

// serveRound serves the Leases of rounds, whose writes compare the resourceVersion.
func (s *largeServer) serveRound(w http.ResponseWriter, r *http.Request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		if s.leases[name] == nil {
			s.status(w, 404, "NotFound", "")
			return
		}
		_ = json.NewEncoder(w).Encode(s.leases[name])
		return
	}
	var l map[string]any
	_ = json.NewDecoder(r.Body).Decode(&l)
	meta := l["metadata"].(map[string]any)
	name = meta["name"].(string)
	switch held := s.leases[name]; {
	case r.Method == http.MethodPost && held != nil:
		s.status(w, 409, "AlreadyExists", "")
		return
	case r.Method == http.MethodPut && held["metadata"].(map[string]any)["resourceVersion"] != meta["resourceVersion"]:
		s.status(w, 409, "Conflict", "")
		return
	}
	s.versions++
	meta["resourceVersion"] = strconv.Itoa(s.versions)
	s.leases[name] = l
	_ = json.NewEncoder(w).Encode(l)
}

// serveList serves a page of a list, whose token is the number of compactions and the place.
func (s *largeServer) serveList(w http.ResponseWriter, r *http.Request, resource string) {
	s.clock.Add(int64(s.pageTime))
	s.lists.Add(1)
	query := r.URL.Query()
	first, end := 0, s.objects
	if _, namespace, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		number, _ := strconv.Atoi(strings.TrimPrefix(strings.Split(namespace, "/")[0], "t"))
		first, end = number*perNamespace, min(end, (number+1)*perNamespace)
	}
	switch resource {
	case "machines", "networkconfigurations", "ipallocations":
	case "leases":
		if !strings.Contains(query.Get("labelSelector"), "managed-by=allocate-ip,vitistack.io/holder") {
			end = 0
		}
	default:
		end = 0
	}
	s.mu.Lock()
	compactions, hints := s.compactions, s.hints
	s.mu.Unlock()
	if token := query.Get("continue"); token != "" {
		state, place, _ := strings.Cut(token, ".")
		if state != strconv.Itoa(compactions) && state != "any" {
			next := ""
			if hints {
				next = "any." + place
			}
			s.status(w, 410, "Expired", next)
			return
		}
		first, _ = strconv.Atoi(place)
	}
	if name, ok := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=o"); ok {
		first, _ = strconv.Atoi(name)
		end = min(end, first+1)
	}
	limit, _ := strconv.Atoi(query.Get("limit"))
	last, next := min(first+limit, end), ""
	if last < end {
		next = fmt.Sprintf("%d.%d", compactions, last)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `{"metadata":{"continue":%q},"items":[`, next)
	for i := first; i < last; i++ {
		if i > first {
			b.WriteByte(',')
		}
		b.WriteString(s.document(resource, i))
	}
	b.WriteString(`]}`)
	_, _ = fmt.Fprint(w, b.String())
}

// document returns an object that needs a reconcile, or a Lease. The holder of one Lease in each
// namespace does not exist.
func (s *largeServer) document(resource string, i int) string {
	uid := fmt.Sprintf("%s-%d", resource, i)
	if resource == "ipallocations" && s.withAddresses {
		return fmt.Sprintf(`{"metadata":{"namespace":"t%04d","name":"o%07d","uid":%q,"resourceVersion":"1","generation":1},"status":{"phase":"Allocated","address":"10.0.0.%d","observedGeneration":1,`+
			`"conditions":[{"type":"Ready","status":"True"}]}}`, i/perNamespace, i, uid, i)
	}
	if resource != "leases" {
		return fmt.Sprintf(`{"metadata":{"namespace":"t%04d","name":"o%07d","uid":%q,"resourceVersion":"1","generation":1}}`, i/perNamespace, i, uid)
	}
	holder := fmt.Sprintf("ipallocations-%d", i)
	if i%perNamespace == 7 {
		holder = "gone"
	}
	return fmt.Sprintf(`{"metadata":{"namespace":"t%04d","name":"o%07d","uid":%q,"resourceVersion":"1","creationTimestamp":"2026-01-02T03:00:00Z","labels":{"vitistack.io/holder":%q},"annotations":{"vitistack.io/address":"10.0.0.%d"}}}`, i/perNamespace, i, uid, holder, i)
}

var errKilled = errors.New("killed")

// deliveries is a Broker that delivers one event at a time, and the function that it delivers to.
type deliveries struct {
	t      *testing.T
	server *largeServer
	client *kube.Client
	limit  int
	queue  []event.Event
	// ids counts the events for each object by event ID.
	ids map[string]map[string]int
	// calls counts the calls of the function. The call killAt is the last of its delivery, and has its
	// effect if afterEffect is set.
	calls, killAt int
	afterEffect   bool
	killed        bool
	// count is the number of deliveries, and longest the duration of the longest on the server's
	// clock.
	count   int
	longest time.Duration
}

func newDeliveries(t *testing.T, s *largeServer, limit int) *deliveries {
	t.Helper()
	client, err := kube.New(&rest.Config{Host: s.URL, QPS: -1}, "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme,
		kube.Kinds(corev1.SchemeGroupVersion, &corev1.ConfigMap{}), kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}))
	if err != nil {
		t.Fatal(err)
	}
	return &deliveries{t: t, server: s, client: client, limit: limit, ids: map[string]map[string]int{}}
}

// call makes a call unless the function is dead or dies at this call.
func (d *deliveries) call(effect func() error) error {
	d.calls++
	if d.killed {
		return errKilled
	}
	if d.killed = d.calls == d.killAt; d.killed && !d.afterEffect {
		return errKilled
	}
	err := effect()
	if d.killed {
		return errKilled
	}
	return err
}

func (d *deliveries) Send(_ context.Context, e event.Event) error {
	return d.call(func() error {
		if e.Type() == events.TypeResyncContinued || e.Type() == events.TypeResyncRequested {
			d.queue = append(d.queue, e)
			return nil
		}
		ref, err := events.RefOf(e)
		object := ref.Kind + " " + ref.Namespace + "/" + ref.Name
		if d.ids[object] == nil {
			d.ids[object] = map[string]int{}
		}
		d.ids[object][e.ID()]++
		return err
	})
}

func (d *deliveries) ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	page.Limit = d.limit
	return d.call(func() error { return d.client.ListInto(ctx, resource, page, list) })
}

func (d *deliveries) Get(ctx context.Context, namespace, name string, obj kube.Object) error {
	return d.call(func() error { return d.client.Get(ctx, namespace, name, obj) })
}

func (d *deliveries) Create(ctx context.Context, obj kube.Object) error {
	return d.call(func() error { return d.client.Create(ctx, obj) })
}

func (d *deliveries) Update(ctx context.Context, obj kube.Object) error {
	return d.call(func() error { return d.client.Update(ctx, obj) })
}

func (d *deliveries) Merge(context.Context, kube.Object, map[string]any) error {
	return d.call(func() error { return nil })
}

func (d *deliveries) ping(id string) {
	d.queue = append(d.queue, newPing("vitistack-system", id))
}

// deliverOne delivers the first event, and puts it behind the others if it fails.
func (d *deliveries) deliverOne() {
	d.t.Helper()
	in, before := d.queue[0], d.server.now()
	d.queue, d.killed = d.queue[1:], false
	f := &function{api: d, sender: d, now: d.server.now, namespace: "vitistack-system"}
	if _, err := f.handle(d.t.Context(), in); err != nil {
		if events.IsPermanent(err) {
			d.t.Fatal(err)
		}
		d.queue = append(d.queue, in)
	}
	d.count++
	d.longest = max(d.longest, d.server.now().Sub(before))
}

// deliver delivers events until none is left.
func (d *deliveries) deliver() {
	d.t.Helper()
	for deadline := d.count + 1000; len(d.queue) > 0; {
		if d.deliverOne(); d.count > deadline {
			d.t.Fatal("the round does not complete")
		}
	}
}

// expectTurns expects an event of one ID for each object and each Lease without a holder, and no
// running round. Each event was sent at most times.
func (d *deliveries) expectTurns(times int) {
	d.t.Helper()
	for i := range d.server.objects {
		for _, kind := range []string{"IPAllocation", "NetworkConfiguration", "Machine", "Lease"} {
			want := 1
			if kind == "Lease" && i%perNamespace != 7 {
				want = 0
			}
			object := fmt.Sprintf("%s t%04d/o%07d", kind, i/perNamespace, i)
			if len(d.ids[object]) != want {
				d.t.Fatalf("%s got events %v, want %d", object, d.ids[object], want)
			}
			for id, n := range d.ids[object] {
				if n > times {
					d.t.Fatalf("event %s was sent %d times", id, n)
				}
			}
		}
	}
	if spec := d.server.leases[leaseFull]["spec"].(map[string]any); spec["holderIdentity"] != nil {
		d.t.Errorf("a round still runs: %v", spec)
	}
}

// TestLargeRound reads 400,000 objects in 800 pages of 40 ms, which is longer than a delivery may
// take. Each object is handled once, although another ping arrives and tokens expire.
func TestLargeRound(t *testing.T) {
	t.Parallel()
	s := startLargeServer(t, 100_000, 40*time.Millisecond)
	d := newDeliveries(t, s, pageSize)
	d.ping("one")
	d.deliverOne()
	d.ping("two")
	d.deliver()
	d.expectTurns(1)
	if d.longest > sliceDuration+time.Second {
		t.Errorf("a delivery took %s, want about %s", d.longest, sliceDuration)
	}
	if took := s.now().Sub(now); took < 32*time.Second || s.lists.Load() < 800 || d.count < 7 {
		t.Errorf("the round took %s, %d pages and %d deliveries: it is not the large one", took, s.lists.Load(), d.count)
	}
	t.Logf("%s, %d pages, %d deliveries, the longest %s", s.now().Sub(now), s.lists.Load(), d.count, d.longest)
}

// TestLargeRoundWithLostLeases has 100,000 IPAllocations, and the Leases of some addresses do not exist. Resync sends events for the IPAllocations of
// these addresses only, and no delivery is longer than a slice.
func TestLargeRoundWithLostLeases(t *testing.T) {
	t.Parallel()
	s := startLargeServer(t, 100_000, 40*time.Millisecond)
	s.withAddresses = true
	d := newDeliveries(t, s, pageSize)
	d.ping("one")
	d.deliver()
	for i := range s.objects {
		want := 0
		if i%perNamespace == 7 {
			want = 1
		}
		if object := fmt.Sprintf("IPAllocation t%04d/o%07d", i/perNamespace, i); len(d.ids[object]) != want {
			t.Fatalf("%s got events %v, want %d", object, d.ids[object], want)
		}
	}
	if d.longest > sliceDuration+time.Second {
		t.Errorf("a delivery took %s, want about %s", d.longest, sliceDuration)
	}
}

// TestKilled kills the function at each of its calls, before and after the effect of the call. The
// Broker redelivers the event, and every object is handled.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, afterEffect := range []bool{false, true} {
		t.Run(strconv.FormatBool(afterEffect), func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				d := newDeliveries(t, startLargeServer(t, 8, 3*time.Second), 3)
				d.killAt, d.afterEffect = at, afterEffect
				d.ping("one")
				d.deliver()
				// A kill after the round has completed runs the same round again.
				d.expectTurns(2)
				if d.calls < at {
					return
				}
			}
		})
	}
}

// TestExpiredTokens lets all tokens expire between two slices and within one.
func TestExpiredTokens(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		hints  bool
	}{
		"Hint":    {"the answer of the API server has the token with which the list continues", true},
		"Restart": {"the list starts again, and skips the objects that were handled", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startLargeServer(t, 40, time.Second)
			s.hints = tc.hints
			d := newDeliveries(t, s, 4)
			d.ping("one")
			for len(d.queue) > 0 {
				d.deliverOne()
				s.compact()
			}
			d.expectTurns(1)
			if d.count < 5 {
				t.Errorf("%s: only %d deliveries", tc.reason, d.count)
			}
		})
	}
}

// TestLostContinuation loses the event that continues a round. A ping within a minute does
// nothing, and a later one continues the round.
func TestLostContinuation(t *testing.T) {
	t.Parallel()
	s := startLargeServer(t, 40, time.Second)
	d := newDeliveries(t, s, 4)
	d.ping("one")
	d.deliverOne()
	lost := d.queue
	d.queue = nil
	sent := len(d.ids)
	d.ping("two")
	d.deliver()
	if len(d.ids) != sent {
		t.Fatal("a second round runs concurrently with the first one")
	}
	s.clock.Add(int64(leaseDuration))
	d.ping("three")
	d.deliver()
	d.expectTurns(1)
	calls := len(d.ids)
	d.queue = lost
	d.deliver()
	d.expectTurns(1)
	if len(d.ids) != calls {
		t.Error("a late continuation has run a slice again")
	}
	for object, ids := range d.ids {
		for id := range ids {
			if !strings.HasSuffix(id, ".one") {
				t.Fatalf("event %s of %s is not of the first round", id, object)
			}
		}
	}
}

// TestDuplicatedContinuation delivers each continuation twice, which runs no slice twice.
func TestDuplicatedContinuation(t *testing.T) {
	t.Parallel()
	d := newDeliveries(t, startLargeServer(t, 40, time.Second), 4)
	d.ping("one")
	for len(d.queue) > 0 {
		first := d.queue[0]
		d.deliverOne()
		if first.Type() == events.TypeResyncContinued {
			d.queue = append([]event.Event{first}, d.queue...)
			d.deliverOne()
		}
	}
	d.expectTurns(1)
}

// TestRequestedRound runs a requested round between the slices of a full round.
func TestRequestedRound(t *testing.T) {
	t.Parallel()
	d := newDeliveries(t, startLargeServer(t, 40, time.Second), 4)
	d.ping("full")
	d.deliverOne()
	asked := event.New()
	asked.SetID("asked")
	asked.SetType(events.TypeResyncRequested)
	d.queue = append(d.queue, asked)
	d.deliver()
	for i := range d.server.objects {
		object := fmt.Sprintf("Machine t0000/o%07d", i)
		if len(d.ids[object]) != 2 {
			t.Fatalf("%s got events %v, want one from each round", object, d.ids[object])
		}
	}
	for name, l := range d.server.leases {
		if l["spec"].(map[string]any)["holderIdentity"] != nil {
			t.Errorf("the round of Lease %s still runs", name)
		}
	}
}

func TestDecideTurn(t *testing.T) {
	t.Parallel()
	running := record{round: "r", renewed: now.Add(-time.Second), progress: progress{Slice: 3}}
	stale := running
	stale.renewed = now.Add(-leaseDuration)
	for name, tc := range map[string]struct {
		reason  string
		request request
		held    record
		want    sliceAction
	}{
		"First":      {"no round runs", request{round: "a"}, record{}, start},
		"Late":       {"its round has completed", request{round: "a", slice: 2}, record{}, ignore},
		"Next":       {"the Lease names it", request{round: "r", slice: 3}, running, resume},
		"Early":      {"the delivery that sent it has not written the Lease yet", request{round: "r", slice: 4}, running, wait},
		"Duplicate":  {"the slice is complete", request{round: "r", slice: 2}, running, ignore},
		"SamePing":   {"the first slice is complete", request{round: "r"}, running, ignore},
		"OtherPing":  {"a round runs", request{round: "b"}, running, ignore},
		"Overtaken":  {"another round runs", request{round: "b", slice: 3}, running, ignore},
		"Takeover":   {"the round makes no progress", request{round: "b"}, stale, resume},
		"StaleEvent": {"only a new request takes over", request{round: "b", slice: 3}, stale, ignore},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := decideSlice(tc.request, tc.held, now); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

// TestMissedSlots has a round that starts late include the Machines whose slots were missed.
func TestMissedSlots(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		gap    time.Duration
		want   int
	}{
		"Again":   {"a round of the same slot includes the same Machines", 0, 1},
		"Next":    {"each slot has its own Machines", fullRoundInterval, 1},
		"Skipped": {"a long round has skipped two pings", 3 * fullRoundInterval, 3},
		"Day":     {"no Machine is included twice", 24 * time.Hour, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slots := map[int64]bool{}
			for i := range 200 {
				var o object
				o.Metadata.UID = fmt.Sprint("uid-", i)
				if !isIncluded(o, longInterval, window{previous: now.Add(-tc.gap), start: now}) {
					continue
				}
				for n := range int64(longInterval / fullRoundInterval) {
					if isIncluded(o, longInterval, window{start: now.Add(time.Duration(n) * fullRoundInterval)}) {
						slots[n] = true
					}
				}
			}
			if len(slots) != tc.want {
				t.Errorf("%s: the Machines of %d slots are included, want %d", tc.reason, len(slots), tc.want)
			}
		})
	}
}

// TestTriggerTakesContinuations checks that the filters of resync's Trigger select the event that a
// slice sends.
func TestTriggerTakesContinuations(t *testing.T) {
	t.Parallel()
	manifest, err := os.ReadFile("../../knative/resync.yaml")
	if err != nil {
		t.Fatal(err)
	}
	e := continuation(true, "r", 1)
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	docs := strings.Split(string(manifest), "\n---\n")
	var trigger struct {
		Kind string
		Spec struct {
			Filters []struct {
				Any []struct{ Exact map[string]string }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(docs[len(docs)-1]), &trigger); err != nil || trigger.Kind != "Trigger" || len(trigger.Spec.Filters) != 1 {
		t.Fatalf("the last document is no Trigger with one filter: %+v, %v", trigger, err)
	}
	for _, f := range trigger.Spec.Filters[0].Any {
		if f.Exact["type"] == e.Type() && f.Exact["source"] == e.Source() {
			return
		}
	}
	t.Errorf("the Trigger does not select type %s from %s: %+v", e.Type(), e.Source(), trigger.Spec.Filters)
}

// TestInvalidContinuation rejects a continuation that resync has not sent.
func TestInvalidContinuation(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change func(*event.Event)
	}{
		"Slice":   {"the slice is no number", func(e *event.Event) { e.SetExtension(attributeSlice, "x") }},
		"Zero":    {"a ping has the first slice", func(e *event.Event) { e.SetExtension(attributeSlice, "0") }},
		"Round":   {"it names no round", func(e *event.Event) { e.SetExtension(attributeRound, "") }},
		"Subject": {"it names no Lease of resync", func(e *event.Event) { e.SetSubject("other") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := continuation(true, "r", 1)
			tc.change(&e)
			if _, err := parseRequest(e, "vitistack-system"); !events.IsPermanent(err) {
				t.Errorf("%s: got %v, want a permanent error", tc.reason, err)
			}
		})
	}
	if got, err := parseRequest(continuation(true, "r", 7), "vitistack-system"); err != nil || !reflect.DeepEqual(got, request{full: true, round: "r", slice: 7}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// chain records the objects of events, and the event that continues the round.
type chain struct {
	objects []string
	next    *event.Event
}

func (c *chain) Send(_ context.Context, e event.Event) error {
	if e.Type() == events.TypeResyncContinued {
		c.next = &e
		return nil
	}
	ref, err := events.RefOf(e)
	c.objects = append(c.objects, ref.Kind+"/"+ref.Name)
	return err
}

// TestRealSlices runs a slice for each object on a real API server, with its tokens and Leases.
func TestRealSlices(t *testing.T) {
	t.Parallel()
	r := newRounds(t)
	if err := r.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: v1alpha1.ConfigMapOrphans}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := r.client.Create(t.Context(), &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}); err != nil {
			t.Fatal(err)
		}
	}
	at, got, deliveries := time.Now(), &chain{}, 0
	f := &function{api: small{r.client}, sender: got, namespace: r.namespace, now: func() time.Time {
		at = at.Add(sliceDuration)
		return at
	}}
	ping := newPing(r.namespace, "one")
	for got.next = &ping; got.next != nil; deliveries++ {
		in := *got.next
		got.next = nil
		if _, err := f.handle(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if want := "Machine/a Machine/b Machine/c ConfigMap/orphans"; strings.Join(got.objects, " ") != want || deliveries < 3 {
		t.Errorf("got %v in %d deliveries, want %s in at least 3", got.objects, deliveries, want)
	}
	l := &coordinationv1.Lease{}
	if err := r.client.Get(t.Context(), r.namespace, leaseFull, l); err != nil || l.Spec.HolderIdentity != nil {
		t.Errorf("the round still runs: %+v, %v", l.Spec, err)
	}
}

package broker

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	"sigs.k8s.io/yaml"
)

const deadline = 20 * time.Second

// newEvent returns an event; changes are applied to it.
func newEvent(id string, changes ...func(*event.Event)) event.Event {
	e := event.New()
	e.SetID(id)
	e.SetType("thing.changed")
	e.SetSource("/test")
	e.SetSubject("things/" + id)
	_ = e.SetData(event.ApplicationJSON, map[string]string{"id": id})
	for _, change := range changes {
		change(&e)
	}
	return e
}

func withType(kind string) func(*event.Event) { return func(e *event.Event) { e.SetType(kind) } }

func withSubject(subject string) func(*event.Event) {
	return func(e *event.Event) { e.SetSubject(subject) }
}

func withExtension(name string, value any) func(*event.Event) {
	return func(e *event.Event) { e.SetExtension(name, value) }
}

// literal resolves destinations that are URLs.
func literal(d duckv1.Destination, _ string) (*url.URL, error) { return d.URI.URL(), nil }

// compile compiles a Trigger with a spec in YAML.
func compile(t *testing.T, name, spec string) Trigger {
	t.Helper()
	trigger := &eventingv1.Trigger{}
	trigger.Namespace, trigger.Name = "default", name
	if err := yaml.UnmarshalStrict([]byte("spec:\n  broker: default\n"+indent(spec)), trigger); err != nil {
		t.Fatal(err)
	}
	compiled, err := Compile(trigger, &eventingv1.Broker{}, literal)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ") + "\n"
}

// start returns a broker with the Triggers and a function that posts an event to its ingress.
func start(t *testing.T, triggers ...Trigger) (*Broker, func(event.Event)) {
	t.Helper()
	return startNear(t, nil, triggers...)
}

// startNear is start with a transport that gets requests before the network.
func startNear(t *testing.T, near http.RoundTripper, triggers ...Trigger) (*Broker, func(event.Event)) {
	t.Helper()
	b := New(slog.New(slog.NewTextHandler(io.Discard, nil)), near)
	b.SetTriggers(triggers)
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		server.Close()
		b.Close()
	})
	return b, func(e event.Event) {
		t.Helper()
		if code := post(t, server.URL, e); code != http.StatusAccepted {
			t.Fatalf("post %s: got %d, want 202", e.ID(), code)
		}
	}
}

func post(t *testing.T, url string, e event.Event) int {
	t.Helper()
	request, err := cehttp.NewHTTPRequestFromEvent(t.Context(), url, e)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	return response.StatusCode
}

// sink is a subscriber that records its events.
type sink struct {
	*httptest.Server
	mu     sync.Mutex
	events []event.Event
	header []http.Header
	times  []time.Time
}

// newSink starts a subscriber. answer gets the event and the number of earlier requests, and may be
// nil.
func newSink(t *testing.T, answer func(w http.ResponseWriter, e event.Event, n int)) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err != nil {
			t.Errorf("the sink got no event: %v", err)
			return
		}
		s.mu.Lock()
		n := len(s.events)
		s.events, s.header, s.times = append(s.events, *e), append(s.header, r.Header.Clone()), append(s.times, time.Now())
		s.mu.Unlock()
		if answer != nil {
			answer(w, *e, n)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// codes answers with the codes in turn, and then always with the last one.
func codes(list ...int) func(http.ResponseWriter, event.Event, int) {
	return func(w http.ResponseWriter, _ event.Event, n int) {
		code := list[min(n, len(list)-1)]
		w.WriteHeader(code)
		if code >= 400 {
			_, _ = fmt.Fprintf(w, "answer %d", code)
		}
	}
}

// replies answers with an event.
func replies(e event.Event) func(http.ResponseWriter, event.Event, int) {
	return func(w http.ResponseWriter, _ event.Event, _ int) {
		w.Header().Set("Content-Type", event.ApplicationCloudEventsJSON)
		_ = json.NewEncoder(w).Encode(e)
	}
}

func (s *sink) got() []event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.events)
}

func (s *sink) ids() []string {
	ids := []string{}
	for _, e := range s.got() {
		ids = append(ids, e.ID())
	}
	return ids
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !holds(); {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", deadline, what)
		}
		<-time.After(time.Millisecond)
	}
}

// awaitDelivered waits until no event is held.
func awaitDelivered(t *testing.T, b *Broker) {
	t.Helper()
	eventually(t, "the broker has delivered all events", func() bool { return b.held.Load() == 0 })
}

func TestFirstTriesKeepTheOrderOfTheirKey(t *testing.T) {
	t.Parallel()
	s := newSink(t, codes(http.StatusServiceUnavailable, http.StatusOK))
	b, send := start(t, compile(t, "t", `
subscriber: {uri: `+s.URL+`}
delivery: {retry: 3, backoffPolicy: exponential, backoffDelay: PT0.2S}`))
	var want []string
	for i := range 20 {
		id := fmt.Sprint(i)
		want = append(want, id)
		send(newEvent(id, withExtension("partitionkey", "one")))
	}
	want = append(want, "0") // the only event that was retried, after all others
	awaitDelivered(t, b)
	if diff := cmp.Diff(want, s.ids()); diff != "" {
		t.Errorf("order of requests (-want +got):\n%s", diff)
	}
}

func TestKeysDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := newSink(t, func(_ http.ResponseWriter, e event.Event, _ int) {
		if e.Subject() == "slow" {
			<-release
		}
	})
	b, send := start(t, compile(t, "t", "subscriber: {uri: "+s.URL+"}"))
	send(newEvent("a", withSubject("slow")))
	send(newEvent("b", withSubject("slow")))
	send(newEvent("c", withSubject("quick")))
	eventually(t, "the event of the other key is answered", func() bool { return b.Stats().Triggers[0].Delivered == 1 })
	if ids := s.ids(); slices.Contains(ids, "b") {
		t.Errorf("b was sent before a was answered: %v", ids)
	}
	stats := b.Stats().Triggers[0]
	if stats.InFlight != 1 || stats.Queued != 1 || stats.Received != 3 {
		t.Errorf("while a is in flight and b waits: %+v", stats)
	}
	close(release)
	awaitDelivered(t, b)
}

func TestReplyEntersAgain(t *testing.T) {
	t.Parallel()
	reply := newEvent("reply", withType("thing.done"))
	first := newSink(t, replies(reply))
	second := newSink(t, nil)
	b, send := start(t,
		compile(t, "first", "subscriber: {uri: "+first.URL+"}\nfilter: {attributes: {type: thing.changed}}"),
		compile(t, "second", "subscriber: {uri: "+second.URL+"}\nfilter: {attributes: {type: thing.done}}"))
	send(newEvent("cause"))
	awaitDelivered(t, b)
	if diff := cmp.Diff([]string{"reply"}, second.ids()); diff != "" {
		t.Fatalf("events at the second subscriber (-want +got):\n%s", diff)
	}
	if got := second.got()[0]; string(got.Data()) != string(reply.Data()) || got.Extensions()["knativearrivaltime"] == nil {
		t.Errorf("the reply arrived as %s", got)
	}
	if n := b.Stats().Received; n != 2 {
		t.Errorf("received %d events, want the event and its reply", n)
	}
}

func TestReplyLoopEnds(t *testing.T) {
	t.Parallel()
	s := newSink(t, replies(newEvent("again")))
	dead := newSink(t, nil)
	b, send := start(t, compile(t, "loop", "subscriber: {uri: "+s.URL+"}\ndelivery: {deadLetterSink: {uri: "+dead.URL+"}}"))
	send(newEvent("begin"))
	awaitDelivered(t, b)
	if n := len(s.got()); n != maxHops {
		t.Errorf("the loop ran %d times, want %d", n, maxHops)
	}
	for _, e := range s.got() {
		if e.Extensions()["knativebrokerttl"] != nil {
			t.Fatalf("a subscriber sees the hop count: %s", e)
		}
	}
	if diff := cmp.Diff([]string{"again"}, dead.ids()); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

func TestResponses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		body     string
		kind     string
		wantCode any // knativeerrorcode of the dead letter
	}{
		"Empty":     {reason: "an empty response is a successful delivery", wantCode: nil},
		"NoEvent":   {reason: "a body that is no event is a failure, as in Knative's broker", body: "ok", kind: "text/plain", wantCode: int32(502)},
		"Malformed": {reason: "a malformed event is a failure", body: "{", kind: event.ApplicationCloudEventsJSON, wantCode: int32(502)},
		"Invalid":   {reason: "the ingress rejects an event without a type", body: `{"specversion":"1.0","id":"1","source":"s"}`, kind: event.ApplicationCloudEventsJSON, wantCode: int32(400)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, func(w http.ResponseWriter, _ event.Event, _ int) {
				w.Header().Set("Content-Type", tc.kind)
				_, _ = io.WriteString(w, tc.body)
			})
			dead := newSink(t, nil)
			b, send := start(t, compile(t, "t", "subscriber: {uri: "+s.URL+"}\ndelivery: {deadLetterSink: {uri: "+dead.URL+"}}"))
			send(newEvent("1"))
			awaitDelivered(t, b)
			var code any
			if got := dead.got(); len(got) > 0 {
				code = got[0].Extensions()["knativeerrorcode"]
			}
			if diff := cmp.Diff(fmt.Sprint(tc.wantCode), fmt.Sprint(code)); diff != "" {
				t.Errorf("%s: code of the dead letter (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestLongErrorIsCut is not compared with Knative, whose dispatcher panics on a response of more than
// 768 bytes.
func TestLongErrorIsCut(t *testing.T) {
	t.Parallel()
	s := newSink(t, func(w http.ResponseWriter, _ event.Event, _ int) {
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, strings.Repeat("long ", 1000))
	})
	dead := newSink(t, nil)
	b, send := start(t, compile(t, "t", "subscriber: {uri: "+s.URL+"}\ndelivery: {deadLetterSink: {uri: "+dead.URL+"}}"))
	send(newEvent("1"))
	awaitDelivered(t, b)
	want := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("long ", 1000)))[:1024]
	if diff := cmp.Diff(want, dead.got()[0].Extensions()["knativeerrordata"]); diff != "" {
		t.Errorf("error data (-want +got):\n%s", diff)
	}
}

// near answers requests to one host with a handler, without a connection.
type near struct {
	host    string
	handler http.Handler
}

func (n near) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Host != n.host {
		return nil, http.ErrSkipAltProtocol
	}
	answer := httptest.NewRecorder()
	n.handler.ServeHTTP(answer, r)
	return answer.Result(), nil
}

func TestNearAndFar(t *testing.T) {
	t.Parallel()
	behind, far := newSink(t, replies(newEvent("reply", withType("thing.done")))), newSink(t, nil)
	b, send := startNear(t, near{"near.test", behind.Config.Handler},
		compile(t, "near", "subscriber: {uri: http://near.test/}\nfilter: {attributes: {type: thing.changed}}"),
		compile(t, "far", "subscriber: {uri: "+far.URL+"}"))
	cause := newEvent("cause")
	send(cause)
	awaitDelivered(t, b)
	if diff := cmp.Diff([]string{"cause"}, behind.ids()); diff != "" {
		t.Errorf("events at the near subscriber (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"cause", "reply"}, slices.Sorted(slices.Values(far.ids()))); diff != "" {
		t.Errorf("events at the far subscriber (-want +got):\n%s", diff)
	}
	for _, e := range append(behind.got(), far.got()...) {
		if e.ID() == "cause" && string(e.Data()) != string(cause.Data()) {
			t.Errorf("an event arrived as %s", e)
		}
	}
}

func TestSetTriggers(t *testing.T) {
	t.Parallel()
	old := newSink(t, codes(http.StatusServiceUnavailable))
	replaced, removed := newSink(t, nil), newSink(t, codes(http.StatusServiceUnavailable))
	retry := "\ndelivery: {retry: 100, backoffPolicy: linear, backoffDelay: PT0.1S}"
	b, send := start(t, compile(t, "stays", "subscriber: {uri: "+old.URL+"}"+retry),
		compile(t, "goes", "subscriber: {uri: "+removed.URL+"}"+retry))
	send(newEvent("1"))
	eventually(t, "both subscribers got the event", func() bool { return len(old.got()) > 0 && len(removed.got()) > 0 })
	b.SetTriggers([]Trigger{compile(t, "stays", "subscriber: {uri: "+replaced.URL+"}"+retry)})
	awaitDelivered(t, b)
	if diff := cmp.Diff([]string{"1"}, replaced.ids()); diff != "" {
		t.Errorf("events at the new subscriber (-want +got):\n%s", diff)
	}
	if stats := b.Stats(); len(stats.Triggers) != 1 || stats.Triggers[0].Delivered != 1 || stats.Triggers[0].Retried == 0 {
		t.Errorf("counters: %+v", stats)
	}
}

// TestTriggerLosesItsDeadLetterSink removes the dead letter sink of a Trigger while a dead letter waits for its next attempt.
func TestTriggerLosesItsDeadLetterSink(t *testing.T) {
	t.Parallel()
	refuses, unavailable := newSink(t, codes(http.StatusBadRequest)), newSink(t, codes(http.StatusServiceUnavailable))
	spec := "subscriber: {uri: " + refuses.URL + "}\ndelivery: {retry: 100, backoffPolicy: linear, backoffDelay: PT0.1S"
	b, send := start(t, compile(t, "t", spec+", deadLetterSink: {uri: "+unavailable.URL+"}}"))
	send(newEvent("1"))
	eventually(t, "the dead letter waits", func() bool { return len(unavailable.got()) > 0 })
	b.SetTriggers([]Trigger{compile(t, "t", spec+"}")})
	awaitDelivered(t, b)
	if stats := b.Stats(); stats.Triggers[0].Dropped != 1 {
		t.Errorf("counters: %+v", stats)
	}
}

func TestCloseDropsWhatIsHeld(t *testing.T) {
	t.Parallel()
	s := newSink(t, codes(http.StatusServiceUnavailable))
	b, send := start(t, compile(t, "t", "subscriber: {uri: "+s.URL+"}\ndelivery: {retry: 5, backoffPolicy: exponential, backoffDelay: PT1H}"))
	send(newEvent("1"))
	eventually(t, "the event waits for its next attempt", func() bool { return b.Stats().Triggers[0].Waiting == 1 })
	b.Close()
	if n := len(s.got()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

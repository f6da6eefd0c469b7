package app

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/triggerauth"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// fakeBroker is where the gateway sends its events to.
type fakeBroker struct {
	*httptest.Server
	mu     sync.Mutex
	events []event.Event
	fails  int
}

func newBroker(t *testing.T) *fakeBroker {
	t.Helper()
	b := &fakeBroker{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		e, err := cehttp.NewEventFromHTTPRequest(req)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.fails > 0 {
			b.fails--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		b.events = append(b.events, *e)
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(b.Close)
	return b
}

func (b *fakeBroker) ids() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ids []string
	for _, e := range b.events {
		ids = append(ids, e.ID())
	}
	return ids
}

// newborn is a machine that is younger than the history.
func newborn(name, phase string) metav1.Object {
	m := aMachine("team-a", name, phase)
	m.CreationTimestamp = metav1.Now()
	m.CreationTimestamp.Time = m.CreationTimestamp.Add(2e9)
	return m
}

// deliver posts a reference event as the Broker does.
func (s *env) deliver(id, eventType, kind, namespace, name string) reply {
	s.t.Helper()
	return s.do(http.MethodPost, "/events", `{}`, "Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", "https://kubernetes",
		"Ce-Type", eventType, "Ce-Kind", kind, "Ce-Namespace", namespace, "Ce-Name", name, "Content-Type", "application/json")
}

func TestChangeIsRepliedToOnceAndAgain(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	s := start(t, "--broker.sink="+b.URL)
	s.api.Put(t, "machines", newborn("m1", "Running"))
	eventually(t, "the machine", func() bool { return strings.Contains(string(s.get("/api/v1/infrastructure").body), `"running":1`) })
	first := s.deliver("raw-1", events.TypeRefUpdate, "Machine", "team-a", "m1")
	if first.StatusCode != http.StatusOK {
		t.Fatalf("the change was answered with %s %s", first.Status, first.body)
	}
	var e event.Event
	if err := json.Unmarshal(first.body, &e); err != nil {
		t.Fatal(err)
	}
	if e.Type() != events.TypeMachineCreated || e.ID() != "uid-m1.created" || e.Validate() != nil {
		t.Errorf("reply: %s", e)
	}
	again := s.deliver("raw-1", events.TypeRefUpdate, "Machine", "team-a", "m1")
	if string(again.body) != string(first.body) {
		t.Errorf("the same delivery again is replied to with\n%s\nafter\n%s", again.body, first.body)
	}
	if other := s.deliver("raw-2", events.TypeRefUpdate, "Machine", "team-a", "m1"); other.StatusCode != http.StatusAccepted {
		t.Errorf("a change that is no news: %s %s", other.Status, other.body)
	}
	if ids := b.ids(); len(ids) != 0 {
		t.Errorf("what was replied was also sent: %v", ids)
	}
}

// TestChangesThatTheBrokerMissed loses every event of the Broker. The gateway records the changes that it
// has watched itself, once.
func TestChangesThatTheBrokerMissed(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	b.fails = 1
	s := start(t, "--broker.sink="+b.URL)
	s.api.Put(t, "machines", newborn("m1", "Running"))
	eventually(t, "the event at the broker", func() bool { return len(b.ids()) > 0 })
	s.api.Delete("machines", "team-a", "m1")
	eventually(t, "the second event", func() bool { return len(b.ids()) > 1 })
	if got := strings.Join(b.ids(), " "); got != "uid-m1.created uid-m1.deleted" {
		t.Errorf("the broker got %s", got)
	}
}

// TestEventsOfImpossibleTimes has the Broker deliver events with impossible times. The history records the
// time of their arrival.
func TestEventsOfImpossibleTimes(t *testing.T) {
	t.Parallel()
	s := start(t)
	began := time.Now()
	for id, at := range map[string]string{"late": "9999-12-31T23:59:59-23:59", "early": "0000-01-01T00:00:00+01:00"} {
		if r := s.do(http.MethodPost, "/events", s.signed(happened(approved(id, `{}`), at)), "Content-Type", structured); r.StatusCode != http.StatusAccepted {
			t.Fatalf("%s: %s %s", id, r.Status, r.body)
		}
	}
	r := s.get("/api/v1/events")
	list, _ := r.object(t)["events"].([]any)
	if len(list) != 2 {
		t.Fatalf("the history: %s %s", r.Status, r.body)
	}
	for _, e := range list {
		at, err := time.Parse(time.RFC3339, e.(map[string]any)["time"].(string))
		if err != nil || at.Before(began.Truncate(time.Microsecond)) || at.After(time.Now()) {
			t.Errorf("an event is of %s: %v", at, err)
		}
	}
}

func TestEventsThatAreNone(t *testing.T) {
	t.Parallel()
	s := start(t)
	cases := map[string]struct {
		reason  string
		headers []string
		body    string
		want    int
	}{
		"NoEvent":    {reason: "a plain request", headers: []string{"Content-Type", "application/json"}, body: "{}", want: 415},
		"NoID":       {reason: "an event without an id", headers: []string{"Ce-Specversion", "1.0", "Ce-Type", "t", "Ce-Source", "s"}, want: 400},
		"NoObject":   {reason: "a reference to nothing", headers: []string{"Ce-Specversion", "1.0", "Ce-Type", events.TypeRefAdd, "Ce-Source", "s", "Ce-Id", "1"}, want: 422},
		"Structured": {reason: "structured mode", headers: []string{"Content-Type", "application/cloudevents+json"}, body: s.signed(`{"specversion":"1.0","id":"1","type":"io.vitistack.network.failed","source":"/ipam","data":{"uid":"u"}}`), want: 202},
		"Broken":     {reason: "no JSON", headers: []string{"Content-Type", "application/cloudevents+json"}, body: `{`, want: 400},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if r := s.do(http.MethodPost, "/events", tc.body, tc.headers...); r.StatusCode != tc.want {
				t.Errorf("%s: %s %s", tc.reason, r.Status, r.body)
			}
		})
	}
}

// TestDeliveriesAreAuthenticated has a pod post what the Broker would, with the tokens that Knative asks for and others.
func TestDeliveriesAreAuthenticated(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	token := func(account, audience string) string {
		return "Bearer " + server.Token(t, namespace, account, audience)
	}
	const trigger, audience = "gateway-oidc-eventing.knative.dev-trigger", "vitistack-system/gateway-events"
	s := start(t, "--oidc.enabled=true", "--oidc.audience="+audience, "--oidc.subjects=system:serviceaccount:"+namespace+":*")
	settings := s.app.config.OIDC
	var err error
	if s.app.deliveries.Verifier, err = triggerauth.New(settings, func() (*rest.Config, error) { return server.Config(), nil }); err != nil {
		t.Fatal(err)
	}
	good, other := token(trigger, audience), token(trigger, "vitistack-system/create-vm")
	for name, tc := range map[string]struct {
		reason        string
		authorization []string
		want          int
		says          string
	}{
		"None":     {"every pod may open a connection where no policy is enforced", nil, http.StatusUnauthorized, "authentication-oidc"},
		"Audience": {"a function passes its own token on", []string{other}, http.StatusUnauthorized, audience},
		"Two":      {"which one was judged", []string{good, good}, http.StatusUnauthorized, "2 Authorization headers"},
		"Trigger":  {"the Broker delivers", []string{good}, http.StatusAccepted, ""},
	} {
		for _, path := range []string{"/events", "/dead-letters"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+path, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header = http.Header{
				"Ce-Specversion": {"1.0"}, "Ce-Type": {"com.example.other"}, "Ce-Source": {"/x"}, "Ce-Id": {name + path},
				"Content-Type": {"application/json"}, "Authorization": tc.authorization,
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if res.StatusCode != tc.want || !strings.Contains(string(text), tc.says) {
				t.Errorf("%s to %s: %s %s, want %d that says %q: %s", name, path, res.Status, text, tc.want, tc.says, tc.reason)
			}
		}
	}
	for _, path := range []string{"/health/live", "/ready", "/metrics"} {
		if got := s.get(path).StatusCode; got != http.StatusOK {
			t.Errorf("%s: %d, want 200 without a token", path, got)
		}
	}
	const refused = `vitistack_operator_events_processed_total{event_type="_other",status="unauthenticated"} 6`
	if text := string(s.get("/metrics").body); !strings.Contains(text, refused) {
		t.Errorf("the metrics lack %s", refused)
	}
}

func TestHalfAConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	c, err := config.Load([]string{"--oidc.enabled=true", "--oidc.audience=a", "--state.dir=" + t.TempDir()}, func(string) (string, bool) { return "", false }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	_, err = newApp("test", c, &rest.Config{}, events.NewLogger(io.Discard, "error"))
	if err == nil || !strings.Contains(err.Error(), "OIDC_SUBJECTS is empty: set it to") {
		t.Errorf("%v, want what to set", err)
	}
}

package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/gateway/internal/history"
	"github.com/vitistack/stack/gateway/internal/webhook"
	"github.com/vitistack/stack/tests/stand/freeze"
	"github.com/vitistack/stack/tests/stand/servers"
)

// receiver is an endpoint that answers with planned statuses, and then with 204.
type receiver struct {
	*httptest.Server
	secret standardwebhooks.Secret

	mu       sync.Mutex
	answers  []int
	received []string
	bad      []error
}

func newReceiver(t *testing.T, secret standardwebhooks.Secret, answers ...int) *receiver {
	t.Helper()
	r := &receiver{secret: secret, answers: answers}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var e event.Event
	_ = json.Unmarshal(body, &e)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received = append(r.received, e.ID())
	if r.secret != nil {
		h := req.Header
		if err := r.secret.Verify(h.Get(standardwebhooks.HeaderID), h.Get(standardwebhooks.HeaderTimestamp), h.Get(standardwebhooks.HeaderSignature), body, time.Now()); err != nil {
			r.bad = append(r.bad, err)
		}
	}
	code := http.StatusNoContent
	if len(r.answers) > 0 {
		code, r.answers = r.answers[0], r.answers[1:]
	}
	if code == http.StatusFound {
		w.Header().Set("Location", "http://127.0.0.1:1/")
	}
	w.WriteHeader(code)
}

func (r *receiver) ids() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.received...)
}

// env is a history with a deliverer.
type env struct {
	t        *testing.T
	store    *history.Store
	plan     func(e event.Event, namespace, skip string) []history.Delivery
	outcomes chan string
	stop     func()
}

func start(t *testing.T, url string, endpoints ...webhook.Endpoint) *env {
	t.Helper()
	return startWithin(t, outbound.Rules{}, url, endpoints...)
}

func startWithin(t *testing.T, rules outbound.Rules, url string, endpoints ...webhook.Endpoint) *env {
	t.Helper()
	return startChanged(t, func(d *webhook.Deliverer) { d.Outbound = rules }, url, endpoints...)
}

// startChanged runs a deliverer that a test has changed.
func startChanged(t *testing.T, change func(*webhook.Deliverer), url string, endpoints ...webhook.Endpoint) *env {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	store, err := history.Open(&config.Database{
		URL: url, MaxOpenConns: 5, MaxIdleConns: 2, BatchSize: 10, FlushInterval: 10 * time.Millisecond, Retention: 1000 * time.Hour,
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	s := &env{t: t, store: store, outcomes: make(chan string, 100)}
	for i := range endpoints {
		endpoints[i].FirstDelay = time.Millisecond
	}
	d := &webhook.Deliverer{
		History: store, Endpoints: endpoints, Log: log, AbandonedAfter: 20 * time.Millisecond,
		Count: func(endpoint, outcome string) { s.outcomes <- endpoint + " " + outcome },
	}
	change(d)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	storing, end := context.WithCancel(context.Background())
	stored := make(chan struct{})
	go func() { defer close(stored); store.Run(storing) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		end()
		<-stored
	})
	t.Cleanup(s.stop)
	<-store.Migrated()
	s.plan = d.Plan
	return s
}

// record records an event with its deliveries.
func (s *env) record(id, eventType, namespace string) {
	s.t.Helper()
	e := event.New()
	e.SetID(id)
	e.SetSource("/gateway")
	e.SetType(eventType)
	_, err := s.store.Write(s.t.Context(), history.Record{
		Events:     []history.Event{{ID: id, Source: "/gateway", Type: eventType, Time: time.Now(), Data: json.RawMessage("{}")}},
		Deliveries: s.plan(e, namespace, ""),
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// expect waits for outcomes in this order.
func (s *env) expect(outcomes ...string) {
	s.t.Helper()
	for _, want := range outcomes {
		select {
		case got := <-s.outcomes:
			if got != want {
				s.t.Fatalf("got %q, want %q", got, want)
			}
		case <-time.After(3 * time.Minute):
			s.t.Fatalf("timed out waiting for %q", want)
		}
	}
}

// awaitLetters waits until the history has dead letters, and returns them.
func (s *env) awaitLetters() []history.DeadLetter {
	s.t.Helper()
	for {
		letters, err := s.store.DeadLetters(s.t.Context(), history.LetterQuery{Limit: 10})
		if err != nil {
			s.t.Fatal(err)
		}
		if len(letters) > 0 {
			return letters
		}
	}
}

var secret = standardwebhooks.Secret("0123456789abcdef0123456789abcdef")

func signingKey(t *testing.T) *webhook.SigningKey {
	t.Helper()
	key, err := webhook.NewSigningKey("whsec_"+base64.StdEncoding.EncodeToString(secret), "")
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestSigningKey replaces the secret of an endpoint, first by an invalid one.
func TestSigningKey(t *testing.T) {
	t.Parallel()
	key, now := signingKey(t), time.Now()
	if err := key.Replace("whsec_short"); err == nil || key.Sign("m", now, nil) != secret.Sign("m", now, nil) {
		t.Errorf("an invalid secret has replaced a valid one (%v)", err)
	}
	next := standardwebhooks.Secret("another secret of thirty-two byte")
	if err := key.Replace("whsec_" + base64.StdEncoding.EncodeToString(next) + "\n"); err != nil || key.Sign("m", now, nil) != next.Sign("m", now, nil) {
		t.Errorf("a valid secret does not sign (%v)", err)
	}
}

func TestDeliveries(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		answers []int
		retries int
		want    []string
	}{
		"AtOnce":    {reason: "a successful delivery is made once", want: []string{"w delivered"}},
		"Later":     {reason: "a failed delivery is retried", answers: []int{500, 503}, retries: 3, want: []string{"w retried", "w retried", "w delivered"}},
		"Throttled": {reason: "429, 408 and 425 are temporary", answers: []int{429, 408, 425}, retries: 3, want: []string{"w retried", "w retried", "w retried", "w delivered"}},
		"TooOften":  {reason: "the number of retries is limited", answers: []int{500, 500, 500}, retries: 2, want: []string{"w retried", "w retried", "w dead"}},
		"Refused":   {reason: "4xx is retried as configured", answers: []int{404, 422}, retries: 3, want: []string{"w retried", "w retried", "w delivered"}},
		"Gone":      {reason: "an endpoint that is gone is not tried again", answers: []int{410}, retries: 3, want: []string{"w dead"}},
		"Redirect":  {reason: "a redirect is not followed", answers: []int{302}, retries: 3, want: []string{"w dead"}},
		"ForEver":   {reason: "a delivery to the broker is retried until it succeeds", answers: []int{404, 410, 500}, retries: -1, want: []string{"w retried", "w retried", "w retried", "w delivered"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newReceiver(t, secret, tc.answers...)
			s := start(t, "sqlite://"+filepath.Join(t.TempDir(), "h.db"), webhook.Endpoint{Name: "w", URL: r.URL, Timeout: 5 * time.Second, Retries: tc.retries, Key: signingKey(t)})
			s.record("u1.created", "infrastructure.machine.created", "team-a")
			s.expect(tc.want...)
			s.stop()
			for _, err := range r.bad {
				t.Errorf("signature: %v", err)
			}
			if got := len(r.ids()); got != len(tc.want) {
				t.Errorf("%s: %d requests came", tc.reason, got)
			}
		})
	}
}

// TestRestart ends the gateway between a failure and the next attempt.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil, 500)
	url := "sqlite://" + filepath.Join(t.TempDir(), "h.db")
	endpoint := webhook.Endpoint{Name: "w", URL: r.URL, Timeout: time.Second, Retries: 3}
	s := start(t, url, endpoint)
	s.record("e1", "t", "")
	s.expect("w retried")
	s.stop()
	s = start(t, url, endpoint)
	if len(r.ids()) == 1 {
		s.expect("w delivered")
	}
	if diff := cmp.Diff([]string{"e1", "e1"}, r.ids()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestDeadLetter(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil, 410)
	s := start(t, "memory:", webhook.Endpoint{Name: "w", URL: r.URL, Timeout: time.Second, Retries: 3})
	s.record("e1", "t", "")
	s.expect("w dead")
	letters := s.awaitLetters()
	l := letters[0]
	if l.ID != "e1" || l.Destination != "w" || l.Code != 410 || l.Source != "/gateway" {
		t.Errorf("dead letter: %+v", l)
	}
}

// TestAnotherParty restarts the gateway with another address under the name of an endpoint: a pending delivery becomes a dead letter, which
// can be sent to the new address.
func TestAnotherParty(t *testing.T) {
	t.Parallel()
	first, second := newReceiver(t, nil, slices.Repeat([]int{500}, 100)...), newReceiver(t, nil)
	url := "sqlite://" + filepath.Join(t.TempDir(), "h.db")
	s := start(t, url, webhook.Endpoint{Name: "w", URL: first.URL, Timeout: time.Second, Retries: 99})
	s.record("e1", "t", "")
	s.expect("w retried")
	s.stop()
	s = start(t, url, webhook.Endpoint{Name: "w", URL: second.URL, Timeout: time.Second, Retries: 3})
	s.expect("w dead")
	letters, err := s.store.DeadLetters(t.Context(), history.LetterQuery{Destination: "w", Limit: 10})
	for err == nil && len(letters) == 0 {
		letters, err = s.store.DeadLetters(t.Context(), history.LetterQuery{Destination: "w", Limit: 10})
	}
	if err != nil || letters[0].ID != "e1" || !strings.Contains(letters[0].Error, "is not configured at this address any more") || len(second.ids()) > 0 {
		t.Fatalf("dead letters %+v, %v; the new address got %v", letters, err, second.ids())
	}
	d, err := (&webhook.Deliverer{Endpoints: []webhook.Endpoint{{Name: "w", URL: second.URL}}}).Resend(letters[0])
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := s.store.RemoveDeadLetter(t.Context(), letters[0].Sequence, d); !removed || err != nil {
		t.Fatalf("sent again: %t, %v", removed, err)
	}
	s.expect("w delivered")
	if diff := cmp.Diff([]string{"e1"}, second.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// TestAbandonedDelivery has another replica, with an earlier configuration, record a delivery and end after this one has started.
func TestAbandonedDelivery(t *testing.T) {
	t.Parallel()
	s := start(t, "memory:", webhook.Endpoint{Name: "w", URL: newReceiver(t, nil).URL, Timeout: time.Second})
	now := time.Now()
	for name, due := range map[string]time.Time{"due": now, "later": now.Add(time.Hour)} {
		if _, err := s.store.Write(t.Context(), history.Record{
			Events:     []history.Event{{ID: name, Source: "/gateway", Type: "t", Time: now, Data: json.RawMessage("{}")}},
			Deliveries: []history.Delivery{{Endpoint: "w@earlier", EventID: name, Type: "t", Body: "{}", Due: due, Created: now}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.expect("w dead")
	letters := s.awaitLetters()
	if len(letters) != 1 || letters[0].ID != "due" {
		t.Errorf("dead letters %+v; want that of the delivery that is due", letters)
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	s := start(t, "memory:", webhook.Endpoint{
		Name: "w", URL: r.URL, Timeout: time.Second, Types: []string{"infrastructure.machine.*"}, Namespaces: []string{"team-a"},
	})
	s.record("other-type", "infrastructure.cluster.updated", "team-a")
	s.record("other-namespace", "infrastructure.machine.created", "team-b")
	s.record("wanted", "infrastructure.machine.created", "team-a")
	s.expect("w delivered")
	if diff := cmp.Diff([]string{"wanted"}, r.ids()); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
}

// TestSSRF has webhooks to the cloud's metadata service and to endpoints that are not listed: no
// request is sent, and the dead letter has the reason.
func TestSSRF(t *testing.T) {
	t.Parallel()
	r := newReceiver(t, nil)
	for name, tc := range map[string]struct {
		url, list string
		inside    bool
		want      string
	}{
		"metadata": {url: "http://169.254.169.254/latest/api/token", want: "connections to 169.254.169.254 are not allowed here"},
		"other":    {url: r.URL, list: "hooks.example.com,10.0.0.0/8", want: "connections to 127.0.0.1 are not allowed here"},
		"listed":   {url: r.URL, list: "127.0.0.1"},
		"broker":   {url: r.URL, list: "10.0.0.0/8", inside: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startWithin(t, outbound.Parse(tc.list), "memory:", webhook.Endpoint{Name: name, URL: tc.url, Timeout: time.Second, Inside: tc.inside})
			s.record(name, "t", "")
			if tc.want == "" {
				s.expect(name + " delivered")
				return
			}
			s.expect(name + " dead")
			letters := s.awaitLetters()
			if !strings.Contains(letters[0].Error, tc.want) || slices.Contains(r.ids(), name) {
				t.Errorf("dead letter %q, received %v", letters[0].Error, r.ids())
			}
		})
	}
}

// TestVanishedDatabase has the connections to the database hang while an endpoint answers, as after the node of the database has lost its power. Another
// node has the database since, and the delivery continues there.
func TestVanishedDatabase(t *testing.T) {
	t.Parallel()
	proxy, address := freeze.New(t, servers.Postgres(t))
	begun, answer := make(chan struct{}, 10), make(chan int, 10)
	r := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		begun <- struct{}{}
		select {
		case code := <-answer:
			w.WriteHeader(code)
		case <-req.Context().Done():
		}
	}))
	t.Cleanup(r.Close)
	s := startChanged(t, func(d *webhook.Deliverer) { d.Timeout = time.Second }, address, webhook.Endpoint{Name: "w", URL: r.URL, Timeout: 2 * time.Second, Retries: 3})
	s.record("e1", "t", "")
	<-begun
	proxy.Freeze()
	answer <- http.StatusServiceUnavailable
	s.expect("w retried")
	answer <- http.StatusNoContent // once the claim of the delivery has ended, because the failure could not be recorded
	s.expect("w delivered")
	proxy.Cut()
}

// TestHangingEndpointHoldsUpNoOther has one endpoint that never answers.
func TestHangingEndpointHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(release) })
	r := newReceiver(t, nil)
	s := start(t, "memory:",
		webhook.Endpoint{Name: "hangs", URL: hanging.URL, Timeout: time.Minute, Retries: 3},
		webhook.Endpoint{Name: "works", URL: r.URL, Timeout: time.Second, Retries: 3})
	s.record("e1", "t", "")
	s.expect("works delivered")
}

// TestSecretAddress has an endpoint that cannot be reached, with a secret in the path and in the query of its address. The dead letter, which
// readers of the REST API see, has neither.
func TestSecretAddress(t *testing.T) {
	t.Parallel()
	s := startWithin(t, outbound.Parse("10.0.0.0/8"), "memory:", webhook.Endpoint{
		Name: "w", URL: "http://127.0.0.1/hooks/secret-path?token=secret-token", Timeout: time.Second,
	})
	s.record("e1", "t", "")
	s.expect("w dead")
	letters := s.awaitLetters()
	if got := letters[0].Error; strings.Contains(got, "secret-") || !strings.HasPrefix(got, "deliver to w: dial tcp 127.0.0.1:80: connections to 127.0.0.1 are not allowed here") {
		t.Errorf("the dead letter says %q", got)
	}
}

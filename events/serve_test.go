package events_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/vitistack/stack/tests/stand/buffer"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/events"
)

// serve runs handle on a free port, and returns its URL, its log, and a function that stops it.
func serve(t *testing.T, handle events.Handler, options ...events.Option) (url string, log *buffer.Buffer, stop func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	log = &buffer.Buffer{}
	done := make(chan error, 1)
	go func() {
		done <- events.Serve(ctx, listener, "test-function", handle, events.NewLogger(log, "info"), options...)
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = stop() })
	return "http://" + listener.Addr().String(), log, stop
}

var binaryHeaders = map[string]string{
	"Ce-Specversion":  "1.0",
	"Ce-Type":         events.TypeRefUpdate,
	"Ce-Source":       "https://kubernetes",
	"Ce-Id":           "one",
	"Ce-Subject":      "/apis/vitistack.io/v1alpha1/namespaces/default/machines/vm",
	"Ce-Kind":         "Machine",
	"Ce-Namespace":    "default",
	"Ce-Name":         "vm",
	"Ce-Apiversion":   "vitistack.io/v1alpha1",
	"Ce-Partitionkey": "uid-1",
	"Content-Type":    "application/json",
}

const structured = `{"specversion":"1.0","type":"io.vitistack.resync","source":"/functions/resync","id":"one",
	"kind":"Machine","namespace":"default","name":"vm","apiversion":"vitistack.io/v1alpha1","datacontenttype":"application/json","data":{}}`

func post(t *testing.T, url string, headers map[string]string, body io.Reader) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestServeAnswers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		headers map[string]string
		body    string
		err     error
		panics  bool
		want    int
	}{
		"Binary":     {reason: "the mode of the ApiServerSource", headers: binaryHeaders, body: "{}", want: http.StatusAccepted},
		"Structured": {reason: "the mode of many external systems", headers: map[string]string{"Content-Type": "application/cloudevents+json"}, body: structured, want: http.StatusAccepted},
		"Transient":  {reason: "the broker has to retry", headers: binaryHeaders, err: errors.New("not yet"), want: http.StatusServiceUnavailable},
		"Permanent":  {reason: "the broker must not retry", headers: binaryHeaders, err: events.Permanent(errors.New("never")), want: http.StatusUnprocessableEntity},
		"Panic":      {reason: "a retry does not fix a programming error", headers: binaryHeaders, panics: true, want: http.StatusUnprocessableEntity},
		"NoEvent":    {reason: "the answer tells the sender what to send", headers: map[string]string{"Content-Type": "text/plain"}, body: "hello", want: http.StatusUnsupportedMediaType},
		"NoType": {reason: "an event requires a type", headers: map[string]string{"Content-Type": "application/cloudevents+json"},
			body: `{"specversion":"1.0","id":"1","source":"s"}`, want: http.StatusBadRequest},
		"TooLarge": {reason: "memory is bounded", headers: map[string]string{"Content-Type": "application/cloudevents+json"},
			body: `{"data":"` + strings.Repeat("x", 1<<20), want: http.StatusRequestEntityTooLarge},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, log, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) {
				if tc.panics {
					panic("oops")
				}
				return nil, tc.err
			})
			if got := post(t, url, tc.headers, strings.NewReader(tc.body)).StatusCode; got != tc.want {
				t.Errorf("%s: got %d, want %d; log:\n%s", tc.reason, got, tc.want, log)
			}
		})
	}
}

func TestServeAnswersBriefly(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) {
		return nil, errors.New("x" + strings.Repeat("ø", 1000))
	})
	body, err := io.ReadAll(post(t, url, binaryHeaders, nil).Body)
	if err != nil || len(body) > 768 {
		t.Errorf("an answer of %d bytes would crash Knative's dispatcher: %v", len(body), err)
	}
	if !utf8.Valid(body) {
		t.Errorf("the answer ends within a character: %q", body[len(body)-5:])
	}
}

func TestServeReplies(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) {
		reply := event.New()
		reply.SetType(events.TypeNetworkRequested)
		return &reply, reply.SetData("application/json", events.NetworkRequested{Provider: "own"})
	})
	want := map[string]string{
		"Ce-Id": "one.test-function", "Ce-Source": "/functions/test-function",
		"Ce-Subject": binaryHeaders["Ce-Subject"], "Ce-Partitionkey": "uid-1",
	}
	for range 2 {
		res := post(t, url, binaryHeaders, strings.NewReader("{}"))
		got := map[string]string{}
		for k := range want {
			got[k] = res.Header.Get(k)
		}
		if diff := cmp.Diff(want, got); res.StatusCode != http.StatusOK || diff != "" {
			t.Errorf("a redelivery must give the same reply: status %d (-want +got):\n%s", res.StatusCode, diff)
		}
	}
}

func TestServeLogsOneLine(t *testing.T) {
	t.Parallel()
	url, log, stop := serve(t, func(ctx context.Context, _ event.Event) (*event.Event, error) {
		events.Report(ctx, "Creating", "Creating VirtualMachine resource")
		return nil, nil
	})
	post(t, url, binaryHeaders, nil)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(log.String()), &line); err != nil {
		t.Fatalf("want one JSON line, got %q: %v", log, err)
	}
	if _, err := time.Parse(time.RFC3339, line["timestamp"].(string)); err != nil {
		t.Errorf("timestamp: %v", err)
	}
	if _, err := time.ParseDuration(line["duration"].(string)); err != nil {
		t.Errorf("duration: %v", err)
	}
	delete(line, "timestamp")
	delete(line, "duration")
	want := map[string]any{
		"level": "info", "message": "Creating VirtualMachine resource", "function": "test-function", "controller": "Machine", "kind": "Machine", "machine": "vm",
		"namespace": "default", "name": "vm", "phase": "Creating", "outcome": "done", "reads": 0.0, "writes": 0.0, "eventType": events.TypeRefUpdate, "eventId": "one",
	}
	if diff := cmp.Diff(want, line); diff != "" {
		t.Errorf("log line (-want +got):\n%s", diff)
	}
}

func TestServeDrains(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	url, _, stop := serve(t, func(context.Context, event.Event) (*event.Event, error) {
		close(entered)
		<-release
		return nil, nil
	})
	status := make(chan int, 1)
	go func() { status <- post(t, url, binaryHeaders, nil).StatusCode }()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	select {
	case err := <-stopped:
		t.Fatalf("stopped during a delivery: %v", err)
	case <-time.After(5 * 20 * time.Millisecond):
	}
	close(release)
	if got := <-status; got != http.StatusAccepted {
		t.Errorf("delivery during the stop: got %d, want 202", got)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestServeProbes(t *testing.T) {
	t.Parallel()
	url, _, _ := serve(t, func(context.Context, event.Event) (*event.Event, error) { return nil, nil })
	post(t, url, binaryHeaders, nil)
	for path, want := range map[string]string{
		"/healthz": "ok", "/readyz": "ok",
		"/metrics": `vitistack_function_deliveries_total{function="test-function",outcome="done"}`,
	} {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s: got %d %q, want 200 with %q", path, res.StatusCode, body, want)
		}
	}
}

func TestRefOf(t *testing.T) {
	t.Parallel()
	ref := events.Ref{APIVersion: "vitistack.io/v1alpha1", Kind: "Machine", Namespace: "default", Name: "vm"}
	e := event.New()
	ref.Set(&e, "uid-1")
	got, err := events.RefOf(e)
	if diff := cmp.Diff(ref, got); err != nil || diff != "" {
		t.Errorf("RefOf(Set): %v (-want +got):\n%s", err, diff)
	}
	if e.Subject() != binaryHeaders["Ce-Subject"] {
		t.Errorf("subject: got %s", e.Subject())
	}
	if _, err := events.RefOf(event.New()); !events.IsPermanent(err) {
		t.Errorf("an event without an object: got %v, want a permanent error", err)
	}
}

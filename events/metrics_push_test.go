package events

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
)

const one = `{"specversion":"1.0","type":"io.vitistack.resync","source":"/functions/resync","id":"one",
	"kind":"Machine","namespace":"default","name":"vm","apiversion":"vitistack.io/v1alpha1","datacontenttype":"application/json","data":{}}`

// collector receives pushed metrics, as the gateway does.
type collector struct {
	url    string
	status atomic.Int32
	pushes chan pushed
}

type pushed struct{ query, text string }

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{pushes: make(chan pushed, 100)}
	c.status.Store(http.StatusNoContent)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		c.pushes <- pushed{r.Method + " " + r.URL.RawQuery, string(text)}
		w.WriteHeader(int(c.status.Load()))
	}))
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// next returns the next push, and idle fails if there is one.
func (c *collector) next(t *testing.T) pushed {
	t.Helper()
	select {
	case p := <-c.pushes:
		return p
	case <-time.After(time.Minute):
		t.Fatal("no metrics are pushed")
		return pushed{}
	}
}

func (c *collector) idle(t *testing.T) {
	t.Helper()
	select {
	case p := <-c.pushes:
		t.Errorf("metrics were pushed without a change: %v", p)
	default:
	}
}

// counting is a function that pushes metrics.
type counting struct {
	url  string
	log  *bytes.Buffer
	stop func() error
}

// count starts a function. Its log may be read after its stop.
func count(t *testing.T, name, to string, pause time.Duration) *counting {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &counting{url: "http://" + listener.Addr().String(), log: &bytes.Buffer{}}
	done := make(chan error, 1)
	handle := func(context.Context, event.Event) (*event.Event, error) { return nil, errors.New("password=hunter2") }
	go func() { done <- Serve(ctx, listener, name, handle, NewLogger(f.log, "info"), pushTo(to, pause)) }()
	f.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = f.stop() })
	return f
}

func (f *counting) deliver(t *testing.T) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url, strings.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/cloudevents+json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// deliveries returns the line with a function's deliveries, without the instance.
func (p pushed) deliveries(t *testing.T, name string) (instance, value string) {
	t.Helper()
	for line := range strings.Lines(p.text) {
		rest, ok := strings.CutPrefix(line, `vitistack_function_deliveries_total{instance="`)
		instance, rest, _ := strings.Cut(rest, `",`)
		if value, mine := strings.CutPrefix(rest, `function="`+name+`",outcome="retry"} `); ok && mine {
			return instance, strings.TrimSpace(value)
		}
	}
	t.Fatalf("the push has no deliveries:\n%s", p.text)
	return "", ""
}

func TestPush(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	f := count(t, "push", c.url, 10*time.Millisecond)
	f.deliver(t)
	first := c.next(t)
	instance, value := first.deliveries(t, "push")
	if instance == "" || value != "1" || first.query != "POST " {
		t.Errorf("%q counted %s, by %q", instance, value, first.query)
	}
	for _, want := range []string{"# TYPE vitistack_function_deliveries_total counter\n", `delivery_duration_seconds_bucket{instance="` + instance + `",function="push",le="+Inf"} 1`} {
		if !strings.Contains(first.text, want) {
			t.Errorf("the push lacks %s", want)
		}
	}
	if lacks := strings.Count(first.text, "\n") - strings.Count(first.text, "\n#") - 1 - strings.Count(first.text, `{instance="`+instance+`"`); lacks != 0 {
		t.Errorf("%d lines lack the instance:\n%s", lacks, first.text)
	}
	for _, not := range []string{"hunter2", "process_", "go_"} {
		if strings.Contains(first.text, not) {
			t.Errorf("the push contains %s", not)
		}
	}
	c.idle(t)
	f.deliver(t)
	if again, value := c.next(t).deliveries(t, "push"); again != instance || value != "2" {
		t.Errorf("%s has counted %s, want 2 since its start, of %s", again, value, instance)
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	last := c.next(t)
	if _, value := last.deliveries(t, "push"); value != "2" || last.query != "POST ended=true" {
		t.Errorf("the last push counts %s, with query %q", value, last.query)
	}
	c.idle(t)
}

func TestPushesAtTheEnd(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	f := count(t, "push-end", c.url+"/?x=y", time.Hour)
	f.deliver(t)
	f.deliver(t)
	c.idle(t)
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	last := c.next(t)
	if _, value := last.deliveries(t, "push-end"); value != "2" || last.query != "POST x=y&ended=true" {
		t.Errorf("the last push counts %s, with query %q", value, last.query)
	}
}

func TestNothingToPush(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	if err := count(t, "push-idle", c.url, time.Millisecond).stop(); err != nil {
		t.Fatal(err)
	}
	silent := count(t, "push-nowhere", "", time.Millisecond)
	silent.deliver(t)
	if err := silent.stop(); err != nil || strings.Contains(silent.log.String(), "push metrics") {
		t.Errorf("%v: %s", err, silent.log)
	}
	c.idle(t)
}

// TestPushFails has a gateway that rejects pushes, and then accepts one with all counts.
func TestPushFails(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.status.Store(http.StatusServiceUnavailable)
	f := count(t, "push-fails", c.url, time.Millisecond)
	for range 3 {
		f.deliver(t)
		c.next(t)
	}
	c.status.Store(http.StatusNoContent)
	f.deliver(t)
	if _, value := c.next(t).deliveries(t, "push-fails"); value != "4" {
		t.Errorf("%s are counted after three failures, want all 4", value)
	}
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(f.log.String(), "Cannot push metrics"); n != 1 {
		t.Errorf("%d log lines about a series of failures, want one:\n%s", n, f.log)
	}
}

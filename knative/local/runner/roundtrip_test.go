package runner

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/knative/local/process"
)

// TestBothWays sends requests over a connection and within the process, with the same results.
func TestBothWays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		kind   string
		change func(*Spec)
		path   string
		closed bool
		code   int
		text   string // that the body contains
		header http.Header
	}{
		"Answered": {reason: "the process answers", kind: "well", path: "/take", code: http.StatusAccepted},
		"Dying":    {reason: "the process dies", kind: "well", path: "/die", code: http.StatusServiceUnavailable, text: "call function: ", header: refused},
		"Slow":     {reason: "the function's own timeout", kind: "well", path: "/hold?until=never", change: func(s *Spec) { s.Timeout = time.Second }, code: http.StatusGatewayTimeout, text: "deadline exceeded\n", header: refused},
		"Late":     {reason: "Knative's time until an answer begins", kind: "well", path: "/hold?until=never", change: func(s *Spec) { s.ResponseStart = time.Second }, code: http.StatusGatewayTimeout, text: "deadline exceeded\n", header: refused},
		"Broken":   {reason: "no process stays up", kind: "broken", change: func(s *Spec) { s.Timeout = time.Minute }, code: http.StatusServiceUnavailable, text: "function does not stay up (", header: refused},
		"Stopped":  {reason: "the engine ends", kind: "well", closed: true, code: http.StatusServiceUnavailable, text: "function is stopped\n", header: refused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, url := newFunction(t, tc.kind, tc.change)
			if tc.closed {
				f.Close()
			}
			for way, client := range map[string]*http.Client{"connection": http.DefaultClient, "within": {Transport: f}} {
				response, err := client.Post(url+tc.path, "text/plain", strings.NewReader("body"))
				if err != nil {
					t.Fatalf("%s, %s: %v", tc.reason, way, err)
				}
				body, err := io.ReadAll(response.Body)
				if err := errors.Join(err, response.Body.Close()); err != nil {
					t.Errorf("%s, %s: %v", tc.reason, way, err)
				}
				if response.StatusCode != tc.code || !strings.Contains(string(body), tc.text) {
					t.Errorf("%s, %s: got %d %q, want %d and %q", tc.reason, way, response.StatusCode, body, tc.code, tc.text)
				}
				for name := range tc.header {
					if diff := cmp.Diff(tc.header[name], response.Header[name]); diff != "" {
						t.Errorf("%s, %s: header %s (-want +got):\n%s", tc.reason, way, name, diff)
					}
				}
				eventually(t, "the process is released", func() bool { return f.Statuses()[0].InFlight == 0 })
			}
		})
	}
}

// refused is the header of the function's own answers.
var refused = http.Header{"Content-Type": {"text/plain; charset=utf-8"}, "X-Content-Type-Options": {"nosniff"}}

func TestRoundTripHoldsTheProcess(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", func(s *Spec) { s.Concurrency = 1 })
	client := &http.Client{Transport: f}
	first, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	if n := f.Statuses()[0].InFlight; n != 1 {
		t.Errorf("%d requests in flight while a body is open, want 1", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("body"))
		if err == nil {
			_, err = client.Do(request)
		}
		waited <- err
	}()
	eventually(t, "the second waits", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.waiting == 1
	})
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled request: got %v, want the sender's own error", err)
	}
	if err := errors.Join(first.Body.Close(), first.Body.Close()); err != nil {
		t.Error(err)
	}
	if s := f.Statuses()[0]; s.InFlight != 0 {
		t.Errorf("after the end of both: %+v", s)
	}
}

func TestRoundTripIsCancelled(t *testing.T) {
	t.Parallel()
	f, url := newFunction(t, "well", nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/hold?until=never", nil)
		if err == nil {
			_, err = (&http.Client{Transport: f}).Do(request)
		}
		ended <- err
	}()
	eventually(t, "the process has it", func() bool { return f.Statuses()[0].InFlight == 1 })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the sender's own error", err)
	}
	if s := f.Statuses()[0]; s.InFlight != 0 || s.State != process.StateReady {
		t.Errorf("after a cancelled request: %+v", s)
	}
}

package backendhealth

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/functions/internal/kube"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// at is a time some seconds after the start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// silent is a request that began at a second and timed out at another.
func silent(began, ended int) Finding {
	return Finding{Health: backend.Unreachable, Reason: "KeaUnavailable", Message: "the request timed out", Began: at(began), Ended: at(ended)}
}

func refused(ended int) Finding {
	return Finding{Health: backend.Unhealthy, Reason: "KeaUnauthorized", Message: "401", Began: at(ended), Ended: at(ended)}
}

func answer(ended int) Finding { return Healthy(at(ended), at(ended)) }

func inspected(ended int) Finding {
	f := answer(ended)
	f.Inspection = true
	return f
}

func TestDecide(t *testing.T) {
	t.Parallel()
	healthy := backend.Report{Health: backend.Healthy, Since: at(-600), LastSeen: at(-5)}
	down := backend.Report{Health: backend.Unreachable, Reason: "KeaUnavailable", Message: "the request timed out", Since: at(-60), LastSeen: at(-90)}
	unauthorized := backend.Report{Health: backend.Unhealthy, Reason: "KeaUnauthorized", Message: "401", Since: at(-60), LastSeen: at(-60)}
	for name, tc := range map[string]struct {
		reason string
		held   *backend.Report
		found  Finding
		want   backend.Report
		write  bool
	}{
		"New":          {"nothing is known of the server", nil, answer(0), backend.Report{Health: backend.Healthy, Since: at(0), LastSeen: at(0)}, true},
		"NewSilent":    {"it has never answered", nil, silent(-10, 0), backend.Report{Health: backend.Unreachable, Reason: "KeaUnavailable", Message: "the request timed out", Since: at(0)}, true},
		"Same":         {"a busy system does not write for each request", &healthy, answer(0), healthy, false},
		"Minute":       {"the last answer is known to the minute", &healthy, answer(55), backend.Report{Health: backend.Healthy, Since: at(-600), LastSeen: at(55)}, true},
		"Outage":       {"it hangs", &healthy, silent(-4, 6), backend.Report{Health: backend.Unreachable, Reason: "KeaUnavailable", Message: "the request timed out", Since: at(6), LastSeen: at(-5)}, true},
		"Slow":         {"another request was answered meanwhile", &healthy, silent(-10, 0), healthy, false},
		"StillSilent":  {"nothing has changed", &down, silent(0, 10), down, false},
		"Back":         {"it answers again", &down, answer(1), backend.Report{Health: backend.Healthy, Since: at(1), LastSeen: at(1)}, true},
		"Refuses":      {"it answers, and cannot be used", &down, refused(1), backend.Report{Health: backend.Unhealthy, Reason: "KeaUnauthorized", Message: "401", Since: at(1), LastSeen: at(1)}, true},
		"StillRefuses": {"the last answer is known to the minute", &unauthorized, refused(-50), unauthorized, false},
		"OtherReason":  {"the health stays since the first", &unauthorized, Finding{Health: backend.Unhealthy, Reason: "KeaUntrusted", Message: "certificate", Ended: at(0)}, backend.Report{Health: backend.Unhealthy, Reason: "KeaUntrusted", Message: "certificate", Since: at(-60), LastSeen: at(0)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held := backend.Report{}
			if tc.held != nil {
				held = *tc.held
			}
			got, write := decide(held, tc.held != nil, tc.found)
			if diff := cmp.Diff(tc.want, got); diff != "" && (write || tc.write) || write != tc.write {
				t.Errorf("%s: write %t, want %t (-want +got):\n%s", tc.reason, write, tc.write, diff)
			}
		})
	}
}

// TestFindingOf takes only reasons of the backend as findings.
func TestFindingOf(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]backend.Health{"KeaUnavailable": backend.Unreachable, "SourceUnauthorized": backend.Unhealthy, "PoolExhausted": "", "KeaRefused": "", "": ""} {
		if f, ok := FindingOf(reason, "", at(0), at(1)); f.Health != want || ok != (want != "") {
			t.Errorf("%q: got %+v, %t, want %q", reason, f, ok, want)
		}
	}
}

// configMaps is an API server with the ConfigMap backends, that counts requests.
type configMaps struct {
	mu            sync.Mutex
	data          map[string]string
	reads, writes int
	missing       bool
	failing       error
}

func (c *configMaps) Get(ctx context.Context, _, name string, obj kube.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case c.missing:
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	case c.failing != nil:
		return c.failing
	}
	obj.(*corev1.ConfigMap).Data = maps.Clone(c.data)
	return nil
}

func (c *configMaps) Merge(_ context.Context, _ kube.Object, fields map[string]any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	for key, value := range fields["data"].(map[string]any) {
		if value == nil {
			delete(c.data, key)
		} else {
			c.data[key] = value.(string)
		}
	}
	return nil
}

func (c *configMaps) health(t *testing.T, key string) backend.Health {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.data[key] == "" {
		return ""
	}
	var r backend.Report
	if err := json.Unmarshal([]byte(c.data[key]), &r); err != nil {
		t.Fatal(err)
	}
	return r.Health
}

func TestRecord(t *testing.T) {
	t.Parallel()
	api := &configMaps{data: map[string]string{"netbox": "{"}}
	one, other := New(api, "vitistack-system"), New(api, "vitistack-system")
	for _, step := range []struct {
		reason        string
		by            *Reporter
		found         Finding
		want          backend.Health
		reads, writes int
	}{
		{"the first answer is published", one, answer(0), backend.Healthy, 1, 1},
		{"many answers in a moment cost nothing", one, answer(1), backend.Healthy, 1, 1},
		{"a request that began before the last answer shows nothing", one, silent(0, 5), backend.Healthy, 1, 1},
		{"a request that hangs is an outage", one, silent(6, 9), backend.Unreachable, 2, 2},
		{"the next one says the same", one, silent(7, 10), backend.Unreachable, 2, 2},
		{"another process gets an answer", other, answer(11), backend.Healthy, 3, 3},
		{"the first process does not know that yet, and agrees within the interval", one, answer(12), backend.Healthy, 4, 3},
		{"an outage of another process", other, silent(13, 23), backend.Unreachable, 5, 4},
		{"an answer soon after the last comparison", one, answer(21), backend.Unreachable, 5, 4},
		{"an answer after the interval ends the outage", one, answer(24), backend.Healthy, 6, 5},
		{"a server that refuses some requests is unhealthy", one, refused(25), backend.Unhealthy, 7, 6},
		{"although it answers others", one, answer(26), backend.Unhealthy, 7, 6},
		{"once it refuses none, it is healthy", one, answer(36), backend.Healthy, 8, 7},
		{"it refuses again", one, refused(47), backend.Unhealthy, 9, 8},
		{"an inspection of the whole server ends that at once", one, inspected(48), backend.Healthy, 10, 9},
	} {
		before := api.health(t, "kea.primary")
		changed := step.by.Record(t.Context(), backend.Kea, "primary", step.found)
		if got := api.health(t, "kea.primary"); got != step.want || changed != (got != before) || api.reads != step.reads || api.writes != step.writes {
			t.Errorf("%s: got %s after %d reads and %d writes, want %s after %d and %d", step.reason, got, api.reads, api.writes, step.want, step.reads, step.writes)
		}
	}
	one.Record(t.Context(), "netbox", "", answer(30))
	if got := api.health(t, "netbox"); got != backend.Healthy {
		t.Errorf("a damaged report is replaced: got %q", got)
	}
}

// TestRecordAfterTheDelivery publishes an outage whose request has used up the time of its delivery.
func TestRecordAfterTheDelivery(t *testing.T) {
	t.Parallel()
	api := &configMaps{data: map[string]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	New(api, "vitistack-system").Record(ctx, backend.Kea, "primary", silent(0, 10))
	if got := api.health(t, "kea.primary"); got != backend.Unreachable {
		t.Errorf("got %q", got)
	}
}

// TestRecordFails compares again after a failure, and serves without the ConfigMap.
func TestRecordFails(t *testing.T) {
	t.Parallel()
	api := &configMaps{data: map[string]string{}, failing: errors.New("503")}
	r := New(api, "vitistack-system")
	r.Record(t.Context(), backend.Kea, "primary", silent(0, 1))
	api.failing = nil
	r.Record(t.Context(), backend.Kea, "primary", silent(1, 2))
	if got := api.health(t, "kea.primary"); got != backend.Unreachable {
		t.Errorf("a failed write is not made up for: %q", got)
	}
	api.missing = true
	r.Record(t.Context(), backend.Kea, "primary", answer(3))
	var none *Reporter
	none.Record(t.Context(), backend.Kea, "primary", answer(3))
	if err := errors.Join(none.Retain(t.Context(), backend.Kea), r.Retain(t.Context(), backend.Kea)); err != nil {
		t.Error(err)
	}
}

func TestRetain(t *testing.T) {
	t.Parallel()
	api := &configMaps{data: map[string]string{"kea.primary": "{}", "kea.secondary": "{}", "netbox": "{}"}}
	r := New(api, "vitistack-system")
	for range 2 {
		if err := r.Retain(t.Context(), backend.Kea, "primary"); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(map[string]string{"kea.primary": "{}", "netbox": "{}"}, api.data); diff != "" || api.writes != 1 {
		t.Errorf("%d writes (-want +got):\n%s", api.writes, diff)
	}
	if err := r.Forget(t.Context(), "netbox", ""); err != nil || len(api.data) != 1 {
		t.Errorf("NetBox is gone: %v, %v", api.data, err)
	}
}

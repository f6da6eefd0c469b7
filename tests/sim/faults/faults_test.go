package faults_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/tests/sim/faults"
)

func TestNext(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		rules  []faults.Rule
		ask    []string
		want   []faults.Fault
	}{
		"Zero": {
			reason: "a plan without rules has no faults",
			ask:    []string{"Bootstrap"},
			want:   []faults.Fault{{}},
		},
		"Pattern": {
			reason: "a rule applies to operations that match its pattern",
			rules:  []faults.Rule{{Operation: "MachineService/*", Error: "unavailable"}},
			ask:    []string{"MachineService/Version", "EtcdService/Status"},
			want:   []faults.Fault{{Error: "unavailable"}, {}},
		},
		"Times": {
			reason: "a rule with Times ends after that number of calls",
			rules:  []faults.Rule{{Error: "500", After: true, Times: 1}},
			ask:    []string{"a", "a"},
			want:   []faults.Fault{{Error: "500", After: true}, {}},
		},
		"Latency": {
			reason: "latencies add up and the first error applies",
			rules:  []faults.Rule{{Latency: "1s"}, {Latency: "2s", Error: "one"}, {Error: "two"}},
			ask:    []string{"a"},
			want:   []faults.Fault{{Latency: 3 * time.Second, Error: "one"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var plan faults.Plan
			if err := plan.Set(tc.rules...); err != nil {
				t.Fatal(err)
			}
			var got []faults.Fault
			for _, op := range tc.ask {
				got = append(got, plan.Next(op))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestServeHTTP(t *testing.T) {
	t.Parallel()
	plan := &faults.Plan{}
	put := func(body string) int {
		rec := httptest.NewRecorder()
		plan.ServeHTTP(rec, httptest.NewRequest(http.MethodPut, "/", strings.NewReader(body)))
		return rec.Code
	}
	if code := put(`[{"operation":"x","error":"down"}]`); code != http.StatusNoContent {
		t.Fatalf("valid rules: got %d", code)
	}
	for _, bad := range []string{`{}`, `[{"latency":"soon"}]`, `[{"rate":2}]`, `[{"operation":"["}]`, `[{"oops":1}]`} {
		if code := put(bad); code != http.StatusBadRequest {
			t.Errorf("rules %s: got %d, want 400", bad, code)
		}
	}
	if got := plan.Next("x").Error; got != "down" {
		t.Errorf("invalid rules replaced valid ones: got %q", got)
	}
}

func TestCalls(t *testing.T) {
	t.Parallel()
	p := &faults.Plan{}
	for _, operation := range []string{"POST /qemu", "GET /nodes", "POST /qemu"} {
		p.Next(operation)
	}
	answer := httptest.NewRecorder()
	p.ServeCalls(answer, httptest.NewRequest(http.MethodGet, "/", nil))
	if got, want := strings.TrimSpace(answer.Body.String()), `{"GET /nodes":1,"POST /qemu":2}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

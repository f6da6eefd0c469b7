package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var start = time.Unix(1_700_000_000, 0)

func push(t *testing.T, p *Pushed, text string) {
	t.Helper()
	if _, err := p.Take(strings.NewReader(text), false, start); err != nil {
		t.Fatal(err)
	}
}

// written are the lines that are no comments, and the kinds of the families.
func written(p *Pushed) (lines []string, kinds map[string]string) {
	var b strings.Builder
	p.Write(&b)
	kinds = map[string]string{}
	for line := range strings.Lines(b.String()) {
		line = strings.TrimSpace(line)
		if name, kind, ok := parseType(line); ok {
			kinds[name] = kind
		} else if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines, kinds
}

func TestWhatIsTaken(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		text   string
		want   []string
	}{
		"Counter":     {"the runtime counts deliveries", `vitistack_function_x_total{instance="a",b="1"} 2`, []string{`vitistack_function_x_total{b="1"} 2`}},
		"Operator":    {"users know the operators' metrics", `kubevirt_operator_reconciliation_errors_total{instance="a",controller="Machine"} 1`, []string{`kubevirt_operator_reconciliation_errors_total{controller="Machine"} 1`}},
		"Source":      {"provision-network counts what sources are asked for", `vitistack_network_source_requests_total 1`, []string{`vitistack_network_source_requests_total 1`}},
		"Labels":      {"two orders are one series", "vitistack_function_x_total{b=\"1\",a=\"2\"} 1\nvitistack_function_x_total{instance=\"i\",a=\"2\",b=\"1\"} 1", []string{`vitistack_function_x_total{a="2",b="1"} 2`}},
		"Escaped":     {"a value may have any text", `vitistack_function_x_total{a="\\ \" \n } ="} 1`, []string{`vitistack_function_x_total{a="\\ \" \n } ="} 1`}},
		"Histogram":   {"buckets come in their order", "kea_operator_d_seconds_bucket{le=\"+Inf\"} 3\nkea_operator_d_seconds_bucket{le=\"10\"} 2\nkea_operator_d_seconds_bucket{le=\"2.5\"} 1\nkea_operator_d_seconds_sum 9\nkea_operator_d_seconds_count 3", []string{`kea_operator_d_seconds_bucket{le="2.5"} 1`, `kea_operator_d_seconds_bucket{le="10"} 2`, `kea_operator_d_seconds_bucket{le="+Inf"} 3`, `kea_operator_d_seconds_count 3`, `kea_operator_d_seconds_sum 9`}},
		"Gauge":       {"it may be less than zero", "# TYPE kea_operator_x gauge\nkea_operator_x{instance=\"a\"} -1.5", []string{`kea_operator_x -1.5`}},
		"Resync":      {"an alert needs the time of the last full round", "# TYPE vitistack_resync_round_pages gauge\nvitistack_resync_round_pages{instance=\"a\"} 2", []string{`vitistack_resync_round_pages 2`}},
		"NoPairs":     {"one bad line would break every scrape", `vitistack_function_y_total{foo} 1`, nil},
		"Unquoted":    {"one bad line would break every scrape", `vitistack_function_y_total{foo=1} 1`, nil},
		"BadEscape":   {"the text format knows three escapes", `vitistack_function_y_total{a="\x"} 1`, nil},
		"NoUTF8":      {"labels are UTF-8", "vitistack_function_y_total{a=\"\xff\"} 1", nil},
		"TwiceALabel": {"a label has one value", `vitistack_function_y_total{a="1",a="2"} 1`, nil},
		"Reserved":    {"Prometheus has these for itself", `vitistack_function_y_total{__name__="x"} 1`, nil},
		"TooLong":     {"memory is bounded", `vitistack_function_y_total{a="` + strings.Repeat("x", maxLength) + `"} 1`, nil},
		"Foreign":     {"a function cannot write the gateway's own metrics", "vitistack_operator_clusters_total 1\nvitistack_network_free_addresses_total 1\nprocess_cpu_seconds_total 1", nil},
		"NoTotal":     {"what kind it is, is not told", `vitistack_function_y 1`, nil},
		"Range":       {"Prometheus knows no vmrange", `vitistack_function_y_bucket{vmrange="1...2"} 1`, nil},
		"NoBound":     {"a bucket has a bound", `vitistack_function_y_bucket{le="x"} 1`, nil},
		"NoNumbers":   {"values are finite numbers", "vitistack_function_y_total NaN\nvitistack_function_y_total +Inf\nvitistack_function_y_total 1e999\nvitistack_function_y_total one\nvitistack_function_y_total", nil},
		"Negative":    {"a counter only grows", `vitistack_function_y_total -1`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &Pushed{}
			push(t, p, tc.text)
			got, _ := written(p)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if refused := p.Refused() > 0; refused != (tc.want == nil) {
				t.Errorf("%d were refused", p.Refused())
			}
		})
	}
}

// TestPushedMemory pushes new series again and again, of one process and of many.
func TestPushedMemory(t *testing.T) {
	t.Parallel()
	p := &Pushed{}
	for i := range 2 * maxHeld / maxSeries {
		values := map[series]float64{}
		for n := range maxSeries {
			values[series{name: "vitistack_function_x_total", labels: fmt.Sprint(i, n)}] = 1
		}
		for _, from := range []string{"one", fmt.Sprint(i)} {
			p.refused += uint64(p.take(from, values, start.Add(time.Duration(i))))
			if n := len(p.instances[from].last); n > maxSeries {
				t.Fatalf("%s has %d series", from, n)
			}
		}
		p.refused += uint64(p.set("one", map[string]map[series]float64{fmt.Sprint(i % 2): values}, start))
	}
	held, gauges := 0, 0
	for _, i := range p.instances {
		held += len(i.last)
	}
	for _, told := range p.gauges {
		gauges += len(told.values)
	}
	if held != p.held || held > maxHeld || gauges > maxSeries || len(p.ended) > maxSeries {
		t.Errorf("%d series, counted as %d, %d gauges, and %d of processes that have ended", held, p.held, gauges, len(p.ended))
	}
	if p.Refused() == 0 {
		t.Error("the gateway does not log it")
	}
}

// TestPushOfTooMuch has more in one push than is read.
func TestPushOfTooMuch(t *testing.T) {
	t.Parallel()
	p := &Pushed{}
	var text strings.Builder
	for n := range maxSeries + 2 {
		fmt.Fprintf(&text, "vitistack_function_x_total{n=\"%d\"} 1\n", n)
	}
	push(t, p, text.String())
	if lines, _ := written(p); len(lines) != maxSeries || p.Refused() != 2 {
		t.Errorf("%d are kept and %d refused", len(lines), p.Refused())
	}
}

// TestProcessesComeAndGo adds up what processes have counted that end, crash or rest.
func TestProcessesComeAndGo(t *testing.T) {
	t.Parallel()
	p := &Pushed{}
	now := start
	take := func(from string, value int, ended bool) {
		t.Helper()
		if _, err := p.Take(strings.NewReader(fmt.Sprintf("vitistack_function_x_total{instance=%q} %d", from, value)), ended, now); err != nil {
			t.Fatal(err)
		}
	}
	take("rests", 100, false)
	take("ends", 10, false)
	take("ends", 11, true)
	take("crashes", 7, false)
	if len(p.instances) != 2 {
		t.Errorf("%d processes are remembered, want only the processes that still run", len(p.instances))
	}
	now = now.Add(time.Hour)
	take("rests", 101, false)
	now = now.Add(silence)
	take("rests", 102, false)
	if lines, _ := written(p); !cmp.Equal(lines, []string{"vitistack_function_x_total 120"}) {
		t.Errorf("got %v, want 102 + 11 + 7", lines)
	}
	if len(p.instances) != 1 {
		t.Errorf("%d processes are remembered, want the one that lives", len(p.instances))
	}
}

// TestGaugesOfIdleProcesses has a process that counted long ago push its counters again, and then no process push any gauge.
func TestGaugesOfIdleProcesses(t *testing.T) {
	t.Parallel()
	p, now := &Pushed{}, start
	push := func(from string, deliveries, machines int) {
		t.Helper()
		text := fmt.Sprintf("vitistack_function_x_total{instance=%q} %d\n# TYPE kubevirt_operator_virtual_machines_total gauge\nkubevirt_operator_virtual_machines_total{instance=%q,status=\"Running\"} %d\n"+
			"# TYPE vitistack_resync_last_completed_timestamp_seconds gauge\nvitistack_resync_last_completed_timestamp_seconds{instance=%q} 7\n", from, deliveries, from, machines, from)
		if _, err := p.Take(strings.NewReader(text), false, now); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(reason string, want ...string) {
		t.Helper()
		lines, _ := written(p)
		var got []string
		for _, line := range lines {
			if !strings.HasPrefix(line, "vitistack_function_x_total") {
				got = append(got, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", reason, diff)
		}
	}
	const completed = "vitistack_resync_last_completed_timestamp_seconds 7"
	push("a", 1, 3)
	push("b", 1, 0)
	push("a", 2, 3)
	expect("the machines are deleted, and a process that has not counted since pushes its deliveries", `kubevirt_operator_virtual_machines_total{status="Running"} 0`, completed)
	push("a", 3, 4)
	expect("it has counted again", `kubevirt_operator_virtual_machines_total{status="Running"} 4`, completed)
	now = now.Add(gaugeSilence)
	push("a", 4, 4)
	p.DropStale(now.Add(time.Minute))
	expect("it still counts as many", `kubevirt_operator_virtual_machines_total{status="Running"} 4`, completed)
	p.DropStale(now.Add(2 * gaugeSilence))
	expect("no process has counted for an hour, and a point in time stays true", completed)
}

// TestGauges has two processes tell of the same.
func TestGauges(t *testing.T) {
	t.Parallel()
	p := &Pushed{}
	const kind = "# TYPE kubevirt_operator_machines_total gauge\n"
	push(t, p, kind+"kubevirt_operator_machines_total{instance=\"a\",phase=\"Pending\"} 3\nkubevirt_operator_machines_total{instance=\"a\",phase=\"Running\"} 1\n")
	push(t, p, kind+"kubevirt_operator_machines_total{instance=\"b\",phase=\"Running\"} 4\n")
	push(t, p, "vitistack_function_x_total{instance=\"a\"} 1\nkubevirt_operator_machines_total{instance=\"c\"} 9\n")
	lines, kinds := written(p)
	if diff := cmp.Diff([]string{`kubevirt_operator_machines_total{phase="Running"} 4`, "vitistack_function_x_total 1"}, lines); diff != "" {
		t.Errorf("who counts last has counted all (-want +got):\n%s", diff)
	}
	if kinds["kubevirt_operator_machines_total"] != Gauge || kinds["vitistack_function_x_total"] != Counter {
		t.Errorf("the kinds are %v", kinds)
	}
}

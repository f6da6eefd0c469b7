package app

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/metrics"
	"github.com/vitistack/stack/tests/fakeapi"
)

// families parses what /metrics answers, as Prometheus does.
func families(t *testing.T, s *env) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	parsed, err := parser.TextToMetricFamilies(bytes.NewReader(s.get("/metrics").body))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// value is that of the series whose labels are given in pairs.
func value(f *dto.MetricFamily, labels ...string) (float64, bool) {
	for _, m := range f.GetMetric() {
		have := map[string]string{}
		for _, l := range m.GetLabel() {
			have[l.GetName()] = l.GetValue()
		}
		same := true
		for i := 0; i+1 < len(labels); i += 2 {
			same = same && have[labels[i]] == labels[i+1]
		}
		switch {
		case !same:
		case m.Gauge != nil:
			return m.Gauge.GetValue(), true
		case m.Counter != nil:
			return m.Counter.GetValue(), true
		case m.Histogram != nil:
			return float64(m.Histogram.GetSampleCount()), true
		}
	}
	return 0, false
}

// required are the ten metrics that users rely on, with their labels.
var required = map[string]struct {
	kind   dto.MetricType
	labels []string
}{
	"vitistack_operator_info":                         {dto.MetricType_GAUGE, []string{"version"}},
	"vitistack_operator_clusters_total":               {dto.MetricType_GAUGE, []string{"status", "type"}},
	"vitistack_operator_machines_total":               {dto.MetricType_GAUGE, []string{"operator", "status", "cluster"}},
	"vitistack_operator_api_requests_total":           {dto.MetricType_COUNTER, []string{"method", "endpoint", "status"}},
	"vitistack_operator_api_request_duration_seconds": {dto.MetricType_HISTOGRAM, []string{"method", "endpoint"}},
	"vitistack_operator_cache_hits_total":             {dto.MetricType_COUNTER, []string{"cache_type"}},
	"vitistack_operator_cache_misses_total":           {dto.MetricType_COUNTER, []string{"cache_type"}},
	"vitistack_operator_operator_status":              {dto.MetricType_GAUGE, []string{"operator", "status"}},
	"vitistack_operator_events_processed_total":       {dto.MetricType_COUNTER, []string{"event_type", "status"}},
	"vitistack_operator_database_connections":         {dto.MetricType_GAUGE, []string{"state"}},
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, "--handlers.metrics.updateInterval=0s")
	furnish(t, s)
	s.api.Put(t, "configmaps", serversReport(t, "healthy", "unreachable"))
	s.deliver("raw-1", "dev.knative.apiserver.ref.update", "Machine", "team-a", "shop-cp-0")
	s.get("/api/v1/clusters")
	eventually(t, "the count of an event of its own", func() bool {
		return bytes.Contains(s.get("/metrics").body, []byte(`vitistack_operator_events_processed_total{event_type="infrastructure.operator.status",status="processed"} `))
	})
	text := s.get("/metrics").body
	for _, lines := range []string{
		"# HELP vitistack_operator_clusters_total Total number of managed clusters\n# TYPE vitistack_operator_clusters_total gauge\n",
		"# HELP vitistack_operator_machines_total Total number of managed machines\n# TYPE vitistack_operator_machines_total gauge\n",
		"# HELP vitistack_operator_api_requests_total Total API requests\n# TYPE vitistack_operator_api_requests_total counter\n",
		`vitistack_operator_api_requests_total{method="GET",endpoint="/clusters",status="200"} 1` + "\n",
		`vitistack_operator_clusters_total{status="active",type="talos"} 1` + "\n",
		`vitistack_operator_machines_total{operator="kubevirt",status="running",cluster="team-a/shop"} 1` + "\n",
		`vitistack_pipeline_waiting_objects{layer="machine",reason="Unknown"} 3` + "\n",
		`vitistack_network_free_addresses{namespace="team-a",network="net"} 247` + "\n",
	} {
		if !bytes.Contains(text, []byte(lines)) {
			t.Errorf("the metrics lack %q", lines)
		}
	}
	all := families(t, s)
	for name, want := range required {
		f := all[name]
		if f == nil || f.GetType() != want.kind || f.GetHelp() == "" || len(f.GetMetric()) == 0 {
			t.Errorf("%s: %v", name, f)
			continue
		}
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		if len(labels) != len(want.labels) {
			t.Errorf("%s has the labels %v, want %v", name, labels, want.labels)
		}
	}
	problems, err := promlint.New(bytes.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		// Two gauges have the names that users know.
		if strings.Contains(p.Text, "_total") && (p.Metric == "vitistack_operator_clusters_total" || p.Metric == "vitistack_operator_machines_total") {
			continue
		}
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestFaultsAreCountedFromZero has the counters of faults from the start, so that an alert sees the first.
func TestFaultsAreCountedFromZero(t *testing.T) {
	t.Parallel()
	s := start(t, "--handlers.metrics.updateInterval=0s", "--handlers.webhook.enabled=true", `--handlers.webhook.endpoints=[{"name":"hook","url":"https://webhook.example.com/events"}]`)
	text := s.get("/metrics").body
	lines := []string{
		`vitistack_operator_events_processed_total{event_type="_other",status="dead"} 0`,
		`vitistack_operator_events_processed_total{event_type="_other",status="unauthenticated"} 0`,
		`vitistack_operator_event_deliveries_total{endpoint="hook",outcome="dead"} 0`,
		`vitistack_operator_event_deliveries_total{endpoint="_other",outcome="dead"} 0`,
	}
	for _, eventType := range events.Types {
		lines = append(lines, fmt.Sprintf(`vitistack_operator_events_processed_total{event_type=%q,status="dead"} 0`, eventType))
	}
	for _, line := range lines {
		if !bytes.Contains(text, []byte(line+"\n")) {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

func TestLayersAreTimedOnce(t *testing.T) {
	t.Parallel()
	s := startCold(t, func(api *fakeapi.Server) {
		n := aNetwork("team-a", "before")
		n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", LastTransitionTime: born}}
		api.Put(t, "networknamespaces", n)
	}, "--handlers.metrics.updateInterval=0s")
	s.waitReady()
	n := aNetwork("team-a", "new")
	put := func(ready string, after int) {
		n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: metav1.ConditionStatus(ready), Reason: "X", LastTransitionTime: metav1.NewTime(born.Add(1e9 * 40))}}
		n.Status.VLANID = int32(after)
		s.api.Put(t, "networknamespaces", n)
		eventually(t, "the network", func() bool {
			return s.get("/api/v1/networks?vlan="+string(rune('0'+after))).Header.Get("X-Total-Count") == "1"
		})
	}
	put("False", 1)
	put("True", 2)
	put("False", 3)
	put("True", 4)
	eventually(t, "one network to be timed", func() bool {
		n, ok := value(families(t, s)["vitistack_pipeline_layer_duration_seconds"], "layer", "network")
		return ok && n == 1
	})
	if !bytes.Contains(s.get("/metrics").body, []byte(`vitistack_pipeline_layer_duration_seconds_sum{layer="network"} 40`)) {
		t.Error("the network took 40 seconds, and the metrics don't say so")
	}
}

func TestPushedMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	push := func(body string) {
		t.Helper()
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write([]byte(body))
		_ = w.Close()
		if r := s.do(http.MethodPost, "/api/v1/import/prometheus", packed.String(), "Content-Encoding", "gzip", "Content-Type", "text/plain"); r.StatusCode != http.StatusNoContent {
			t.Fatalf("push: %s %s", r.Status, r.body)
		}
	}
	const name = "vitistack_function_deliveries_total"
	push(name + `{function="create-vm",outcome="done",instance="a"} 3` + "\nprocess_cpu_seconds_total{instance=\"a\"} 9\n")
	push(name + `{function="create-vm",outcome="done",instance="b"} 4` + "\nevil_total{instance=\"b\"} 1\n" + name + " nonsense\n")
	push(name + `{function="create-vm",outcome="done",instance="a"} 5` + "\n")
	push(name + `{function="create-vm",outcome="done",instance="a"} 1` + "\n")
	f := families(t, s)
	if n, ok := value(f[name], "function", "create-vm", "outcome", "done"); !ok || n != 10 {
		t.Errorf("two processes, one of which restarted after 5, have counted %v", n)
	}
	if f["evil_total"] != nil {
		t.Error("anybody can add metrics")
	}
	if n := len(f[name].GetMetric()); n != 1 {
		t.Errorf("%d series, want one without the instance", n)
	}
}

func TestSeriesAreBounded(t *testing.T) {
	t.Parallel()
	s := start(t, "--metrics.maxSeries=2", "--handlers.metrics.updateInterval=0s")
	for _, cluster := range []string{"a", "b", "c", "d"} {
		m := aMachine("team-a", "m-"+cluster, "Running")
		m.Labels = map[string]string{"cluster.vitistack.io/cluster-name": cluster}
		s.api.Put(t, "machines", m)
	}
	eventually(t, "the machines", func() bool { return s.get("/api/v1/machines").Header.Get("X-Total-Count") == "4" })
	f := families(t, s)["vitistack_operator_machines_total"]
	if n, ok := value(f, "cluster", metrics.Other); !ok || n != 2 || len(f.GetMetric()) != 3 {
		t.Errorf("machines: %v", f)
	}
	for range 50 {
		s.get("/api/v1/none/" + strings.Repeat("x", 10))
	}
	for _, m := range families(t, s)["vitistack_operator_api_requests_total"].GetMetric() {
		for _, l := range m.GetLabel() {
			if strings.Contains(l.GetValue(), "xxx") {
				t.Errorf("a path became a label: %v", m)
			}
		}
	}
}

func TestMetricsCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	s := start(t, "--metrics.enabled=false")
	for _, path := range []string{"/metrics", "/api/v1/metrics"} {
		if r := s.get(path); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
}

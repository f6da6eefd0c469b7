package app

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/servers"
)

// The time of a rule test: ten minutes without a fault, three hours with it, and two hours after it, in steps of a minute.
const (
	before = 10
	during = 180
	after  = 120
)

// alertTest is a fault of an installation in which everything works otherwise.
type alertTest struct {
	reason string
	fault  func(s *env)
	// prepare runs before the fault. It may be nil.
	prepare func(s *env)
	// silent are the heartbeats that do not come: broker, source or resync.
	silent string
	// cutsDatabase is a fault of the connection to the database.
	cutsDatabase bool
	// once reports that the fault happens once: its alerts fire minutes later, and not three hours later.
	once bool
	// shows is in the metrics of the fault. It is empty if there are no metrics.
	shows string
	// drops begins the names of series that the gateway does not serve during the fault.
	drops string
	// want are the alerts that fire, and no others.
	want []string
}

// rollingTemplate is ClusterTemplate standard, whose status has recorded an update if there is one.
func rollingTemplate(update *v1alpha1.TemplateUpdate) *v1alpha1.ClusterTemplate {
	ct := &v1alpha1.ClusterTemplate{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "ClusterTemplate"}, ObjectMeta: meta("", "standard")}
	if update != nil {
		update.Revision = template.Revision(ct.Spec.Cluster)
		ct.Status.Updating = []v1alpha1.TemplateUpdate{*update}
	}
	return ct
}

// nightlyBackup is an EtcdBackup with a schedule, and its newest snapshot.
func nightlyBackup(ready metav1.ConditionStatus, last time.Time) *v1alpha1.EtcdBackup {
	b := &v1alpha1.EtcdBackup{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "EtcdBackup"}, ObjectMeta: meta("team-a", "nightly")}
	b.Spec.Schedule = "0 3 * * *"
	at := metav1.NewTime(last)
	b.Status.LastBackupTime = &at
	b.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: ready, Reason: "BackupFailed", LastTransitionTime: born}}
	return b
}

// endedBackup is a working EtcdBackup whose newest snapshot is three days old, because it takes no more of them.
func endedBackup(name string, end func(*v1alpha1.EtcdBackupSpec)) *v1alpha1.EtcdBackup {
	b := nightlyBackup("True", time.Now().Add(-72*time.Hour))
	b.ObjectMeta = meta("team-a", name)
	end(&b.Spec)
	return b
}

// networkWith is a ready network with some free addresses.
func networkWith(total, free int) *v1alpha2.NetworkNamespace {
	n := aNetwork("team-a", "net")
	n.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready", LastTransitionTime: born}}
	n.Status.IPAllocationSummary = &v1alpha2.IPAllocationSummary{TotalCount: int64(total), AllocatedCount: int64(total - free), AvailableCount: int64(free)}
	return n
}

var alertTests = map[string]alertTest{
	"NoHeartbeat": {
		reason: "a gateway that expects no heartbeats serves no series of them", drops: "vitistack_heartbeat_", shows: "vitistack_operator_info", want: []string{"VitistackHeartbeatUnknown"},
	},
	"GatewayDown": {reason: "nothing is scraped", want: []string{"VitistackGatewayDown"}},
	"Broker": {
		reason: "its silence hides sources and resync", silent: "broker", shows: `vitistack_heartbeat_up{dependency="broker",name=""} 0`, want: []string{"VitistackBrokerSilent"},
	},
	"EventSource": {
		reason: "one of two sources hangs", silent: "source", shows: `vitistack_heartbeat_up{dependency="eventSource",name="vitistack-resources"} 0`, want: []string{"VitistackEventSourceSilent"},
	},
	"Resync": {
		reason: "it makes no rounds, and its metrics stay as they were", silent: "resync", shows: `vitistack_heartbeat_up{dependency="resync",name=""} 0`,
		want: []string{"VitistackResyncDoesNotComplete", "VitistackResyncSilent"},
	},
	"Database": {
		reason: "the gateway cannot reach its database", cutsDatabase: true, shows: `vitistack_operator_database_up 0`, want: []string{"VitistackDatabaseDown"},
	},
	"Backend": {
		reason: "the only Kea server hangs", fault: func(s *env) { s.api.Put(s.t, "configmaps", serversReport(s.t, "healthy", "unreachable")) },
		shows: `vitistack_backend_up{backend="kea",server="primary"} 0`, want: []string{"VitistackBackendDown", "VitistackOperatorUnhealthy"},
	},
	"ClusterUnreachable": {
		reason: "a cluster that was running does not answer", fault: func(s *env) {
			c := aCluster("team-a", "shop", "Running")
			c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "ClusterUnreachable", LastTransitionTime: born}}
			s.api.Put(s.t, "kubernetesclusters", c)
		},
		shows: `reason="ClusterUnreachable"`, want: []string{"VitistackClusterUnreachable", "VitistackObjectsWait"},
	},
	"ClusterFailed": {
		reason: "a cluster cannot be created", fault: func(s *env) {
			c := aCluster("team-a", "shop", "Failed")
			c.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "InvalidTopology", LastTransitionTime: born}}
			s.api.Put(s.t, "kubernetesclusters", c)
		},
		shows: `vitistack_operator_clusters_total{status="failed",type="talos"} 1`, want: []string{"VitistackClusterFailed", "VitistackObjectsWait"},
	},
	"RolloutStopped": {
		reason: "a cluster of a ClusterTemplate does not become Ready", fault: func(s *env) {
			s.api.Put(s.t, "clustertemplates", rollingTemplate(&v1alpha1.TemplateUpdate{Namespace: "team-a", Name: "shop", UID: "uid-shop", Message: "spec.talos is wrong"}))
		},
		shows: `vitistack_cluster_template_clusters{template="standard",state="Stopped"} 1`, want: []string{"VitistackRolloutStopped"},
	},
	"BackupFails": {
		reason: "the last snapshot is recent, and the next one fails", fault: func(s *env) { s.api.Put(s.t, "etcdbackups", nightlyBackup("False", time.Now())) },
		shows: `vitistack_etcd_backup_ready{namespace="team-a",backup="nightly"} 0`, want: []string{"VitistackBackupFails"},
	},
	"BackupIsOld": {
		reason: "nothing fails, and no snapshot is taken", fault: func(s *env) { s.api.Put(s.t, "etcdbackups", nightlyBackup("True", time.Now().Add(-72*time.Hour))) },
		shows: `vitistack_etcd_backup_ready{namespace="team-a",backup="nightly"} 1`, want: []string{"VitistackBackupIsOld"},
	},
	"Orphans": {
		reason: "a Lease has no holder", fault: func(s *env) {
			s.api.Put(s.t, "configmaps", reported(s.t, v1alpha1.Orphan{ID: "10-0-0-1", FirstSeen: born, Confirmed: true}))
		},
		shows: `vitistack_orphans{backend="leases"} 1`, want: []string{"VitistackOrphans"},
	},
	"Addresses": {
		reason: "two addresses are left", fault: func(s *env) { s.api.Put(s.t, "networknamespaces", networkWith(250, 2)) },
		shows: `vitistack_network_free_addresses{namespace="team-a",network="net"} 2`, want: []string{"VitistackAddressesRunOut"},
	},
	"SmallNetwork": {
		reason: "all addresses of a small network are planned for", fault: func(s *env) { s.api.Put(s.t, "networknamespaces", networkWith(6, 2)) },
		shows: `vitistack_network_free_addresses{namespace="team-a",network="net"} 2`,
	},
	"BackupOnce": {
		reason: "a backup without a schedule is complete after its snapshot", fault: func(s *env) {
			s.api.Put(s.t, "etcdbackups", endedBackup("once", func(spec *v1alpha1.EtcdBackupSpec) { spec.Schedule = "" }))
		},
		shows: `vitistack_etcd_backup_ready{namespace="team-a",backup="once"} 1`,
	},
	"BackupSuspended": {
		reason: "a suspended backup takes no snapshots", fault: func(s *env) {
			s.api.Put(s.t, "etcdbackups", endedBackup("suspended", func(spec *v1alpha1.EtcdBackupSpec) { spec.Suspend = true }))
		},
		shows: `vitistack_etcd_backup_ready{namespace="team-a",backup="suspended"} 1`,
	},
	"ObjectsTakeTurns": {
		reason: "at any time one of many new machines waits, and none for long", fault: func(s *env) {
			m := aMachine("team-a", "web", "Creating")
			m.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "WaitingForAddress", LastTransitionTime: metav1.Now()}}
			s.api.Put(s.t, "machines", m)
		},
		shows: `vitistack_pipeline_waiting_objects{layer="machine",reason="WaitingForAddress"} 1`,
	},
	"DeadLetters": {
		reason: "the Broker gives up one event", once: true, fault: func(s *env) {
			s.do(http.MethodPost, "/dead-letters?destination=create-vm", `{}`, "Ce-Specversion", "1.0", "Ce-Id", "dead", "Ce-Source", "https://kubernetes",
				"Ce-Type", events.TypeNetworkReleased, "Ce-Kind", "Machine", "Ce-Namespace", "team-a", "Ce-Name", "web", "Content-Type", "application/json")
		},
		shows: `status="dead"} 1`, want: []string{"VitistackDeadLetters"},
	},
	"Unauthenticated": {
		reason: "a function refuses its first delivery", once: true, fault: func(s *env) {
			s.push(`vitistack_function_deliveries_total{function="create-vm",outcome="unauthenticated",instance="a"} 1`)
		},
		shows: `vitistack_function_deliveries_total{function="create-vm",outcome="unauthenticated"} 1`, want: []string{"VitistackUnauthenticatedDeliveries"},
	},
	"UnauthenticatedLater": {
		reason: "a function refuses a delivery after others", once: true, prepare: func(s *env) {
			s.push(`vitistack_function_deliveries_total{function="create-vm",outcome="unauthenticated",instance="a"} 0`)
		},
		fault: func(s *env) {
			s.push(`vitistack_function_deliveries_total{function="create-vm",outcome="unauthenticated",instance="a"} 1`)
		},
		shows: `vitistack_function_deliveries_total{function="create-vm",outcome="unauthenticated"} 1`, want: []string{"VitistackUnauthenticatedDeliveries"},
	},
	"UnauthenticatedGateway": {
		reason: "the gateway refuses one delivery", once: true, fault: func(s *env) { s.app.metrics.Event("_other", "unauthenticated", 1) },
		shows: `vitistack_operator_events_processed_total{event_type="_other",status="unauthenticated"} 1`, want: []string{"VitistackUnauthenticatedDeliveries"},
	},
	"FormerWebhook": {
		reason: "an endpoint that is not configured any more has one event", once: true, fault: func(s *env) { s.app.metrics.Delivery("_other", "dead") },
		shows: `vitistack_operator_event_deliveries_total{endpoint="_other",outcome="dead"} 1`, want: []string{"VitistackWebhooksFail"},
	},
	"Webhook": {
		reason: "an endpoint takes one event not", once: true, fault: func(s *env) { s.app.metrics.Delivery("hook", "dead") },
		shows: `vitistack_operator_event_deliveries_total{endpoint="hook",outcome="dead"} 1`, want: []string{"VitistackWebhooksFail"},
	},
	"SlowAPI": {
		reason: "requests take three seconds", fault: func(s *env) { s.app.metrics.Route("/clusters")(http.MethodGet, http.StatusOK, 3*time.Second) },
		shows: `vitistack_operator_api_request_duration_seconds_count{method="GET",endpoint="/clusters"}`, want: []string{"VitistackSlowAPI"},
	},
}

// push pushes metrics as a function does.
func (s *env) push(lines string) {
	s.t.Helper()
	if got := s.do(http.MethodPost, "/api/v1/import/prometheus", lines+"\n", "Content-Type", "text/plain"); got.StatusCode/100 != 2 {
		s.t.Fatalf("push: %d %s", got.StatusCode, got.body)
	}
}

// scrape keeps all heartbeats but the silent ones coming, and returns the metrics and their time once they show something.
func (s *env) scrape(silent string, shows ...string) (map[string]float64, time.Time) {
	s.t.Helper()
	var text string
	var at time.Time
	eventually(s.t, "the metrics to show "+strings.Join(shows, ", "), func() bool {
		sources := []string{events.TypeRefUpdate, events.TypeUpdate}
		if silent == "source" {
			sources = sources[:1]
		}
		if silent != "broker" {
			s.beat(sources...)
		}
		if silent != "resync" {
			putLease(s.t, s.api, "resync", "resync", time.Now())
			s.push(fmt.Sprintf("# TYPE vitistack_resync_last_completed_timestamp_seconds gauge\nvitistack_resync_last_completed_timestamp_seconds{instance=\"r\"} %d", time.Now().UnixMilli()/1000))
		}
		text, at = string(s.get("/metrics").body), time.Now()
		return !slices.ContainsFunc(shows, func(line string) bool { return !strings.Contains(text, line) })
	})
	series := map[string]float64{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, number, ok := strings.Cut(line, "} "); ok && !strings.HasPrefix(line, "#") {
			series[name+"}"], _ = strconv.ParseFloat(number, 64)
		} else if name, number, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			series[name], _ = strconv.ParseFloat(number, 64)
		}
	}
	return series, at
}

// phases are the values of a series without the fault and with it, and the times of the scrapes.
type phases struct {
	values [2]float64
	known  [2]bool
	times  [2]time.Time
}

// counted matches the series that only grow.
var counted = regexp.MustCompile(`(_total|_bucket|_count|_sum)(\{|$)`)

// gauges are those whose names end like counters, which users know.
var gauges = regexp.MustCompile(`^vitistack_operator_(clusters|machines)_total\{`)

// notation returns the values of a series over the whole time in the notation of promtool. A counter grows with each minute of the fault by
// as much as one fault adds, unless the fault happens once. Times count from the beginning of the test; one that the fault has stopped stays as it is.
func (p phases) notation(name string, once bool) string {
	part := func(known bool, value, step float64, n int) string {
		if !known {
			return fmt.Sprintf("_x%d", n)
		}
		return fmt.Sprintf("%s+%sx%d", strconv.FormatFloat(value, 'f', -1, 64), strconv.FormatFloat(step, 'f', -1, 64), n-1)
	}
	healthy, faulty := p.values[0], p.values[1]
	switch {
	case strings.Contains(name, "_timestamp_seconds") && (healthy != 0 || faulty != 0):
		begin := func(i, minute int) float64 { return float64(minute*60) + p.values[i] - float64(p.times[i].Unix()) }
		step := 60.0
		if p.known[0] && healthy == faulty {
			step = 0
		}
		return strings.Join([]string{part(p.known[0], begin(0, 0), 60, before), part(p.known[1], begin(1, before), step, during), part(p.known[0], begin(0, before+during), 60, after)}, " ")
	case counted.MatchString(name) && !gauges.MatchString(name):
		grows := faulty - healthy
		if once {
			grows = 0
		}
		return strings.Join([]string{part(p.known[0], healthy, 0, before), part(p.known[1], faulty, grows, during), part(p.known[1], faulty+grows*(during-1), 0, after)}, " ")
	default:
		return strings.Join([]string{part(p.known[0], healthy, 0, before), part(p.known[1], faulty, 0, during), part(p.known[0], healthy, 0, after)}, " ")
	}
}

// TestAlerts runs Prometheus' own rule engine on what a gateway serves before and in each fault: the right alerts fire, and no others,
// and none fires before the fault or two hours after it.
func TestAlerts(t *testing.T) {
	t.Parallel()
	rules, err := filepath.Abs(filepath.Join(engine.Root(), "charts", "vitistack", "files", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var groups strings.Builder
	covered := map[string]bool{}
	var mu sync.Mutex
	t.Run("Faults", func(t *testing.T) {
		for name, tc := range alertTests {
			for _, alert := range tc.want {
				covered[alert] = true
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				all := measure(t, tc)
				mu.Lock()
				defer mu.Unlock()
				writeGroup(&groups, name, all, tc)
			})
		}
	})
	text, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(text), -1) {
		if !covered[m[1]] {
			t.Errorf("no fault tests %s", m[1])
		}
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	content := fmt.Sprintf("rule_files: [%q]\nevaluation_interval: 1m\ntests:\n%s", rules, &groups)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("promtool, of Debian's package prometheus: %v\n%s", err, out)
	}
}

// measure returns the series of a gateway without a fault and in it.
func measure(t *testing.T, tc alertTest) map[string]phases {
	t.Helper()
	fault, settings := tc.fault, []string{"--handlers.webhook.enabled=true", `--handlers.webhook.endpoints=[{"name":"hook","url":"https://webhook.example.com/events","types":["none"]}]`}
	if tc.cutsDatabase {
		address, err := url.Parse(servers.Postgres(t))
		if err != nil {
			t.Fatal(err)
		}
		link := cutProxy(t, address.Host)
		link.lead(address.Host)
		address.Host = link.Addr().String()
		settings = append(settings, "--database.url="+address.String(), "--health.checkInterval=1s")
		fault = func(*env) { link.lead("") }
	}
	s := startWithHeartbeats(t, settings...)
	s.api.Put(t, "configmaps", serversReport(t, "healthy", "healthy"))
	s.api.Put(t, "configmaps", reported(t))
	s.api.Put(t, "etcdbackups", nightlyBackup("True", time.Now()))
	shop := follower("shop", "test", "old", metav1.Condition{Type: "Ready", Status: "True", Reason: "ClusterRunning", LastTransitionTime: born})
	s.api.Put(t, "kubernetesclusters", shop)
	s.api.Put(t, "clustertemplates", rollingTemplate(nil))
	if tc.prepare != nil {
		tc.prepare(s)
	}
	works := []string{
		`vitistack_heartbeat_up{dependency="broker",name=""} 1`, `vitistack_heartbeat_up{dependency="eventSource",name="vitistack-resources"} 1`,
		`vitistack_heartbeat_up{dependency="resync",name=""} 1`, `vitistack_backend_up{backend="kea",server="primary"} 1`, `vitistack_etcd_backup_ready{namespace="team-a",backup="nightly"} 1`,
		`vitistack_cluster_template_clusters{template="standard",state="Stopped"} 0`,
	}
	all := map[string]phases{}
	add := func(phase int, series map[string]float64, at time.Time) {
		for name, value := range series {
			p := all[name]
			p.values[phase], p.known[phase] = value, true
			all[name] = p
		}
		for name, p := range all {
			p.times[phase] = at
			all[name] = p
		}
	}
	series, at := s.scrape("", works...)
	add(0, series, at)
	if tc.shows == "" {
		return all
	}
	if fault != nil {
		fault(s)
	}
	<-time.After(time.Until(at.Add(1100 * time.Millisecond))) // a second passes, so that a time that goes on differs
	still := slices.DeleteFunc(slices.Clone(works), func(line string) bool {
		return tc.silent != "" && strings.Contains(line, "heartbeat") || strings.HasPrefix(line, strings.TrimRight(tc.shows, "01")) || strings.Contains(line, "backup")
	})
	series, at = s.scrape(tc.silent, append(still, tc.shows)...)
	maps.DeleteFunc(series, func(name string, _ float64) bool { return tc.drops != "" && strings.HasPrefix(name, tc.drops) })
	add(1, series, at)
	return all
}

// writeGroup writes a test of promtool: no alert fires before a fault and long after it, and the right ones fire at its end.
func writeGroup(b *strings.Builder, name string, all map[string]phases, tc alertTest) {
	fmt.Fprintf(b, "- name: %s\n  interval: 1m\n  input_series:\n", name)
	for series, p := range all {
		fmt.Fprintf(b, "  - {series: '%s', values: '%s'}\n", series, p.notation(series, tc.once))
	}
	b.WriteString("  promql_expr_test:\n")
	fires := before + during - 1
	if tc.once {
		fires = before + 5
	}
	for _, minute := range []int{before - 1, fires, before + during + after - 1} {
		fmt.Fprintf(b, "  - expr: 'group by (alertname) (ALERTS{alertstate=\"firing\"})'\n    eval_time: %dm\n    exp_samples:\n", minute)
		if minute == fires {
			for _, alert := range tc.want {
				fmt.Fprintf(b, "    - {labels: '{alertname=\"%s\"}', value: 1}\n", alert)
			}
		}
	}
}

package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/browser"
)

// serversReport is the ConfigMap backends. NetBox and the primary Kea server have the given health.
func serversReport(t *testing.T, netbox, kea backend.Health) *corev1.ConfigMap {
	t.Helper()
	c := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta(platformNamespace(), backend.ConfigMapBackends), Data: map[string]string{}}
	for key, health := range map[string]backend.Health{"netbox": netbox, "kea.primary": kea} {
		r := backend.Report{Health: health, Since: born.Add(time.Hour), LastSeen: born.Time}
		if health != backend.Healthy {
			r.Reason, r.Message = "SourceUnavailable", "NetBox is not available: GET netbox.internal/api/: the request timed out"
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		c.Data[key] = string(text)
	}
	return c
}

// TestHealthOfBackends follows what the functions report through health, REST and metrics, there and back.
func TestHealthOfBackends(t *testing.T) {
	t.Parallel()
	s := start(t, "--handlers.metrics.updateInterval=0s")
	s.api.Put(t, "configmaps", reported(t, v1alpha1.Orphan{})) // the other ConfigMap, of orphans
	for _, step := range []struct {
		reason                    string
		netbox, kea               backend.Health
		overall, backends, ofKea  int
		status, netboxCheck, says string
		up                        float64
	}{
		{"both answer", "healthy", "healthy", 200, 200, 200, `"status":"healthy"`, `"netbox":"healthy"`, "", 1},
		{"NetBox hangs", "unreachable", "healthy", 200, 503, 200, `"status":"degraded"`, `"netbox":"unreachable"`, `"reason":"SourceUnavailable"`, 0},
		{"Kea, the only operator, hangs too", "unreachable", "unreachable", 503, 503, 503, `"status":"unhealthy"`, `"netbox":"unreachable"`, `"reason":"SourceUnavailable"`, 0},
		{"both answer again", "healthy", "healthy", 200, 200, 200, `"status":"healthy"`, `"netbox":"healthy"`, "", 1},
	} {
		s.api.Put(t, "configmaps", serversReport(t, step.netbox, step.kea))
		eventually(t, step.reason, func() bool {
			all, servers, operators := s.get("/health"), s.get("/health/backends"), s.get("/health/operators")
			n, there := value(families(t, s)["vitistack_backend_up"], "backend", "netbox")
			return all.StatusCode == step.overall && servers.StatusCode == step.backends && operators.StatusCode == step.ofKea && there && n == step.up &&
				strings.Contains(string(all.body), step.status) && strings.Contains(string(all.body), step.netboxCheck) && strings.Contains(string(servers.body), step.says)
		})
		for _, path := range []string{"/health", "/health/backends", "/health/operators"} {
			if body := string(s.get(path).body); strings.Contains(body, "netbox.internal") {
				t.Errorf("%s: %s names an address to anonymous callers: %s", step.reason, path, body)
			}
		}
	}
	body := string(s.get("/health/backends").body)
	for _, want := range []string{`"backend":"kea","name":"primary","owner":"network team","status":"healthy"`, `"since":"` + born.Add(time.Hour).UTC().Format(time.RFC3339), `"lastSeen":"` + born.UTC().Format(time.RFC3339)} {
		if !strings.Contains(body, want) {
			t.Errorf("/health/backends lacks %s: %s", want, body)
		}
	}
	if seen, _ := value(families(t, s)["vitistack_backend_last_seen_timestamp_seconds"], "backend", "kea"); seen != float64(born.Unix()) {
		t.Errorf("last seen at %v", seen)
	}
	if got := s.get("/api/v1/health/backends"); got.StatusCode != http.StatusOK {
		t.Errorf("below the API: %d", got.StatusCode)
	}
}

// TestBackupMetrics has series of an EtcdBackup while it exists.
func TestBackupMetrics(t *testing.T) {
	t.Parallel()
	s := start(t, "--handlers.metrics.updateInterval=0s")
	b := &v1alpha1.EtcdBackup{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "EtcdBackup"}, ObjectMeta: meta("team-a", "nightly")}
	b.Spec.Schedule = "@daily"
	b.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "BackupFailed", LastTransitionTime: born}}
	s.api.Put(t, "etcdbackups", b)
	eventually(t, "it fails, and has never succeeded", func() bool {
		ready, there := value(families(t, s)["vitistack_etcd_backup_ready"], "backup", "nightly")
		_, succeeded := value(families(t, s)["vitistack_etcd_backup_last_success_timestamp_seconds"], "backup", "nightly")
		return there && ready == 0 && !succeeded
	})
	b.Status.LastBackupTime, b.Status.Conditions[0].Status = &born, "True"
	s.api.Put(t, "etcdbackups", b)
	eventually(t, "it succeeds", func() bool {
		ready, _ := value(families(t, s)["vitistack_etcd_backup_ready"], "backup", "nightly")
		last, _ := value(families(t, s)["vitistack_etcd_backup_last_success_timestamp_seconds"], "backup", "nightly")
		return ready == 1 && last == float64(born.Unix())
	})
}

// TestBackups lists an EtcdBackup over REST, and shows it on the page, on that of its cluster, and among what needs attention.
func TestBackups(t *testing.T) {
	t.Parallel()
	s := start(t)
	shop := aCluster("team-a", "shop", "Running")
	shop.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Running", LastTransitionTime: born}}
	s.api.Put(t, "kubernetesclusters", shop)
	b := &v1alpha1.EtcdBackup{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "EtcdBackup"}, ObjectMeta: meta("team-a", "nightly")}
	b.Spec.ClusterName, b.Spec.Schedule, b.Spec.Retention, b.Spec.StorageLocation.Type = "shop", "@daily", 7, v1alpha1.BackupS3
	b.Status.Phase, b.Status.LastBackupTime, b.Status.BackupCount = v1alpha1.EtcdBackupFailed, &born, 3
	next := metav1.NewTime(time.Now().AddDate(0, 0, 20).Truncate(time.Second))
	b.Status.NextBackupTime = &next
	b.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "BackupFailed", Message: "bucket etcd is full", LastTransitionTime: born}}
	s.api.Put(t, "etcdbackups", b)
	eventually(t, "the list", func() bool { return s.get("/api/v1/backups").Header.Get("X-Total-Count") == "1" })
	for _, path := range []string{"uid-nightly", "team-a/nightly", "team-a%2Fnightly"} {
		got := s.get("/api/v1/backups/" + path).object(t)
		if got["cluster"] != "shop" || got["status"] != "failed" || got["snapshots"] != 3.0 || got["lastSuccess"] != "2026-01-02T03:04:05Z" || got["message"] != "bucket etcd is full" {
			t.Errorf("%s: %v", path, got)
		}
	}
	for query, want := range map[string]int{"cluster=shop": 1, "status!=failed": 0, "lastSuccess<=2026-02-01T00:00:00Z": 1, "lastSuccess>=2026-02-01T00:00:00Z": 0, "snapshots>=3": 1, "q=bucket": 1} {
		if n := len(names(t, s.get("/api/v1/backups?"+query), "backups")); n != want {
			t.Errorf("%s lists %d, want %d", query, n, want)
		}
	}
	page := browser.New(t, s.url, 1200, 800)
	page.Open("#/overview")
	page.Wait("the failed backup", `document.querySelector(".attention")?.textContent.includes("bucket etcd is full")`)
	page.Open("#/backups")
	page.Wait("the table", `document.querySelector("#main")?.textContent.includes("nightly")`)
	page.Accessible("backups")
	page.Open("#/backups/team-a/nightly")
	page.Wait("the backup", `document.querySelector("#main")?.textContent.includes("3 of at most 7")`)
	page.Accessible("one backup")
	page.Wait("the day of the next snapshot", `[...document.querySelectorAll(".facts div")].find((x) => x.textContent.startsWith("Next snapshot")).textContent.includes(
		new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" }).format(new Date("`+next.UTC().Format(time.RFC3339)+`")))`)
	page.Open("#/clusters/team-a/shop")
	page.Wait("the backup of the cluster", `document.querySelector("#backups-title")?.parentElement.textContent.includes("nightly")`)
}

// TestAddonsOfCluster shows on the page of a cluster which of its add-ons are applied, and why one is not.
func TestAddonsOfCluster(t *testing.T) {
	t.Parallel()
	s := start(t)
	shop := aCluster("team-a", "shop", "Running")
	shop.Status.Addons = []v1alpha1.AddonStatus{
		{Name: "cilium", Source: "ConfigMap cilium", Digest: "sha256:1", Objects: 41},
		{Name: "metrics", Source: "https://example.com/metrics.yaml", Message: "line 7 is no object"},
	}
	s.api.Put(t, "kubernetesclusters", shop)
	eventually(t, "the cluster", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "1" })
	page := browser.New(t, s.url, 1200, 800)
	page.Open("#/clusters/team-a/shop")
	page.Wait("the add-ons", `/cilium Applied ConfigMap cilium · 41 objects.*metrics Not applied https:\/\/example\.com\/metrics\.yaml · line 7 is no object/s.test(document.querySelector("#addons-title")?.parentElement.textContent.replace(/\s+/g, " "))`)
	page.Accessible("a cluster with add-ons")
}

// TestPageOfBackends shows a backend of networks that does not answer among what needs attention, with its owner.
func TestPageOfBackends(t *testing.T) {
	t.Parallel()
	s := start(t)
	b := browser.New(t, s.url, 1200, 800)
	s.api.Put(t, "configmaps", serversReport(t, backend.Unreachable, backend.Healthy))
	b.Open("#/overview")
	b.Wait("NetBox", `document.querySelector(".attention")?.textContent.includes("the request timed out")`)
	if text := b.Text(".attention"); !strings.Contains(text, "network team") || !strings.Contains(text, "Check that the provider of networks runs") {
		t.Errorf("the entry has to say who acts, and how: %s", text)
	}
	b.Accessible("backends")
	s.api.Put(t, "configmaps", serversReport(t, backend.Healthy, backend.Healthy))
	b.Wait("the end of it", `document.querySelector("main .headline.good")`)
	b.Clean()
}

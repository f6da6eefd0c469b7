package app

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// putLease stores a Lease with a label, renewed at a time, or never.
func putLease(t *testing.T, api *fakeapi.Server, name, label string, renewed time.Time) {
	t.Helper()
	l := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: platformNamespace(), Name: name, Labels: map[string]string{v1alpha1.LabelHeartbeat: label}},
	}
	if !renewed.IsZero() {
		l.Spec.RenewTime = &metav1.MicroTime{Time: renewed}
	}
	api.Put(t, "leases", l)
}

// startWithHeartbeats runs a gateway that expects a heartbeat each second, whose Leases another process renewed an hour ago.
func startWithHeartbeats(t *testing.T, settings ...string) *env {
	t.Helper()
	s := startCold(t, func(api *fakeapi.Server) {
		api.Serve("leases")
		for name, label := range map[string]string{"heartbeat-broker": "broker", "heartbeat-vitistack": "event-source", "heartbeat-vitistack-resources": "event-source", "resync": "resync"} {
			putLease(t, api, name, label, time.Now().Add(-time.Hour))
		}
	}, append(settings, "--heartbeat.schedule=@every 1s", "--resync.schedule=@every 1s", "--handlers.metrics.updateInterval=0s")...)
	s.waitReady()
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == http.StatusOK })
	return s
}

// beat delivers a heartbeat as the Broker does, and then the changes of its Lease that both sources report.
func (s *env) beat(sources ...string) {
	s.t.Helper()
	s.do(http.MethodPost, "/heartbeats", `{}`, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Type", events.TypePing, "Content-Type", "application/json",
		"Ce-Source", "/apis/v1/namespaces/"+platformNamespace()+"/pingsources/heartbeat")
	for _, eventType := range sources {
		got := s.do(http.MethodPost, "/heartbeats", `{}`, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "https://kubernetes", "Ce-Type", eventType,
			"Ce-Kind", "Lease", "Ce-Namespace", platformNamespace(), "Ce-Name", "heartbeat-broker", "Content-Type", "application/json")
		if got.StatusCode != http.StatusAccepted {
			s.t.Fatalf("a heartbeat is answered with %d: %s", got.StatusCode, got.body)
		}
	}
}

// TestSilenceShows follows health, metrics and the page's data of a gateway that starts after an hour without one: at first it does not
// know, then the Broker is silent, then one source, and then everything works.
func TestSilenceShows(t *testing.T) {
	t.Parallel()
	s := startWithHeartbeats(t)
	if body := string(s.get("/health").body); strings.Contains(body, `"broker":"unhealthy"`) {
		t.Errorf("right after the start the Broker is unhealthy: %s", body)
	}
	page := browser.New(t, s.url, 1200, 800)
	page.Open("#/overview")
	both := []string{events.TypeRefUpdate, events.TypeUpdate}
	for _, step := range []struct {
		reason                 string
		beats                  bool
		sources                []string
		resync                 bool
		code                   int
		checks, says, kind, of string
		up                     float64
	}{
		{"no heartbeat comes", false, nil, false, 503, `"broker":"unhealthy","eventSource":"unknown","resync":"unknown"`, "get broker,trigger,pingsource", "broker", "", 0},
		{"one source is silent, and resync too", true, both[:1], false, 200, `"broker":"healthy","eventSource":"unhealthy","resync":"unhealthy"`, "describe apiserversource vitistack-resources", "eventSource", "vitistack-resources", 0},
		{"all work", true, both, true, 200, `"broker":"healthy","eventSource":"healthy","resync":"healthy"`, "", "resync", "", 1},
	} {
		eventually(t, step.reason, func() bool {
			if step.beats {
				s.beat(step.sources...)
			}
			if step.resync {
				putLease(t, s.api, "resync", "resync", time.Now())
			}
			all, parts := s.get("/health"), s.get("/health/dependencies")
			up := -1.0
			for _, series := range strings.Split(string(s.get("/metrics").body), "\n") {
				if strings.HasPrefix(series, `vitistack_heartbeat_up{dependency="`+step.kind+`",name="`+step.of+`"} `) {
					up = float64(series[len(series)-1] - '0')
				}
			}
			return all.StatusCode == step.code && strings.Contains(string(all.body), step.checks) && strings.Contains(string(parts.body), step.says) && up == step.up &&
				strings.Contains(string(s.app.store.Current().Summary()), step.says)
		})
		if step.says != "" {
			page.Wait(step.reason, fmt.Sprintf(`document.querySelector(".attention")?.textContent.includes(%q)`, step.says))
		}
	}
	if got := s.get("/api/v1/health/dependencies"); got.StatusCode != http.StatusOK || !strings.Contains(string(got.body), `"kind":"database"`) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

// TestReplicasShareHeartbeats has one replica receive a heartbeat of each kind, and reads in the API what the others see of it.
func TestReplicasShareHeartbeats(t *testing.T) {
	t.Parallel()
	s := startWithHeartbeats(t)
	began := time.Now()
	s.beat(events.TypeRefUpdate, events.TypeUpdate)
	eventually(t, "the gateway renews the Leases, and no other", func() bool {
		var renewed []string
		for _, o := range s.app.store.Objects(inventory.KindLease) {
			if o.Facts.(*inventory.Lease).Renewed.After(began.Add(-time.Second)) {
				renewed = append(renewed, o.Name)
			}
		}
		slices.Sort(renewed)
		return slices.Equal(renewed, []string{"heartbeat-broker", "heartbeat-vitistack", "heartbeat-vitistack-resources"})
	})
}

// TestHeartbeatsAreNoDeadLetters has the Broker give up a heartbeat while the gateway restarts.
func TestHeartbeatsAreNoDeadLetters(t *testing.T) {
	t.Parallel()
	s := startWithHeartbeats(t)
	got := s.do(http.MethodPost, "/dead-letters?destination=heartbeat", `{}`, "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Type", events.TypePing, "Content-Type", "application/json",
		"Ce-Source", "/apis/v1/namespaces/"+platformNamespace()+"/pingsources/heartbeat")
	if list := s.get("/api/v1/dead-letters"); got.StatusCode != http.StatusAccepted || strings.Contains(string(list.body), "pingsources") {
		t.Errorf("%d, and the dead letters are %s", got.StatusCode, list.body)
	}
}

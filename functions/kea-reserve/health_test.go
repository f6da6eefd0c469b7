package main

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	apibackend "github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// reported returns the published report of a Kea server. It is empty if there is none.
func (w *env) reported(role string) (r apibackend.Report) {
	w.t.Helper()
	c := &corev1.ConfigMap{}
	w.must(w.kube.Get(w.t.Context(), w.namespace, apibackend.ConfigMapBackends, c))
	if text := c.Data[apibackend.ReportKey(apibackend.Kea, role)]; text != "" {
		w.must(json.Unmarshal([]byte(text), &r))
	}
	return r
}

// publishes makes the function of w one that publishes what it finds of the servers at the addresses.
func (w *env) publishes(urls []string, environment ...string) {
	w.t.Helper()
	w.reporter = backendhealth.New(w.kube, w.namespace)
	w.f = w.function(urls, environment...)
}

// TestHealthIsMeasured publishes what a delivery finds out about Kea, and what it does not.
func TestHealthIsMeasured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		rule   faults.Rule
		want   apibackend.Health
		why    string
	}{
		"Answers":      {reason: "it does what it is asked for", want: apibackend.Healthy},
		"Hangs":        {reason: "it accepts connections and does not answer", rule: faults.Rule{Latency: "1m"}, want: apibackend.Unreachable, why: "KeaUnavailable"},
		"Drops":        {reason: "the connection breaks", rule: faults.Rule{Error: "drop"}, want: apibackend.Unreachable, why: "KeaUnavailable"},
		"HangsLater":   {reason: "a server may stop at any command", rule: faults.Rule{Operation: "reservation-get-all", Latency: "1m"}, want: apibackend.Unreachable, why: "KeaUnavailable"},
		"Offline":      {reason: "the agent is there, and the DHCP server is not", rule: faults.Rule{Operation: "list-commands", Error: "offline"}, want: apibackend.Unreachable, why: "KeaUnavailable"},
		"Unauthorized": {reason: "it answers, and the credentials are wrong", rule: faults.Rule{Error: "401"}, want: apibackend.Unhealthy, why: "KeaUnauthorized"},
		"Refused":      {reason: "a reservation that Kea does not want says nothing about Kea", rule: faults.Rule{Operation: "reservation-add", Error: "no room"}, want: apibackend.Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := simulate(t, sim.Kea3, stand.Options{})
			w := newEnv(t, nil)
			w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: apibackend.ConfigMapBackends}}))
			w.publishes([]string{b.URL()}, "KEA_TIMEOUT_SECONDS=1")
			w.must(b.faults.Set(tc.rule))
			w.network("net", "10.77.0.0/24", nil)
			w.configuration("vm", []string{macA}, nil)
			_ = w.deliver("NetworkConfiguration", "vm", events.TypeRefAdd)
			got := w.reported("primary")
			if got.Health != tc.want || got.Reason != tc.why || got.Since.IsZero() {
				t.Errorf("%s: got %+v, want %s %s", tc.reason, got, tc.want, tc.why)
			}
			w.must(b.faults.Set())
			w.publishes([]string{b.URL()}) // another process, which knows nothing of the first
			w.reconcile("vm")
			if now := w.reported("primary"); now.Health != apibackend.Healthy || now.Reason != "" || now.LastSeen.IsZero() {
				t.Errorf("%s: after the recovery: %+v", tc.reason, now)
			}
		})
	}
}

// TestHealthAtResync finds an outage that no object needs a request for, and forgets a server that the installation no longer has.
func TestHealthAtResync(t *testing.T) {
	t.Parallel()
	for name, environment := range map[string]string{"Owned": "KEA_SHARED=false", "Shared": "KEA_SHARED=true"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := simulate(t, sim.Kea3, stand.Options{})
			w := newEnv(t, nil)
			w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: apibackend.ConfigMapBackends}}))
			round := func() { w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync)) }
			w.publishes([]string{b.URL(), "http://" + closedPort(t)}, environment)
			round()
			first, second := w.reported("primary"), w.reported("secondary")
			if first.Health != apibackend.Healthy || second.Health != apibackend.Unreachable || !strings.Contains(second.Message, "connection refused") {
				t.Errorf("one of two servers is down: %+v, %+v", first, second)
			}
			w.publishes([]string{b.URL()}, environment)
			round()
			if second := w.reported("secondary"); second.Health != "" {
				t.Errorf("the installation has one server: %+v", second)
			}
		})
	}
}

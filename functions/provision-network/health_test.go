package main

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/backendhealth"
	"github.com/vitistack/stack/tests/sim/faults"
)

// publishes makes the function of w one that reads an environment and publishes what it finds of servers.
func (w *env) publishes(values map[string]string) {
	w.f.namespace, w.f.reporter = w.namespace, backendhealth.New(w.kube, w.namespace)
	c := config{getenv: func(name string) string { return values[name] }, reporter: w.f.reporter}
	w.f.providers = c.providers()
}

// reported returns the published report of a server. It is empty if there is none.
func (w *env) reported(name string) (r backend.Report) {
	w.t.Helper()
	c := &corev1.ConfigMap{}
	w.must(w.kube.Get(w.t.Context(), w.namespace, backend.ConfigMapBackends, c))
	if text := c.Data[name]; text != "" {
		w.must(json.Unmarshal([]byte(text), &r))
	}
	return r
}

// TestHealthIsMeasured publishes what deliveries and rounds of resync find out about NAM and NetBox, and what they do not.
func TestHealthIsMeasured(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		rule   faults.Rule
		want   backend.Health
		why    string
	}{
		"Answers":      {reason: "it does what it is asked for", want: backend.Healthy},
		"Hangs":        {reason: "it accepts connections and does not answer", rule: faults.Rule{Latency: "3s"}, want: backend.Unreachable, why: "SourceUnavailable"},
		"Fails":        {reason: "it cannot work", rule: faults.Rule{Error: "503"}, want: backend.Unreachable, why: "SourceUnavailable"},
		"Unauthorized": {reason: "it answers, and the token is wrong", rule: faults.Rule{Error: "401"}, want: backend.Unhealthy, why: "SourceUnauthorized"},
		"Rejects":      {reason: "it does not like the request of one network", rule: faults.Rule{Error: "422"}, want: backend.Healthy},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, l := newManager(t, 0), newLibrary(t)
			w := newEnv(t, nil)
			w.must(w.kube.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: backend.ConfigMapBackends}}))
			values := map[string]string{
				"NAM_URL": m.url, "NAM_TOKEN": namToken, "NAM_TIMEOUT_SECONDS": "1",
				"NETBOX_URL": l.url, "NETBOX_TOKEN": netboxToken, "NETBOX_TIMEOUT_SECONDS": "1", "ALLOWED_ENDPOINTS": "0.0.0.0/0",
			}
			w.publishes(values)
			w.must(m.plan.Set(tc.rule))
			w.must(l.plan.Set(tc.rule))
			w.network("of-nam", asks(v1alpha2.ProviderNAM))
			w.network("of-netbox", netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 28}, Site: "az1", VLANGroup: "leafs"}))
			w.reconcile("of-nam")
			w.reconcile("of-netbox")
			for _, server := range servers {
				if got := w.reported(server); got.Health != tc.want || got.Reason != tc.why {
					t.Errorf("%s: %s: got %+v, want %s %s", tc.reason, server, got, tc.want, tc.why)
				}
			}
			w.must(m.plan.Set())
			w.must(l.plan.Set())
			for _, shared := range []bool{false, true} {
				w.publishes(values) // another process, which knows nothing of the first
				w.f.sharedNetBox = shared
				w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync))
				for _, server := range servers {
					if got := w.reported(server); got.Health != backend.Healthy || got.Reason != "" || got.LastSeen.IsZero() {
						t.Errorf("%s: %s after the recovery, at the next round of resync: %+v", tc.reason, server, got)
					}
				}
				w.must(m.plan.Set(faults.Rule{Error: "drop"}))
				w.must(l.plan.Set(faults.Rule{Error: "drop"}))
				w.publishes(values)
				w.f.sharedNetBox = shared
				w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync))
				for _, server := range servers {
					if got := w.reported(server); got.Health != backend.Unreachable {
						t.Errorf("%s: %s is down, and no network needs it: %+v", tc.reason, server, got)
					}
				}
				w.must(m.plan.Set())
				w.must(l.plan.Set())
			}
			w.publishes(nil)
			w.must(w.deliver("ConfigMap", v1alpha1.ConfigMapOrphans, events.TypeResync))
			if got := w.reported(v1alpha2.ProviderNAM).Health + w.reported(v1alpha2.ProviderNetBox).Health; got != "" {
				t.Errorf("the installation has neither: %s", got)
			}
		})
	}
}

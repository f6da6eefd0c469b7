package engine

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	cloudevents "github.com/cloudevents/sdk-go/v2"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/google/go-cmp/cmp"
	"knative.dev/eventing/pkg/adapter/apiserver"
	sourcesv1 "knative.dev/eventing/pkg/apis/sources/v1"
	"sigs.k8s.io/yaml"
)

func TestSourceEnvironment(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		spec     string
		proxy    string
		wantSink string
		want     apiserver.Config
		invalid  bool
	}{
		"All": {
			reason: "an empty selector is all namespaces", spec: "namespaceSelector: {}\nmode: Reference\nresources: [{apiVersion: vitistack.io/v1alpha1, kind: Machine}]",
			wantSink: "http://broker/ns/vitistack",
			want:     apiserver.Config{Namespaces: []string{""}, AllNamespaces: true, EventMode: "Reference", Resources: []apiserver.ResourceWatch{{GVR: machines}}},
		},
		"Own": {
			reason: "without a selector it is the source's own namespace", spec: "mode: Resource\nresources: [{apiVersion: vitistack.io/v1alpha1, kind: Machine, selector: {matchLabels: {a: b}}}]",
			wantSink: "http://broker/ns/vitistack",
			want:     apiserver.Config{Namespaces: []string{"ns"}, EventMode: "Resource", Resources: []apiserver.ResourceWatch{{GVR: machines, LabelSelector: "a=b"}}},
		},
		"Proxy": {
			reason: "a proxy replaces the Broker", spec: "namespaceSelector: {}", proxy: "http://proxy/", wantSink: "http://proxy/",
			want: apiserver.Config{Namespaces: []string{""}, AllNamespaces: true},
		},
		"Selector": {reason: "a selector of namespaces is an error, because it is not supported", spec: "namespaceSelector: {matchLabels: {a: b}}", invalid: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object := &sourcesv1.ApiServerSource{}
			if err := yaml.Unmarshal([]byte(tc.spec), &object.Spec); err != nil {
				t.Fatal(err)
			}
			ref := brokerRef("", "vitistack")
			object.Namespace, object.Name, object.Spec.Sink.Ref = "ns", "source", &ref
			a := newAddresses(nil)
			if tc.proxy != "" {
				a.ingress = mustURL(tc.proxy)
			}
			a.set(brokerRef("ns", "vitistack"), mustURL("http://broker/ns/vitistack"))
			s, err := newSource(object, &programs{addresses: a})
			if (err != nil) != tc.invalid {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if tc.invalid {
				return
			}
			env, err := s.environment()
			if err != nil {
				t.Fatal(err)
			}
			var config apiserver.Config
			if err := json.Unmarshal([]byte(env["K_SOURCE_CONFIG"]), &config); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.wantSink, env["K_SINK"]); diff != "" {
				t.Errorf("%s: sink (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, config); diff != "" {
				t.Errorf("%s: configuration (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPinger(t *testing.T) {
	t.Parallel()
	got := make(chan cloudevents.Event, 100)
	refuse := make(chan struct{}, 1)
	refuse <- struct{}{} // the first request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-refuse:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		default:
		}
		e, err := cehttp.NewEventFromHTTPRequest(r)
		if err != nil {
			t.Error(err)
			return
		}
		got <- *e
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(server.Close)
	source := &sourcesv1.PingSource{}
	source.Namespace, source.Name = "ns", "tick"
	source.Spec.Schedule, source.Spec.ContentType, source.Spec.Data = "0 0 1 1 *", "application/json", `{"a":1}`
	p, err := newPinger(source, mustURL(server.URL), 20*time.Millisecond, slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	go p.run(t.Context())
	first, second := <-got, <-got
	want := []string{"dev.knative.sources.ping", "/apis/v1/namespaces/ns/pingsources/tick", `{"a":1}`, "application/json"}
	if diff := cmp.Diff(want, []string{first.Type(), first.Source(), string(first.Data()), first.DataContentType()}); diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
	if first.ID() == second.ID() {
		t.Errorf("two events have the id %s", first.ID())
	}
}

func TestPingSchedule(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cases := map[string]struct {
		reason             string
		schedule, timezone string
		interval           time.Duration
		want               time.Time // zero: it is rejected
	}{
		"Minute":   {reason: "a cron schedule", schedule: "* * * * *", want: time.Date(2026, 1, 2, 3, 5, 0, 0, time.UTC)},
		"Second":   {reason: "with seconds", schedule: "*/30 * * * * *", want: time.Date(2026, 1, 2, 3, 4, 30, 0, time.UTC)},
		"Timezone": {reason: "a cron schedule in a time zone", schedule: "0 6 * * *", timezone: "Europe/Oslo", want: time.Date(2026, 1, 2, 5, 0, 0, 0, time.UTC)},
		"Interval": {reason: "an interval replaces the schedule", schedule: "* * * * *", interval: 50 * time.Millisecond, want: now.Add(50 * time.Millisecond)},
		"Invalid":  {reason: "a schedule must parse", schedule: "often"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := &sourcesv1.PingSource{}
			source.Spec.Schedule, source.Spec.Timezone = tc.schedule, tc.timezone
			p, err := newPinger(source, mustURL("http://sink/"), tc.interval, slog.Default())
			if (err != nil) != tc.want.IsZero() {
				t.Fatalf("%s: got error %v", tc.reason, err)
			}
			if err == nil && !p.schedule.Next(now).Equal(tc.want) {
				t.Errorf("%s: next is %s, want %s", tc.reason, p.schedule.Next(now), tc.want)
			}
		})
	}
}

package runner

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"

	"github.com/vitistack/stack/knative/local/broker"
)

// BenchmarkDelivery measures the cost of an event in this process from the handler of the ingress to the answer of a function's process: with a call
// within the process, as in the engine, and over a connection.
func BenchmarkDelivery(b *testing.B) {
	f, served := newFunction(b, "well", nil)
	for name, near := range map[string]http.RoundTripper{"Within": f, "Connection": nil} {
		b.Run(name, func(b *testing.B) {
			events := broker.New(slog.New(slog.NewTextHandler(io.Discard, nil)), near)
			defer events.Close()
			events.SetTriggers([]broker.Trigger{trigger(b, served+"/take")})
			await := func(n int) {
				eventually(b, "every event is delivered", func() bool { return events.Stats().Triggers[0].Delivered >= int64(n) })
			}
			send(b, events, "first")
			await(1)
			before := processorTime(b)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				send(b, events, fmt.Sprint(n))
				if n++; n%50 == 0 {
					await(n)
				}
			}
			await(n + 1)
			b.ReportMetric(float64((processorTime(b)-before).Microseconds())/float64(n), "cpu-µs/op")
		})
	}
}

func trigger(t testing.TB, subscriber string) broker.Trigger {
	t.Helper()
	u, err := url.Parse(subscriber)
	if err != nil {
		t.Fatal(err)
	}
	object := &eventingv1.Trigger{Spec: eventingv1.TriggerSpec{Broker: "b", Subscriber: duckv1.Destination{URI: (*apis.URL)(u)}}}
	compiled, err := broker.Compile(object, &eventingv1.Broker{}, func(d duckv1.Destination, _ string) (*url.URL, error) { return d.URI.URL(), nil })
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

func send(t testing.TB, ingress http.Handler, id string) {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"kind":"Thing","name":"thing"}`))
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Ce-Specversion": "1.0", "Ce-Id": id, "Ce-Source": "https://127.0.0.1:6443",
		"Ce-Type": "dev.knative.apiserver.ref.update", "Ce-Subject": "/apis/test/v1/namespaces/default/things/" + id,
		"Ce-Kind": "Thing", "Ce-Name": "thing", "Ce-Namespace": "default", "Ce-Apiversion": "test/v1",
	} {
		request.Header[name] = []string{value}
	}
	answer := httptest.NewRecorder()
	if ingress.ServeHTTP(answer, request); answer.Code != http.StatusAccepted {
		t.Fatalf("the broker answers %d: %s", answer.Code, answer.Body)
	}
}

func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

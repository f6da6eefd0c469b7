package broker

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	eventingduck "knative.dev/eventing/pkg/apis/duck/v1"
	eventingv1 "knative.dev/eventing/pkg/apis/eventing/v1"
	"knative.dev/eventing/pkg/auth"
	"knative.dev/eventing/pkg/eventingtls"
	"knative.dev/eventing/pkg/kncloudevents"
	"knative.dev/pkg/apis"
	duckv1 "knative.dev/pkg/apis/duck/v1"
	kubeclient "knative.dev/pkg/client/injection/kube/client"
	"sigs.k8s.io/yaml"
)

func TestMain(m *testing.M) {
	// Knative's dispatcher reads its own namespace when it writes a dead letter.
	if err := os.Setenv("SYSTEM_NAMESPACE", "knative-eventing"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestAgainstKnative sends the same event with the same delivery spec through Knative's dispatcher and through this
// broker, and compares what the subscriber, the dead letter sink and the receiver of replies get.
func TestAgainstKnative(t *testing.T) {
	t.Parallel()
	fast := "{retry: 3, backoffPolicy: exponential, backoffDelay: PT0.1S}"
	linear := "{retry: 2, backoffPolicy: linear, backoffDelay: PT0.1S}"
	reply := newEvent("reply", withType("thing.done"), withExtension("traced", "yes"))
	type scenario struct {
		reason   string
		delivery string
		answer   func(http.ResponseWriter, event.Event, int)
		down     bool // the subscriber does not listen
		deadDown bool // the dead letter sink fails at first
	}
	cases := map[string]scenario{
		"Delivered":    {reason: "no retry is necessary", delivery: fast, answer: codes(202)},
		"Reply":        {reason: "the reply is forwarded", delivery: fast, answer: replies(reply)},
		"NoRetries":    {reason: "without retries there is one attempt", delivery: "{}", answer: codes(500)},
		"Recovers":     {reason: "two failures, then success", delivery: fast, answer: codes(503, 500, 200)},
		"Exponential":  {reason: "all attempts fail", delivery: fast, answer: codes(503)},
		"Linear":       {reason: "the first retry has no delay", delivery: linear, answer: codes(503)},
		"NoPolicy":     {reason: "without a policy there is no delay", delivery: "{retry: 2}", answer: codes(503)},
		"Refused":      {reason: "the port is closed", delivery: fast, down: true},
		"SinkRecovers": {reason: "dead letters are retried too", delivery: fast, answer: codes(422), deadDown: true},
		"Structured":   {reason: "format JSON is structured mode", delivery: "{format: json}", answer: codes(500)},
		"Slow":         {reason: "a request that takes too long fails", delivery: "{timeout: PT0.1S, retry: 1}", answer: func(_ http.ResponseWriter, _ event.Event, n int) { wait(n == 0) }},
	}
	for _, code := range []int{301, 400, 401, 403, 404, 405, 408, 409, 410, 413, 415, 422, 425, 429, 500, 501, 502, 503, 504} {
		cases[fmt.Sprint("Code", code)] = scenario{reason: "the retry table", delivery: fast, answer: codes(code)}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			send := func(through func(t *testing.T, delivery eventingduck.DeliverySpec, w world)) observed {
				w := world{reply: newSink(t, nil)}
				if tc.down {
					w.subscriber = newSink(t, nil)
					w.subscriber.Close()
				} else {
					w.subscriber = newSink(t, tc.answer)
				}
				deadAnswer := codes(200)
				if tc.deadDown {
					deadAnswer = codes(503, 200)
				}
				w.dead = newSink(t, deadAnswer)
				var delivery eventingduck.DeliverySpec
				if err := yaml.UnmarshalStrict([]byte(tc.delivery), &delivery); err != nil {
					t.Fatal(err)
				}
				dead := "dead letters"
				delivery.DeadLetterSink = &duckv1.Destination{URI: mustURL(t, w.dead.URL), Audience: &dead}
				through(t, delivery, w)
				return w.observe()
			}
			want, got := send(throughKnative), send(throughBroker)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: Knative (-) and this broker (+) differ:\n%s", tc.reason, diff)
			}
		})
	}
}

// newTokens returns Knative's own provider of tokens, with an API server whose tokens contain the ServiceAccount and the audience.
func newTokens(t *testing.T) *auth.OIDCTokenProvider {
	t.Helper()
	client := fake.NewClientset()
	client.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := action.(clienttesting.CreateActionImpl)
		answer := request.GetObject().(*authenticationv1.TokenRequest).DeepCopy()
		answer.Status.Token = fmt.Sprintf("%s/%s for %s", request.Namespace, request.Name, answer.Spec.Audiences)
		answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(time.Hour))
		return true, answer, nil
	})
	return auth.NewOIDCTokenProvider(context.WithValue(t.Context(), kubeclient.Key{}, client))
}

// dispatchError is the prefix of the error data of a request without a response: "dispatch error: " in
// base64.
const dispatchError = "ZGlzcGF0Y2ggZXJyb3I6"

type world struct{ subscriber, dead, reply *sink }

type observed struct{ Subscriber, Dead, Reply []string }

func throughKnative(t *testing.T, delivery eventingduck.DeliverySpec, w world) {
	t.Helper()
	retry, err := kncloudevents.RetryConfigFromDeliverySpec(delivery)
	if err != nil {
		t.Fatal(err)
	}
	dispatcher := kncloudevents.NewDispatcher(eventingtls.ClientConfig{}, newTokens(t))
	audience := "subscriber"
	e := newEvent("1")
	options := []kncloudevents.SendOption{
		kncloudevents.WithReply(&duckv1.Addressable{URL: mustURL(t, w.reply.URL)}),
		kncloudevents.WithDeadLetterSink(&duckv1.Addressable{URL: delivery.DeadLetterSink.URI, Audience: delivery.DeadLetterSink.Audience}),
		kncloudevents.WithOIDCAuthentication(&types.NamespacedName{Namespace: "default", Name: "subscriber-oidc"}),
		kncloudevents.WithRetryConfig(&retry),
		kncloudevents.WithHeader(http.Header{"Kn-Namespace": []string{"default"}}),
		kncloudevents.WithEventFormat(delivery.Format),
	}
	if _, err := dispatcher.SendEvent(t.Context(), e, duckv1.Addressable{URL: mustURL(t, w.subscriber.URL), Audience: &audience}, options...); err != nil {
		t.Logf("knative: %v", err)
	}
}

func throughBroker(t *testing.T, delivery eventingduck.DeliverySpec, w world) {
	t.Helper()
	tokens, named := newTokens(t), "subscriber"
	trigger := func(name, kind string, to *sink, d *eventingduck.DeliverySpec, audience *string) Trigger {
		compiled, err := Compile(&eventingv1.Trigger{Spec: eventingv1.TriggerSpec{
			Broker: "b", Filter: &eventingv1.TriggerFilter{Attributes: map[string]string{"type": kind}},
			Subscriber: duckv1.Destination{URI: mustURL(t, to.URL), Audience: audience}, Delivery: d,
		}}, &eventingv1.Broker{}, literal)
		if err != nil {
			t.Fatal(err)
		}
		compiled.Namespace, compiled.Name = "default", name
		return compiled.WithIdentity(tokens, name+"-oidc")
	}
	b, send := start(t, trigger("subscriber", "thing.changed", w.subscriber, &delivery, &named), trigger("reply", "thing.done", w.reply, nil, nil))
	send(newEvent("1"))
	awaitDelivered(t, b)
}

func (w world) observe() observed {
	return observed{Subscriber: w.describe(w.subscriber), Dead: w.describe(w.dead), Reply: w.describe(w.reply)}
}

// describe formats each request: the event without the extensions of the broker's ingress, and the relevant headers.
func (w world) describe(s *sink) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := []string{}
	for i, e := range s.events {
		extensions := []string{}
		for name, value := range e.Extensions() {
			if name == "knativearrivaltime" {
				continue
			}
			text := fmt.Sprint(value)
			for role, sink := range map[string]*sink{"SUBSCRIBER": w.subscriber, "DEAD": w.dead, "REPLY": w.reply} {
				text = strings.ReplaceAll(text, sink.URL, role)
			}
			if strings.HasPrefix(text, dispatchError) {
				text = "dispatch error" // the rest contains ports and times
			}
			extensions = append(extensions, name+"="+text)
		}
		slices.Sort(extensions)
		h := s.header[i]
		prefer := h.Get("Prefer")
		if s == w.reply {
			prefer = "" // Knative's dispatcher sends it to a broker, this broker to a subscriber
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %s %s %v prefer=%q namespace=%q structured=%v authorization=%q",
			e.ID(), e.Type(), e.Source(), e.Subject(), e.Data(), extensions, prefer, h.Get("Kn-Namespace"),
			strings.HasPrefix(h.Get("Content-Type"), "application/cloudevents"), h.Values("Authorization")))
	}
	return lines
}

// TestBackoff checks the delays between attempts in real requests. They are computed by Knative's
// code.
func TestBackoff(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		delivery string
		want     []time.Duration
	}{
		"Exponential": {reason: "delay * 2^n", delivery: "{retry: 3, backoffPolicy: exponential, backoffDelay: PT0.1S}", want: []time.Duration{100e6, 200e6, 400e6}},
		"Linear":      {reason: "delay * n, the first at once", delivery: "{retry: 3, backoffPolicy: linear, backoffDelay: PT0.1S}", want: []time.Duration{0, 100e6, 200e6}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSink(t, codes(503))
			b, send := start(t, compile(t, "t", "subscriber: {uri: "+s.URL+"}\ndelivery: "+tc.delivery))
			send(newEvent("1"))
			awaitDelivered(t, b)
			if len(s.times) != len(tc.want)+1 {
				t.Fatalf("%s: %d tries, want %d", tc.reason, len(s.times), len(tc.want)+1)
			}
			for i, least := range tc.want {
				if got := s.times[i+1].Sub(s.times[i]); got < least {
					t.Errorf("%s: attempt %d came after %s, want at least %s", tc.reason, i+2, got, least)
				}
			}
			if stats := b.Stats().Triggers[0]; stats.Retried != 3 || stats.Dropped != 1 {
				t.Errorf("%s: counters %+v", tc.reason, stats)
			}
		})
	}
}

func mustURL(t *testing.T, text string) *apis.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return (*apis.URL)(u)
}

func wait(long bool) {
	if long {
		<-time.After(300 * time.Millisecond)
	}
}

package install

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestDeliveryOfTriggers renders each class of Broker. NatsJetStreamBroker, for one, reads the delivery of
// Triggers only, and reports no receiver with a dead letter.
func TestDeliveryOfTriggers(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct {
		reason, set   string
		retry         int64
		policy, delay string
	}{
		"InMemory": {"the Broker of the manifests", "broker.class=MTChannelBasedBroker", 16, "linear", "PT0.4S"},
		"Kafka":    {"an event that waits for a retry takes the place of another", "broker.class=Kafka", 5, "exponential", "PT0.5S"},
		"NATS":     {"it reads the delivery of Triggers only, with both fields of the back-off", "broker.class=NatsJetStreamBroker", 16, "linear", "PT0.4S"},
		"Values":   {"the values count most", "broker.class=Kafka,broker.delivery.retry=3,broker.delivery.backoffDelay=PT2S", 3, "exponential", "PT2S"},
		"Never":    {"zero is a number", "broker.delivery.retry=0", 0, "linear", "PT0.4S"},
	} {
		found := 0
		for _, object := range h.render(t, tc.set) {
			if object.GetKind() != "Trigger" && object.GetKind() != "Broker" {
				continue
			}
			found++
			uri := "/dead-letters"
			if object.GetKind() == "Trigger" {
				uri += "?destination=" + object.GetName()
			}
			want := map[string]any{
				"retry": tc.retry, "backoffPolicy": tc.policy, "backoffDelay": tc.delay, "timeout": "PT30S",
				"deadLetterSink": map[string]any{
					"ref": map[string]any{"apiVersion": "v1", "kind": "Service", "name": "gateway-events", "namespace": namespace},
					"uri": uri, "audience": namespace + "/gateway-events",
				},
			}
			if object.GetName() == "gateway" { // nothing repeats what it has not recorded, with every class
				want["retry"], want["backoffPolicy"], want["backoffDelay"] = int64(62), "linear", "PT2S"
			}
			if object.GetName() == "etcd-backup" { // its deliveries take long, with every class
				want["retry"], want["backoffPolicy"], want["backoffDelay"], want["timeout"] = int64(8), "exponential", "PT0.2S", "PT9M30S"
			}
			got, _, err := unstructured.NestedMap(object.Object, "spec", "delivery")
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%s (%s): %s %s has %v (-want +got):\n%s", name, tc.reason, object.GetKind(), object.GetName(), err, diff)
			}
		}
		if found != 10 {
			t.Errorf("%s: %d Brokers and Triggers, want 10", name, found)
		}
	}
}

// TestBrokerIsRefused renders with the schema of the values and without it, as some tools do.
func TestBrokerIsRefused(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct{ reason, set, want string }{
		"Unknown": {"an unknown class would become the one in memory", "broker.class=Pulsar", `broker.class "Pulsar" does not exist: write one of Kafka, MTChannelBasedBroker, NatsJetStreamBroker`},
		"NATS":    {"the class ignores policies", "broker.class=NatsJetStreamBroker,eventPolicy.enabled=true", "eventPolicy.enabled has no effect with broker.class NatsJetStreamBroker"},
		"Filters": {"the class ignores filters", "broker.class=RabbitMQBroker", "broker.class RabbitMQBroker ignores spec.filters of Triggers, so that every function would receive every event: write one of Kafka, MTChannelBasedBroker, NatsJetStreamBroker"},
	} {
		for _, args := range [][]string{nil, {"--skip-schema-validation"}} {
			_, err := h.run(t.Context(), append([]string{"template", "vitistack", chart(), "--set", tc.set}, args...)...)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s (%s): %v: got %v\nwant %s", name, tc.reason, args, err, tc.want)
			}
		}
	}
}

// TestBrokersFilter expects the chart and the variants to have only classes whose Broker applies spec.filters, because a Trigger of
// the stack has no other filter: with another class every function would receive every event.
func TestBrokersFilter(t *testing.T) {
	t.Parallel()
	// The source that applies spec.filters of a Trigger, and what RabbitMQBroker has instead.
	sources := map[string]string{
		"MTChannelBasedBroker": "github.com/knative/eventing pkg/broker/filter/filter_handler.go",
		"Kafka":                "github.com/knative-extensions/eventing-kafka-broker control-plane/pkg/reconciler/consumer/consumer.go",
		"NatsJetStreamBroker":  "github.com/knative-extensions/eventing-natss pkg/broker/filter/handler.go",
		// github.com/knative-extensions/eventing-rabbitmq pkg/reconciler/trigger/trigger.go reads spec.filter only.
		"RabbitMQBroker": "",
	}
	h := newHelm(t, &rest.Config{})
	_, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "broker.class=Unknown")
	if err == nil {
		t.Fatal("an unknown class is rendered")
	}
	_, list, _ := strings.Cut(err.Error(), "write one of ")
	list, _, _ = strings.Cut(list, "\n")
	classes := strings.Split(strings.TrimSpace(list), ", ")
	variants, err := filepath.Glob(filepath.Join(engine.Root(), "knative", "variants", "*", "broker.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range variants {
		for _, object := range kustomize(t, filepath.Join("knative", "variants", filepath.Base(filepath.Dir(path)))) {
			if object.GetKind() == "Broker" {
				classes = append(classes, object.GetAnnotations()["eventing.knative.dev/broker.class"])
			}
		}
	}
	if len(classes) < 5 {
		t.Errorf("only the classes %v were found", classes)
	}
	for _, class := range classes {
		if sources[class] == "" {
			t.Errorf("the class %s is rendered: show the source of its Broker that applies spec.filters of Triggers, or refuse the class", class)
		}
	}
	for _, object := range h.render(t, "") {
		if _, exists, _ := unstructured.NestedSlice(object.Object, "spec", "filters"); object.GetKind() == "Trigger" && !exists {
			t.Errorf("Trigger %s has no spec.filters", object.GetName())
		}
	}
}

// TestStreamOfNATS reads the configuration of the stream, whose defaults keep every event for ever on one server.
func TestStreamOfNATS(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for _, object := range h.render(t, "broker.class=NatsJetStreamBroker,broker.nats.replicas=5,broker.nats.maxAge=2h") {
		if object.GetKind() != "Broker" {
			continue
		}
		var got struct{ Stream, Consumer map[string]any }
		if err := json.Unmarshal([]byte(object.GetAnnotations()["natsjetstream.eventing.knative.dev/config"]), &got); err != nil {
			t.Fatal(err)
		}
		want := map[string]any{"discard": "Old", "maxAge": "2h", "replicas": 5.0, "retention": "Limits", "storage": "File"}
		if diff := cmp.Diff(want, got.Stream); diff != "" || object.GetAnnotations()["eventing.knative.dev/broker.class"] != "NatsJetStreamBroker" {
			t.Errorf("annotations %v (-want +got):\n%s", object.GetAnnotations(), diff)
		}
		return
	}
	t.Error("the chart has no Broker")
}

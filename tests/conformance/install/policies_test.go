package install

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
)

// place is a pod as network policies see it. Knative sets its labels.
type place struct {
	namespace string
	labels    labels.Set
	ports     map[string]int32
}

var (
	source   = place{namespace: namespace, labels: labels.Set{"eventing.knative.dev/source": "apiserver-source-controller", "eventing.knative.dev/sourceName": "vitistack"}}
	function = place{namespace: namespace, labels: labels.Set{"serving.knative.dev/service": "kea-reserve", "app.kubernetes.io/name": "kea-reserve"}}
	gateway  = place{namespace: namespace, labels: labels.Set{"app.kubernetes.io/name": "gateway"}, ports: map[string]int32{"http": 9991, "broker": 9992}}
	eventing = place{namespace: "knative-eventing"}
	kourier  = place{namespace: "kourier-system"}
	filter   = place{namespace: namespace, labels: labels.Set{"eventing.knative.dev/broker": "vitistack", "eventing.knative.dev/role": "filter"}}
	nats     = place{namespace: "nats-io"}
	stranger = place{namespace: "default"}
)

// TestPolicies checks the connections of each class of Broker against the policies of the chart, and
// of knative/ with the variant.
func TestPolicies(t *testing.T) {
	t.Parallel()
	const memory, kafka, jetStream = "MTChannelBasedBroker", "Kafka", "NatsJetStreamBroker"
	classes := map[string]string{memory: "", kafka: "knative/variants/kafka", jetStream: "knative/variants/nats"}
	every := []string{memory, kafka, jetStream}
	tests := map[string]struct {
		reason   string
		classes  []string
		from, to place
		ports    []int32
		want     bool
	}{
		"IngressToFunction":  {"Knative's ingress delivers to functions", every, kourier, function, []int32{8012, 8112}, true},
		"StrangerToFunction": {"no other pod may call a function", every, stranger, function, []int32{8012}, false},
		"KnativeToGateway":   {"the data plane in Knative's namespace delivers", []string{memory, kafka}, eventing, gateway, []int32{9992}, true},
		"StrangerToGateway":  {"every pod may use the REST API", every, stranger, gateway, []int32{9991}, true},
		"StrangerDelivers":   {"only Knative delivers", every, stranger, gateway, []int32{9992}, false},
		"SourceToKnative":    {"the Broker is in Knative's namespace", every, source, eventing, []int32{8080, 8443}, true},
		"FunctionToKnative":  {"functions send events themselves", every, function, eventing, []int32{8080, 8443}, true},
		"FilterToNATS":       {"the filter reads the events", []string{jetStream}, filter, nats, []int32{4222}, true},
		"FunctionToNATS":     {"no other pod uses NATS", []string{jetStream}, function, nats, []int32{4222}, false},
		"FilterToKourier":    {"the filter reaches functions through Knative's ingress", []string{jetStream}, filter, kourier, []int32{8081, 8444}, true},
		"FilterToGateway":    {"events and dead letters go to the gateway directly", []string{jetStream}, filter, gateway, []int32{9992}, true},
		"FilterToKnative":    {"the reply of a function is an event", []string{jetStream}, filter, eventing, []int32{8080}, true},
		"FilterToStranger":   {"the filter connects to no other pod", []string{jetStream}, filter, stranger, []int32{8080}, false},
	}
	h := newHelm(t, &rest.Config{})
	for class, variant := range classes {
		ways := map[string][]*unstructured.Unstructured{"chart": h.render(t, "broker.class="+class)}
		if variant != "" {
			ways["kustomize"] = kustomize(t, variant)
		}
		for way, objects := range ways {
			policies := policiesOf(t, objects)
			for name, tc := range tests {
				for _, port := range tc.ports {
					if got := reaches(t, policies, tc.from, tc.to, port); slices.Contains(tc.classes, class) && got != tc.want {
						t.Errorf("%s, %s, %s at port %d: %t, want %t: %s", class, way, name, port, got, tc.want, tc.reason)
					}
				}
			}
		}
	}
}

// TestIngressNamespaces sets another ingress of Knative, and expects it in all policies.
func TestIngressNamespaces(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	rendered, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "broker.class=NatsJetStreamBroker,networkPolicy.ingressNamespaces={knative-serving,gateways}")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(rendered, "kourier-system") || strings.Count(rendered, "- gateways\n") != 2 {
		t.Error("networkPolicy.ingressNamespaces differs from the policies")
	}
}

// TestNamespaceAdmitsNATS checks that the pod security level of the namespace admits the filter of
// Knative's Broker on NATS JetStream, which has no security context.
func TestNamespaceAdmitsNATS(t *testing.T) {
	t.Parallel()
	for _, object := range kustomize(t, "knative/variants/nats") {
		if level := object.GetLabels()["pod-security.kubernetes.io/enforce"]; object.GetKind() == "Namespace" && level != "baseline" {
			t.Errorf("the namespace enforces %s", level)
		}
	}
}

func policiesOf(t *testing.T, objects []*unstructured.Unstructured) []networkingv1.NetworkPolicy {
	t.Helper()
	var all []networkingv1.NetworkPolicy
	for _, object := range objects {
		if object.GetKind() != "NetworkPolicy" {
			continue
		}
		var policy networkingv1.NetworkPolicy
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &policy); err != nil {
			t.Fatal(err)
		}
		all = append(all, policy)
	}
	return all
}

// reaches reports whether policies permit a connection from one pod to another. Only the namespace of
// the stack has policies.
func reaches(t *testing.T, policies []networkingv1.NetworkPolicy, from, to place, port int32) bool {
	t.Helper()
	out, in := from.namespace != namespace, to.namespace != namespace
	for _, policy := range policies {
		if from.namespace == namespace && matches(t, &policy.Spec.PodSelector, from.labels) {
			for _, rule := range policy.Spec.Egress {
				out = out || hasPort(rule.Ports, to, port) && peers(t, rule.To, to)
			}
		}
		if to.namespace == namespace && matches(t, &policy.Spec.PodSelector, to.labels) {
			for _, rule := range policy.Spec.Ingress {
				in = in || hasPort(rule.Ports, to, port) && peers(t, rule.From, from)
			}
		}
	}
	return out && in
}

func hasPort(ports []networkingv1.NetworkPolicyPort, to place, port int32) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return *p.Protocol == corev1.ProtocolTCP && (p.Port.IntVal == port || p.Port.Type == intstr.String && to.ports[p.Port.StrVal] == port)
	})
}

func peers(t *testing.T, peers []networkingv1.NetworkPolicyPeer, pod place) bool {
	t.Helper()
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.NamespaceSelector == nil && pod.namespace != namespace {
			return false
		}
		return (p.NamespaceSelector == nil || matches(t, p.NamespaceSelector, labels.Set{"kubernetes.io/metadata.name": pod.namespace})) &&
			(p.PodSelector == nil || matches(t, p.PodSelector, pod.labels))
	})
}

func matches(t *testing.T, selector *metav1.LabelSelector, of labels.Set) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(of)
}

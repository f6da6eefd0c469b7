package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestTarget(t *testing.T) {
	container := []corev1.ContainerPort{{Name: "http", ContainerPort: 9991}, {Name: "broker", ContainerPort: 9992}}
	cases := map[string]struct {
		reason string
		ports  []corev1.ServicePort
		want   int32
	}{
		"Named":   {"a name refers to a port of the container", []corev1.ServicePort{{Port: 9991, TargetPort: intstr.FromString("http")}, {Port: 80, TargetPort: intstr.FromString("broker")}}, 9992},
		"Number":  {"a number is a port of the container", []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(9991)}}, 9991},
		"Same":    {"without a target port it is the same port", []corev1.ServicePort{{Port: 80}}, 80},
		"No80":    {"Knative sends to port 80 only", []corev1.ServicePort{{Port: 9991, TargetPort: intstr.FromString("http")}}, 0},
		"Unknown": {"the container has no port of that name", []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("x")}}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := target(&corev1.Service{Spec: corev1.ServiceSpec{Ports: tc.ports}}, container); got != tc.want {
				t.Errorf("got %d, want %d: %s", got, tc.want, tc.reason)
			}
		})
	}
}

func TestPortsReplaceWhatTheContainerIsTold(t *testing.T) {
	env := map[string]string{"SERVER_BROKERPORT": "9992", "URL": "http://x:9992", "OTHER": "9993"}
	ports{9991: 40001, 9992: 40002}.in(env)
	want := map[string]string{"SERVER_BROKERPORT": "40002", "URL": "http://x:9992", "OTHER": "9993"}
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestServicesAreFoundByName(t *testing.T) {
	a := newAddresses(nil)
	a.set(serviceRef("stack", "gateway"), mustURL("http://127.0.0.1:40002"))
	env := map[string]string{
		"SHORT": "http://gateway.stack/x?y", "SVC": "http://gateway.stack.svc/x", "FULL": "http://gateway.stack.svc.cluster.local",
		"PORT": "http://gateway.stack.svc:9991", "TLS": "https://gateway.stack.svc", "OTHER": "http://gateway.other.svc", "TEXT": "gateway.stack.svc",
	}
	want := map[string]string{
		"SHORT": "http://127.0.0.1:40002/x?y", "SVC": "http://127.0.0.1:40002/x", "FULL": "http://127.0.0.1:40002",
		"PORT": "http://gateway.stack.svc:9991", "TLS": "https://gateway.stack.svc", "OTHER": "http://gateway.other.svc", "TEXT": "gateway.stack.svc",
	}
	a.in(env)
	if diff := cmp.Diff(want, env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

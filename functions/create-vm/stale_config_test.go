package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
)

// TestLateFirstConfiguration edits the user data of a machine that KubeVirt has refused, while a delivery that has read the user data of
// before is about to write the Secret of its first configuration. Another delivery writes the edited user data first.
func TestLateFirstConfiguration(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	userData := func(comment string) *v1alpha1.CloudInit {
		return &v1alpha1.CloudInit{UserData: "#cloud-config\n" + strings.Repeat("# "+comment+"\n", 500)}
	}
	s.Create(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: v1alpha1.MachineSpec{
		Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: s.Site.Provider}, CloudInit: userData("first"),
		Domain: &v1alpha1.MachineDomain{Machine: &v1alpha1.DomainMachine{Type: "pc-i440fx"}},
	}})
	refused := hypervisortest.HasReason("KubeVirtApiError")
	s.Drive("vm", &hypervisortest.Wire{}, "is refused", refused)

	armed := true
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return hypervisortest.RoundTripFunc(func(req *http.Request) (*http.Response, error) {
			if armed && req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") {
				armed = false
				s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.CloudInit = userData("second") })
				edited := func(m *v1alpha1.Machine) bool { return refused(m) && m.Status.ObservedGeneration == m.Generation }
				s.Drive("vm", &hypervisortest.Wire{}, "is refused again", edited)
			}
			return next.RoundTrip(req)
		})
	})
	client, err := kube.New(config, hypervisor.FunctionName, kinds()...)
	if err != nil {
		t.Fatal(err)
	}
	slow := newFunction(client, testConnector(client, s.Namespace, nil), time.Now)
	if err := deliver(t.Context(), slow, hypervisortest.ResyncEvent(s.Namespace, "vm")); armed || (err != nil && !kube.Conflict(err)) {
		t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, armed)
	}
	secret := &corev1.Secret{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "vm-cloudinit", secret); err != nil || !strings.Contains(string(secret.Data["userdata"]), "second") {
		t.Errorf("the Secret has %.40q, want the edited user data: %v", secret.Data["userdata"], err)
	}
}

package main

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/transport"
)

// lateDelivery is the delivery of a resync event to a function whose first request that isNext selects, to the API server or to the
// hypervisor, waits until meanwhile returns.
type lateDelivery struct {
	isNext    func(*http.Request) bool
	meanwhile func()
	// waited is whether a request has waited, and changes are the later requests that change anything but Machines and Events.
	waited  bool
	changes []string
}

// deliverLate delivers d for a Machine.
func (e *env) deliverLate(name string, d *lateDelivery) error {
	e.Helper()
	wrap := func(next http.RoundTripper) http.RoundTripper {
		return transport.Func(func(req *http.Request) (*http.Response, error) {
			isStack := strings.Contains(req.URL.Path, "/machines/") || strings.HasSuffix(req.URL.Path, "/events")
			if d.waited && req.Method != http.MethodGet && !isStack {
				d.changes = append(d.changes, req.Method+" "+req.URL.Path)
			}
			if !d.waited && d.isNext(req) {
				d.waited = true
				d.meanwhile()
			}
			return next.RoundTrip(req)
		})
	}
	config := rest.CopyConfig(e.Config)
	config.Wrap(wrap)
	client, err := kube.New(config, hypervisor.FunctionName, kinds()...)
	if err != nil {
		e.Fatal(err)
	}
	slow := newFunction(client, testConnector(client, e.Namespace, wrap), e.Clock.Now)
	return deliver(e.Context(), slow, hypervisortest.ResyncEvent(e.Namespace, name))
}

// isRequest returns a function that selects requests by their method and the end of their path.
func isRequest(method, end string) func(*http.Request) bool {
	return func(req *http.Request) bool { return req.Method == method && strings.HasSuffix(req.URL.Path, end) }
}

// TestLateStatusKeepsEtcdMember deletes the Machine of a control plane while a delivery for another size writes its status. The
// virtual machine stays until the cluster has removed its member from etcd.
func TestLateStatusKeepsEtcdMember(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	m := &v1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: "plane", Finalizers: []string{v1alpha1.FinalizerEtcd}, Labels: map[string]string{v1alpha1.LabelClusterName: "shop"}},
		Spec:       v1alpha1.MachineSpec{Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: s.Site.Provider}},
	}
	s.Create(m)
	s.Drive("plane", &hypervisortest.Wire{}, "runs", hypervisortest.IsRunning)
	s.Edit("plane", func(m *v1alpha1.Machine) { m.Spec.Template = "medium" })
	late := &lateDelivery{isNext: isRequest(http.MethodPatch, "/machines/plane/status"), meanwhile: func() {
		if err := s.Kube.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}}
	if err := s.deliverLate("plane", late); err != nil || !late.waited {
		t.Errorf("the delivery ended with %v, waiting for its request: %t", err, !late.waited)
	}
	vm := &kubevirtv1.VirtualMachine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "plane", vm); err != nil || vm.DeletionTimestamp != nil {
		t.Errorf("the virtual machine of a member of etcd is deleted: %v", err)
	}
	s.Drive("plane", &hypervisortest.Wire{}, "waits for its cluster", hypervisortest.HasReason("WaitingForEtcd"))
}

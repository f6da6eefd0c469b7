package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestLateCreationByEarlierSpec edits the spec of a new Machine while a delivery that has read it before is about to create its virtual machine.
// The guest gets what the edited spec says: the API server accepts no other edit once the virtual machine exists.
func TestLateCreationByEarlierSpec(t *testing.T) {
	t.Parallel()
	disk := func(size v1alpha1.Size) func(*v1alpha1.MachineSpec) {
		return func(s *v1alpha1.MachineSpec) { s.Disks = []v1alpha1.MachineDisk{{Name: v1alpha1.RootDisk, Size: size}} }
	}
	userData := func(comment string) func(*v1alpha1.MachineSpec) {
		return func(s *v1alpha1.MachineSpec) {
			s.CloudInit = &v1alpha1.CloudInit{UserData: "#cloud-config\n# " + comment + "\n"}
		}
	}
	hasHost := false
	for name, tc := range map[string]struct {
		site          func(*env) *hypervisortest.Site
		first, second func(*v1alpha1.MachineSpec)
		isNext        func(*http.Request) bool
		isApplied     func(*env, *v1alpha1.Machine) bool
	}{
		"KubeVirt": {kubevirtSite, userData("first"), userData("second"), isRequest(http.MethodGet, "/storageclasses"), func(s *env, m *v1alpha1.Machine) bool {
			return strings.Contains(s.Site.FoundUserData(m), "second")
		}},
		"Proxmox": {proxmoxSite, disk("20Gi"), disk("10Gi"), func(req *http.Request) bool { // the last read of the Machine after the choice of a host
			hasHost = req.Method == http.MethodGet && (hasHost || strings.HasSuffix(req.URL.Path, "/network"))
			return hasHost && strings.HasSuffix(req.URL.Path, "/machines/m1")
		}, func(s *env, m *v1alpha1.Machine) bool {
			_, root := s.Site.Sizes(m)
			return root == "10Gi"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, tc.site)
			m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m1"}, Spec: v1alpha1.MachineSpec{
				Template: "small", ProviderRef: &v1alpha1.ProviderReference{Name: s.Site.Provider},
			}}
			tc.first(&m.Spec)
			s.Create(m)
			late := &lateDelivery{isNext: tc.isNext, meanwhile: func() { s.Edit("m1", func(m *v1alpha1.Machine) { tc.second(&m.Spec) }) }}
			feed.Until(t, "a late delivery is about to create the virtual machine", func() (bool, string) {
				err := s.deliverLate("m1", late)
				return late.waited, fmt.Sprint(err)
			})
			if m = s.Drive("m1", &hypervisortest.Wire{}, "is settled", func(m *v1alpha1.Machine) bool {
				return hypervisortest.IsRunning(m) || hypervisortest.HasReason("DiskCannotShrink")(m)
			}); !tc.isApplied(s, m) {
				t.Errorf("the virtual machine is not as the edited spec says: %+v", m.Status.Conditions)
			}
		})
	}
}

// TestLatePublication deletes a Machine that waits for an address of a shared NetworkConfiguration, while a delivery that has read it is about to
// publish its interface there. Another delivery has removed the Machine first, and nothing keeps an address for it.
func TestLatePublication(t *testing.T) {
	t.Parallel()
	s := newEnv(t, kubevirtSite)
	s.Create(&v1alpha1.NetworkConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Spec: v1alpha1.NetworkConfigurationSpec{Description: hypervisortest.Unserved}})
	m := machineWith("m1", func(m *v1alpha1.MachineSpec) {
		m.Networks = []v1alpha1.MachineNetwork{{Name: "eth0", NetworkName: "shared"}}
	})
	s.Create(m)
	s.Drive("m1", &hypervisortest.Wire{}, "waits for its address", hypervisortest.HasReason(reasonWaitingForAddress))
	late := &lateDelivery{isNext: isRequest(http.MethodGet, "/networkconfigurations/shared"), meanwhile: func() { s.DeleteMachine(m, &hypervisortest.Wire{}) }}
	if err := s.deliverLate("m1", late); (err != nil && !kube.NotFound(err)) || !late.waited {
		t.Errorf("the delivery ended with %v, waiting for its request: %t", err, !late.waited)
	}
	nc := &v1alpha1.NetworkConfiguration{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "shared", nc); err != nil || len(nc.Spec.NetworkInterfaces) > 0 || len(nc.Finalizers) > 0 {
		t.Errorf("a deleted Machine has interfaces %v and finalizers %v: %v", nc.Spec.NetworkInterfaces, nc.Finalizers, err)
	}
}

// TestLateFirstConfiguration edits the user data of a Machine that KubeVirt has refused, while a delivery that has read the user data of
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
	late := &lateDelivery{isNext: isRequest(http.MethodPost, "/secrets"), meanwhile: func() {
		s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.CloudInit = userData("second") })
		s.Drive("vm", &hypervisortest.Wire{}, "is refused again", func(m *v1alpha1.Machine) bool {
			return refused(m) && m.Status.ObservedGeneration == m.Generation
		})
	}}
	if err := s.deliverLate("vm", late); !late.waited || (err != nil && !kube.Conflict(err)) {
		t.Errorf("the late delivery ended with %v, waiting for its request: %t", err, !late.waited)
	}
	secret := &corev1.Secret{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "vm-cloudinit", secret); err != nil || !strings.Contains(string(secret.Data["userdata"]), "second") {
		t.Errorf("the Secret has %.40q, want the edited user data: %v", secret.Data["userdata"], err)
	}
}

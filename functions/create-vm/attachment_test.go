package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
)

// TestAttachmentOfAnotherNetwork finds an attachment of another bridge under the name that the
// machine's attachment would have.
func TestAttachmentOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.allowBridge("br0", "200")
	outer := configuration("outer")
	outer.Spec.Bridge = "br0"
	s.Create(outer)
	there := &kubevirt.NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "net-br0-vlan200"}, Spec: kubevirt.NetworkAttachmentDefinitionSpec{Config: `{"type":"bridge","bridge":"br0-vlan200"}`},
	}
	s.Create(there)
	s.Create(inNetworks("out", "outer"))
	m := s.awaitMachine("out", "is not attached", hypervisortest.HasReason("NameTaken"))
	if got := condition(m, "Ready"); !strings.Contains(got, "NetworkAttachmentDefinition net-br0-vlan200 is not of bridge br0 and VLAN 200") {
		t.Errorf("got %s", got)
	}
}

// TestAttachmentMTU has two machines use NetworkConfigurations of one network that differ in their MTU.
func TestAttachmentMTU(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	for _, tc := range []struct {
		name string
		mtu  int32
	}{{"plain", 0}, {"jumbo", 9000}} {
		nc := configuration(tc.name)
		nc.Spec.MTU = tc.mtu
		s.Create(nc)
		s.Create(inNetworks("vm-"+tc.name, tc.name))
		s.awaitMachine("vm-"+tc.name, "runs", hypervisortest.IsRunning)
		vm := &kubevirtv1.VirtualMachine{}
		if err := s.Kube.Get(t.Context(), s.Namespace, "vm-"+tc.name, vm); err != nil {
			t.Fatal(err)
		}
		definition := &kubevirt.NetworkAttachmentDefinition{}
		if err := s.Kube.Get(t.Context(), s.Namespace, vm.Spec.Template.Spec.Networks[0].Multus.NetworkName, definition); err != nil {
			t.Fatal(err)
		}
		var config struct{ Plugins []struct{ MTU int32 } }
		if err := json.Unmarshal([]byte(definition.Spec.Config), &config); err != nil {
			t.Fatal(err)
		}
		if got := config.Plugins[0].MTU; got != tc.mtu {
			t.Errorf("%s: attachment %s has MTU %d, want %d", tc.name, definition.Name, got, tc.mtu)
		}
	}
}

// TestLostAttachment deletes the attachment of a machine that is off.
func TestLostAttachment(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.Create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
	power := func(state v1alpha1.PowerState) {
		s.Edit("vm", func(m *v1alpha1.Machine) { m.Spec.PowerState = state })
	}
	s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
	power(v1alpha1.PowerStopped)
	s.awaitMachine("vm", "is off", func(m *v1alpha1.Machine) bool { return m.Status.Phase == v1alpha1.MachineStopped })
	name := "net-br0-vlan200"
	s.remove(&kubevirt.NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})
	power(v1alpha1.PowerRunning)
	s.awaitMachine("vm", "runs again", hypervisortest.IsRunning)
	if err := s.Kube.Get(t.Context(), s.Namespace, name, &kubevirt.NetworkAttachmentDefinition{}); err != nil {
		t.Error(err)
	}
}

// TestSpoofCheckOfEarlierAttachments starts machines on attachments without a check of MAC addresses:
// one that an earlier version of this stack created, and one of another owner.
func TestSpoofCheckOfEarlierAttachments(t *testing.T) {
	t.Parallel()
	const unchecked = `{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"%s","ipam":{},"type":"bridge","vlan":200}]}`
	name := "net-br0-vlan200"
	config := fmt.Sprintf(unchecked, "br0")
	cases := map[string]struct {
		reason string
		labels map[string]string
		want   bool
	}{
		"Own":      {"an earlier version of this stack created it", map[string]string{v1alpha1.LabelManagedBy: "kubevirt-operator"}, true},
		"Foreign":  {"another tool manages it", map[string]string{v1alpha1.LabelManagedBy: "argocd"}, false},
		"Unmarked": {"it names no owner", nil, false},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.Create(&kubevirt.NetworkAttachmentDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: tc.labels}, Spec: kubevirt.NetworkAttachmentDefinitionSpec{Config: config},
			})
			s.Create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
			s.awaitMachine("vm", "runs", hypervisortest.IsRunning)
			there := &kubevirt.NetworkAttachmentDefinition{}
			if err := s.Kube.Get(t.Context(), s.Namespace, name, there); err != nil {
				t.Fatal(err)
			}
			if got := there.Spec.Config; (got != config) != tc.want || strings.Contains(got, `"macspoofchk":true`) != tc.want {
				t.Errorf("%s: got %s", tc.reason, got)
			}
		})
	}
}

package main

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
)

func TestSameSegment(t *testing.T) {
	t.Parallel()
	wanted, err := attachmentConfig(nic{bridge: "br0", vlan: 7}, "net-br0-vlan7", v1alpha1.ProviderDefaults{})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason, there string
		want          bool
	}{
		"Same":      {"it was made here", wanted, true},
		"Tuned":     {"somebody has prepared it", `{"cniVersion":"0.3.1","plugins":[{"type":"tuning"},{"type":"cnv-bridge","bridge":"br0","vlan":7,"mtu":9000}]}`, true},
		"Single":    {"it need not be a list", `{"type":"bridge","bridge":"br0","vlan":7}`, true},
		"Bridge":    {"another network has that", `{"plugins":[{"type":"bridge","bridge":"dmz-br0","vlan":7}]}`, false},
		"VLAN":      {"another network has that", `{"plugins":[{"type":"bridge","bridge":"br0","vlan":8}]}`, false},
		"Untagged":  {"it has the whole bridge", `{"plugins":[{"type":"bridge","bridge":"br0"}]}`, false},
		"NoBridge":  {"it leads elsewhere", `{"type":"macvlan","master":"eth0"}`, false},
		"Malformed": {"nobody knows where it leads", `{`, false},
	}
	for name, tc := range cases {
		if got := sameSegment(tc.there, wanted); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

// TestAttachmentOfAnotherNetwork finds the attachment of another bridge under the name
// of its own.
func TestAttachmentOfAnotherNetwork(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.allowBridge("br0", "200")
	outer := configuration("outer")
	outer.Spec.Bridge = "br0"
	s.create(outer)
	there := &NetworkAttachmentDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "net-br0-vlan200"}, Spec: NetworkAttachmentDefinitionSpec{Config: `{"type":"bridge","bridge":"br0-vlan200"}`},
	}
	s.create(there)
	s.create(inNetworks("out", "outer"))
	m := s.until("out", "is not attached", ready("NameTaken"))
	if got := condition(m, "Ready"); !strings.Contains(got, "NetworkAttachmentDefinition net-br0-vlan200 is not of bridge br0 and VLAN 200") {
		t.Errorf("got %s", got)
	}
}

// TestLostAttachment has somebody delete the attachment of a machine that is off.
func TestLostAttachment(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
	power := func(state v1alpha1.PowerState) {
		err := kube.OnConflict(func() error {
			m := &v1alpha1.Machine{}
			if err := s.kube.Get(t.Context(), s.namespace, "vm", m); err != nil {
				return err
			}
			before := m.DeepCopy()
			m.Spec.PowerState = state
			_, err := s.kube.Patch(t.Context(), before, m)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	s.until("vm", "runs", running)
	power(v1alpha1.PowerStopped)
	s.until("vm", "is off", func(m *v1alpha1.Machine) bool { return m.Status.Phase == v1alpha1.MachineStopped })
	name := attachmentName(nic{network: "net", vlan: 200}, v1alpha1.ProviderDefaults{})
	s.remove(&NetworkAttachmentDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}})
	power(v1alpha1.PowerRunning)
	s.until("vm", "runs again", running)
	if err := s.kube.Get(t.Context(), s.namespace, name, &NetworkAttachmentDefinition{}); err != nil {
		t.Error(err)
	}
}

// TestSpoofCheck looks at how a CNI configuration comes to check the MAC addresses of
// frames, with the parameter macspoofchk of the plugin bridge
// (https://www.cni.dev/plugins/current/main/bridge/).
func TestSpoofCheck(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, there, want string }{
		"Earlier": {"an earlier version made it without",
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"type":"bridge","vlan":7}]}`,
			`{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"br0","ipam":{},"macspoofchk":true,"type":"bridge","vlan":7}]}`},
		"Off": {"nobody may switch it off in what this stack made",
			`{"plugins":[{"bridge":"br0","macspoofchk":false,"type":"bridge"}]}`, `{"plugins":[{"bridge":"br0","macspoofchk":true,"type":"bridge"}]}`},
		"Tuned": {"other plugins and their parameters stand",
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","mtu":9000,"type":"cnv-bridge"}]}`,
			`{"plugins":[{"type":"tuning"},{"bridge":"br0","macspoofchk":true,"mtu":9000,"type":"cnv-bridge"}]}`},
		"Single":    {"it need not be a list", `{"bridge":"br0","type":"bridge"}`, `{"bridge":"br0","macspoofchk":true,"type":"bridge"}`},
		"On":        {"there is nothing to do", `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`, `{"plugins": [{"bridge":"br0","macspoofchk":true}]}`},
		"Malformed": {"nobody knows what it says", `{`, `{`},
		"NotAList":  {"nobody knows what it says", `{"plugins":7}`, `{"plugins":7}`},
	}
	for name, tc := range cases {
		if got := withSpoofCheck(tc.there); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

// TestSpoofCheckOfEarlierAttachments starts machines on attachments without a check of MAC
// addresses: one that this stack made, and one of somebody else.
func TestSpoofCheckOfEarlierAttachments(t *testing.T) {
	t.Parallel()
	const unchecked = `{"cniVersion":"1.0.0","name":"n","plugins":[{"bridge":"%s","ipam":{},"type":"bridge","vlan":200}]}`
	name := attachmentName(nic{network: "net", vlan: 200}, v1alpha1.ProviderDefaults{})
	config := fmt.Sprintf(unchecked, bridgeOf(nic{network: "net", vlan: 200}, v1alpha1.ProviderDefaults{}))
	cases := map[string]struct {
		reason string
		labels map[string]string
		want   bool
	}{
		"Own":      {"an earlier version of this stack made it", map[string]string{v1alpha1.LabelManagedBy: kubevirtManager}, true},
		"Foreign":  {"somebody else manages it", map[string]string{v1alpha1.LabelManagedBy: "argocd"}, false},
		"Unmarked": {"nobody says whose it is", nil, false},
	}
	for title, tc := range cases {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			s.create(&NetworkAttachmentDefinition{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: tc.labels}, Spec: NetworkAttachmentDefinitionSpec{Config: config},
			})
			s.create(machineWith("vm", func(*v1alpha1.MachineSpec) {}))
			s.until("vm", "runs", running)
			there := &NetworkAttachmentDefinition{}
			if err := s.kube.Get(t.Context(), s.namespace, name, there); err != nil {
				t.Fatal(err)
			}
			if got := there.Spec.Config; (got != config) != tc.want || strings.Contains(got, `"macspoofchk":true`) != tc.want {
				t.Errorf("%s: got %s", tc.reason, got)
			}
		})
	}
}

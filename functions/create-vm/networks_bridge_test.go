package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/hypervisortest"
	"github.com/vitistack/stack/functions/create-vm/hypervisor/kubevirt"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// allowBridge creates a NetworkPool that lists a bridge and VLANs for the namespace of this test.
func (e *env) allowBridge(bridge string, vlans ...v1alpha1.VLANRange) {
	e.Helper()
	pool := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: e.Namespace + "-" + bridge}, Spec: v1alpha1.NetworkPoolSpec{
		AllowedNamespaces: &v1alpha1.AllowedNamespaces{List: []string{e.Namespace}}, Bridges: []string{bridge}, VLANs: vlans,
	}}
	if err := e.Kube.Create(e.Context(), pool); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = e.Kube.Delete(context.Background(), pool) })
}

func (e *env) attached(bridge string) bool {
	e.Helper()
	err := e.Kube.Get(e.Context(), e.Namespace, "net-"+bridge+"-vlan200", &kubevirt.NetworkAttachmentDefinition{})
	if err != nil && !kube.NotFound(err) {
		e.Fatal(err)
	}
	return err == nil
}

// TestBridgesOfOthers attaches machines to bridges that the platform team has not assigned to the
// namespace.
func TestBridgesOfOthers(t *testing.T) {
	t.Parallel()
	s := setUp(t)
	s.allowBridge("br7", "200")
	s.allowBridge("br8", "100-199") // the network is in VLAN 200
	management, other := configuration("management"), configuration("other")
	management.Spec.Bridge, other.Spec.Bridge = "br-mgmt", "br8"
	s.Create(management)
	s.Create(other)
	for name, bridge := range map[string]string{"management": "br-mgmt", "other": "br8"} {
		s.Create(inNetworks(name, name))
		m := s.awaitMachine(name, "is refused", hypervisortest.HasReason("BridgeNotAllowed"))
		got := condition(m, "Ready")
		for _, part := range []string{"NetworkConfiguration " + name, bridge + " together with VLAN 200", "create it again without spec.bridge", "ask the platform team"} {
			if !strings.Contains(got, part) {
				t.Errorf("condition %q, want %q in it", got, part)
			}
		}
		if m.Status.VMName != "" || s.attached(bridge) {
			t.Errorf("machine %s was attached to bridge %s", name, bridge)
		}
	}

	if err := s.Kube.Delete(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the NetworkConfiguration is released", func() (bool, string) {
		err := s.Kube.Get(t.Context(), s.Namespace, "other", &v1alpha1.NetworkConfiguration{})
		return kube.NotFound(err), fmt.Sprint(err)
	})
	s.Create(configuration("other"))
	s.awaitMachine("other", "runs at the bridge of the MachineProvider", hypervisortest.IsRunning)

	s.allowBridge("br-mgmt", "200")
	e := lookAtProvider(s.Namespace+"-br-mgmt", events.TypeRefAdd)
	events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NetworkPool", Name: s.Namespace + "-br-mgmt"}.Set(&e, "")
	if _, err := s.function.handle(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	s.awaitMachine("management", "continues once the bridge is listed", hypervisortest.IsRunning)

	given := configuration("given")
	given.Spec.Bridge = "br7"
	s.Create(given)
	s.Create(inNetworks("given", "given"))
	s.awaitMachine("given", "runs", hypervisortest.IsRunning)
	if !s.attached("br7") {
		t.Error("a listed bridge is rejected")
	}
	before := &v1alpha1.NetworkConfiguration{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "given", before); err != nil {
		t.Fatal(err)
	}
	if err := s.Kube.Merge(t.Context(), before, map[string]any{"spec": map[string]any{"bridge": "br8"}}); err == nil || !strings.Contains(err.Error(), "bridge and mtu cannot be changed") {
		t.Errorf("want another bridge refused, got %v", err)
	}
	if err := s.Kube.Delete(t.Context(), &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: s.Namespace + "-br7"}}); err != nil {
		t.Fatal(err)
	}
	m := &v1alpha1.Machine{}
	if err := s.Kube.Get(t.Context(), s.Namespace, "given", m); err != nil {
		t.Fatal(err)
	}
	if err := s.Kube.Merge(t.Context(), m, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationReconcile: "now"}}}); err != nil {
		t.Fatal(err)
	}
	m = s.awaitMachine("given", "says so", hypervisortest.HasReason("BridgeNotAllowed"))
	if m.Status.Phase != v1alpha1.MachineRunning {
		t.Errorf("phase %s, want the machine to stay where it runs", m.Status.Phase)
	}
}

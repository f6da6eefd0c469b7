package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/provision-network/provider"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDecideStep(t *testing.T) {
	t.Parallel()
	type network = v1alpha2.NetworkNamespace
	provisioned := func(nn *network) {
		nn.Status.ProvisioningPhase, nn.Status.ObservedGeneration = v1alpha2.ProvisioningReady, 1
		nn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	}
	waits := func(nn *network) {
		nn.Status.ObservedGeneration, nn.Status.NextCheckTime = 1, in(time.Minute)
	}
	annotated := func(nn *network) { nn.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "now"} }
	edited := func(nn *network) { nn.Generation = 2 }
	for name, tc := range map[string]struct {
		reason   string
		network  []func(*network)
		answered bool
		want     step
	}{
		"New":            {"it has no segment", nil, false, stepRequest},
		"Provisioned":    {"it has what it requests", []func(*network){provisioned}, false, stepCheck},
		"Edited":         {"its request may have changed", []func(*network){provisioned, edited}, false, stepRequest},
		"Annotated":      {"the annotation requests a reconcile", []func(*network){provisioned, annotated}, false, stepRequest},
		"Waits":          {"the provider was asked a moment ago", []func(*network){waits}, false, stepWait},
		"WaitsEdited":    {"the provider was asked for another segment", []func(*network){waits, edited}, false, stepRequest},
		"WaitsRequested": {"a requested reconcile does not wait", []func(*network){waits, annotated}, false, stepRequest},
		"WaitsDue":       {"its next check is due", []func(*network){waits, func(nn *network) { nn.Status.NextCheckTime = in(0) }}, false, stepRequest},
		"Answer":         {"the answer ends the wait", []func(*network){waits}, true, stepRequest},
		"AnswerAgain":    {"the answer is compared with the allocated segment", []func(*network){provisioned}, true, stepRequest},
		"Deleted":        {"its segment is released", []func(*network){provisioned, func(nn *network) { nn.DeletionTimestamp = in(0) }}, false, stepDelete},
		"DeletedWaits":   {"the deletion has delays of its own", []func(*network){waits, func(nn *network) { nn.DeletionTimestamp = in(0) }}, true, stepDelete},
	} {
		nn := &network{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		for _, change := range tc.network {
			change(nn)
		}
		if got := decideStep(nn, tc.answered, noon); got != tc.want {
			t.Errorf("%s: %s: got %d, want %d", name, tc.reason, got, tc.want)
		}
	}
}

// TestProviderChangesDuringRelease names another provider while the manager creates the segment. The manager takes its time for the release, after
// which the other provider is asked.
func TestProviderChangesDuringRelease(t *testing.T) {
	t.Parallel()
	const slow = 15 * time.Second
	m, l := newManager(t, slow), newLibrary(t)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam, "netbox": l.netbox})
	w.network("net", asks("nam"))
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1"}).NetworkProvisioning
	})
	nn := w.reconcile("net")
	if message := w.expect(nn, "Pending", provider.ReasonWorking); !strings.Contains(message, "provider nam was asked for a segment, and has to release it first") {
		t.Errorf("the message says what the network waits for: %s", message)
	}
	if wait := nextCheck(nn).Sub(w.clock.Now()); wait > slow+time.Second {
		t.Errorf("the manager is asked again after %s, and needs %s", wait, slow)
	}
	m.clock.Pass(slow)
	w.clock.Pass(slow + time.Second)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	if left := m.Segments(); len(left) > 0 {
		t.Errorf("the manager has %v", left)
	}
}

func TestDecideProvider(t *testing.T) {
	t.Parallel()
	anything, err := plan.SelectPools(nil, "team-a", nil, true)
	if err != nil {
		t.Fatal(err)
	}
	nothing, err := plan.SelectPools(nil, "team-a", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason           string
		asked            string
		phase            v1alpha2.ProvisioningPhase
		pools            plan.Pools
		release, refusal string
	}{
		"New":           {"no provider was asked yet", "", "", anything, "", ""},
		"Again":         {"the same provider is asked again", "nam", "Pending", anything, "", ""},
		"NotInPool":     {"no pool allows the provider", "", "", nothing, "", plan.ReasonNotInPool},
		"Kept":          {"a network in use keeps its segment", "nam", "Ready", nothing, "", ""},
		"Changed":       {"the other provider may have created a segment", "netbox", "Pending", anything, "netbox", ""},
		"ChangedNoPool": {"the other provider releases its segment, whatever the pools", "netbox", "Pending", nothing, "netbox", plan.ReasonNotInPool},
		"ChangedReady":  {"machines use the segment of the other provider", "netbox", "Ready", anything, "", "ProviderChanged"},
	} {
		nn := someNetwork(uidA, asks("nam"))
		nn.Annotations = map[string]string{v1alpha1.AnnotationProvider: tc.asked}
		nn.Status.ProvisioningPhase = tc.phase
		release, refusal := decideProvider(nn, tc.pools)
		var problem provider.Error
		if _ = errors.As(refusal, &problem); release != tc.release || problem.Reason != tc.refusal {
			t.Errorf("%s: %s: got release %q, refusal %v", name, tc.reason, release, refusal)
		}
	}
}

// TestVLANOfPool writes a VLAN into the pool of a network whose provider chooses the VLAN. The condition says what to write, also
// once the network is Ready and keeps its segment.
func TestVLANOfPool(t *testing.T) {
	t.Parallel()
	manager := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": manager.nam})
	spec := namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26})
	spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{VLANID: 7}}
	w.network("net", spec)
	write := func(vlan v1alpha2.VLANID) *v1alpha2.NetworkNamespace {
		t.Helper()
		w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.VLANID = vlan })
		return w.reconcile("net")
	}
	refused := func(nn *v1alpha2.NetworkNamespace, phase v1alpha2.ProvisioningPhase) {
		t.Helper()
		if message := w.expect(nn, phase, "InvalidSpec"); !strings.Contains(message, "leave vlanId out, or write 1000") {
			t.Errorf("the message is %s", message)
		}
	}
	refused(w.reconcile("net"), "Error")
	w.expect(write(1000), "Ready", reasonProvisioned)
	refused(write(8), "Ready")
	if nn := w.get("net"); nn.Status.VLANID != 1000 {
		t.Errorf("status %+v, want VLAN 1000", nn.Status)
	}
	w.expect(write(0), "Ready", reasonProvisioned)
}

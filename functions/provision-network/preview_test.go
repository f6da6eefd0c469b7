package main

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// preview returns what a preview says of a new network, from the objects that exist and the settings of the function.
func (w *env) preview(name string, spec v1alpha2.NetworkNamespaceSpec) *preview.Preview {
	w.t.Helper()
	nn := &v1alpha2.NetworkNamespace{Spec: spec}
	nn.APIVersion, nn.Kind, nn.Namespace, nn.Name = v1alpha2.GroupVersion.String(), kindNetwork, w.namespace, name
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(nn)
	w.must(err)
	networks, pools := &v1alpha2.NetworkNamespaceList{}, &v1alpha1.NetworkPoolList{}
	configurations, allocations := &v1alpha1.NetworkConfigurationList{}, &v1alpha2.IPAllocationList{}
	w.must(w.kube.List(w.t.Context(), "", "", networks))
	w.must(w.kube.List(w.t.Context(), "", "", pools))
	w.must(w.kube.List(w.t.Context(), "", "", configurations))
	w.must(w.kube.List(w.t.Context(), "", "", allocations))
	return preview.Make([]preview.Document{{Index: 1, Object: &unstructured.Unstructured{Object: content}}}, preview.World{
		Networks: networks.Items, Pools: pools.Items, Configurations: configurations.Items, Allocations: allocations.Items,
		NamespaceLabels: func(namespace string) (map[string]string, error) { return w.kube.LabelsOf(w.t.Context(), namespace)() },
		Settings:        &preview.Settings{OptionalPools: w.f.optionalPools, Datacenters: w.f.datacenters},
	})
}

// TestPreviewSaysTheSame compares what a preview says of a network with its condition after the apply.
func TestPreviewSaysTheSame(t *testing.T) {
	t.Parallel()
	tenant := newEnv(t, nil)
	tenant.network("prod", manualSpec("10.180.0.0/24", "", 2180))
	tenant.expect(tenant.reconcile("prod"), "Ready", reasonProvisioned)
	tenant.configuration("vm", "gone", "", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.181.0.5"}, VLAN: "2181"})
	tenant.network("waits", asks("corp")) // an external IPAM that has not answered
	tenant.reconcile("waits")

	lab := v1alpha1.NetworkPoolSpec{Providers: []string{"manual"}, VLANs: []v1alpha1.VLANRange{"2180-2189"}}
	shared := lab
	shared.ShareVLANs = true
	static := func(spec v1alpha2.NetworkNamespaceSpec, pool v1alpha2.StaticPool) v1alpha2.NetworkNamespaceSpec {
		spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &pool}
		return spec
	}
	for name, tc := range map[string]struct {
		why  string
		spec v1alpha2.NetworkNamespaceSpec
		// pool is the NetworkPool of the namespace, and own whether its data centre is separate from that of the tenant.
		pool   *v1alpha1.NetworkPoolSpec
		own    bool
		reason string
	}{
		"Free":        {"no other network has the segment", manualSpec("10.182.0.0/24", "10.182.0.1", 2182), &lab, false, reasonProvisioned},
		"Overlap":     {"a tenant has the prefix", manualSpec("10.180.0.128/25", "", 2180), &shared, false, plan.ReasonOverlap},
		"VLAN":        {"a tenant has the VLAN", manualSpec("10.183.0.0/24", "", 2180), &lab, false, plan.ReasonOverlap},
		"SharedVLAN":  {"the pool shares the VLAN", manualSpec("10.183.0.0/24", "", 2180), &shared, false, reasonProvisioned},
		"Separate":    {"the data centres share no bridge", manualSpec("10.180.0.0/24", "", 2180), &lab, true, reasonProvisioned},
		"Held":        {"a machine has an address of the prefix", manualSpec("10.181.0.0/24", "", 2181), &lab, false, plan.ReasonOverlap},
		"OutsidePool": {"the pool has other VLANs", manualSpec("10.184.0.0/24", "", 2190), &lab, false, plan.ReasonNotInPool},
		"PoolFirst":   {"the pool is checked before the overlap", manualSpec("10.180.0.0/24", "", 2180), &v1alpha1.NetworkPoolSpec{Providers: []string{"nam"}}, false, plan.ReasonNotInPool},
		"NoPool":      {"no pool is for the namespace", manualSpec("10.184.0.0/24", "", 2184), nil, false, plan.ReasonNotInPool},
		"Provider":    {"the pool is for another provider", asks("nam"), &lab, false, plan.ReasonNotInPool},
		"Metadata":    {"the prefix has the metadata service of clouds", manualSpec("168.0.0.0/6", "", 2184), &lab, false, "InvalidSpec"},
		"Gateway":     {"the gateway is the broadcast address", static(manualSpec("10.184.0.0/24", "", 2184), v1alpha2.StaticPool{IPv4Gateway: "10.184.0.255"}), &lab, false, plan.ReasonInvalidPool},
		"Empty":       {"no address is left", static(manualSpec("10.184.0.0/24", "", 2184), v1alpha2.StaticPool{ExcludedAddresses: []string{"10.184.0.0/24"}}), &lab, false, plan.ReasonNoAddress},
		"EmptyFirst":  {"the addresses are checked before the overlap", static(manualSpec("10.180.0.0/24", "", 2180), v1alpha2.StaticPool{ExcludedAddresses: []string{"10.180.0.0/24"}}), &lab, false, plan.ReasonNoAddress},
	} {
		t.Run(name, func(t *testing.T) {
			w := newEnv(t, nil)
			w.f.optionalPools = false
			if tc.pool != nil {
				w.pool("lab", *tc.pool)
			}
			tc.spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			if !tc.own {
				w.f.datacenters = nil
				tc.spec.DatacenterIdentifier = v1alpha2.Identifier(tenant.namespace)
			}
			tc.spec.SupervisorIdentifier = "shop"
			p := w.preview("net", tc.spec)
			w.network("net", tc.spec)
			nn := w.reconcile("net")
			_, reason, message := ready(nn)
			switch {
			case reason != tc.reason:
				t.Errorf("%s: the condition has %s: %s, want %s", tc.why, reason, message, tc.reason)
			case reason == reasonProvisioned && !p.Valid:
				t.Errorf("%s: the network is Ready, and the preview refuses it: %+v", tc.why, p.Errors)
			case reason == reasonProvisioned:
			case len(p.Errors) != 1 || p.Errors[0].Reason != reason || p.Errors[0].Detail != message:
				t.Errorf("%s: the preview has %+v, and the condition %s: %s", tc.why, p.Errors, reason, message)
			}
			w.delete(nn)
			w.reconcile("net")
		})
	}
}

package main

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// TestAllocatedAddressHasItsCause expects the cause from the IPAllocation in the error of its cluster.
func TestAllocatedAddressHasItsCause(t *testing.T) {
	t.Parallel()
	ready := func(reason, message string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	}
	for name, tc := range map[string]struct {
		reason  string
		address string
		status  v1alpha2.IPAllocationStatus
		want    string
		waits   bool
	}{
		"New":       {"the IPAllocation has no conditions yet", "", v1alpha2.IPAllocationStatus{}, `waiting for an address from IPAllocation "shop-vip"`, true},
		"Exhausted": {"it is allocated once the pool is larger", "", v1alpha2.IPAllocationStatus{Conditions: ready("PoolExhausted", "10.1.0.0/28 has no free address")}, `IPAllocation "shop-vip": PoolExhausted: 10.1.0.0/28 has no free address`, true},
		"Refused":   {"the requester has to change the address", "10.1.0.5", v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationError, Message: "it is in use", Conditions: ready("InUse", "it is in use")}, `IPAllocation "shop-vip": InUse: it is in use; the address is written in spec.controlPlaneEndpoint.address`, false},
		"DHCP":      {"no address is named that could be changed", "", v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationError, Conditions: ready("NetworkNotStatic", "it is of type dhcp")}, `IPAllocation "shop-vip": NetworkNotStatic: it is of type dhcp; write mode node into spec.controlPlaneEndpoint, or mode custom`, false},
	} {
		a := &v1alpha2.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "shop-vip"}, Status: tc.status}
		p := plan.Plan{Endpoint: v1alpha1.ControlPlaneEndpoint{Address: tc.address}}
		_, err := allocatedAddress(a, p.VirtualAddressRemedy(tc.address))
		if err == nil || !strings.Contains(err.Error(), tc.want) || errors.As(err, new(reconcile.WaitError)) != tc.waits {
			t.Errorf("%s: %s: got %v, want %q, which waits: %t", name, tc.reason, err, tc.want, tc.waits)
		}
	}
}

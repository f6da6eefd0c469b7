package main

import (
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/network/ipam"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// TestFamilyOfAllocation has users request an address of a family that the network lacks. No change of the network's pool gives them one.
func TestFamilyOfAllocation(t *testing.T) {
	t.Parallel()
	six := networked("", "", v1alpha2.StaticPool{})
	six.Status.IPv6Prefix = "2001:db8::/64"
	for _, tc := range []struct {
		nn     *v1alpha2.NetworkNamespace
		spec   v1alpha2.IPAllocationSpec
		reason string
	}{
		{networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{}), v1alpha2.IPAllocationSpec{IPFamily: v1alpha2.IPv6}, "IPv6NotServed"},
		{networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{}), v1alpha2.IPAllocationSpec{RequestedAddress: "2001:db8::5"}, "IPv6NotServed"},
		{six, v1alpha2.IPAllocationSpec{IPFamily: v1alpha2.IPv4}, "IPv4NotServed"},
	} {
		a := &v1alpha2.IPAllocation{Spec: tc.spec}
		plan, err := planAddress(tc.nn, &v1alpha1.NetworkConfiguration{}, a, time.Unix(1000, 0), false)
		if err == nil || !isResult(err) {
			t.Errorf("%+v: got %+v, %v", tc.spec, plan, err)
			continue
		}
		outcome := setAllocationResult(a, tc.nn, plan.pool, plan.address, plan.validity, err)
		if outcome.Reason != tc.reason || a.Status.Phase != v1alpha2.IPAllocationError || !strings.Contains(outcome.Message, "delete the IPAllocation, and create it again") {
			t.Errorf("%+v: got phase %s, %s: %s", tc.spec, a.Status.Phase, outcome.Reason, outcome.Message)
		}
	}
}

func TestPlanAddress(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	at := func(seconds int64) *metav1.Time { return new(metav1.Unix(seconds, 0)) }
	temporary := v1alpha2.StaticPool{TTLSeconds: 100}
	kept := func(expires, check *metav1.Time) v1alpha2.IPAllocationStatus {
		return v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationAllocated, Address: "10.0.0.5", ExpiresAt: expires, NextCheckTime: check}
	}
	cases := map[string]struct {
		reason    string
		network   v1alpha2.StaticPool
		pool      string // 10.0.0.0/24
		deleted   bool   // the network is being deleted
		requested string
		status    v1alpha2.IPAllocationStatus
		orphaned  bool // the NetworkConfiguration does not exist
		full      bool
		action    addressAction
		address   string
		expires   *metav1.Time
		err       error
	}{
		"Any":              {reason: "the network chooses an address", action: actionSelect},
		"Requested":        {reason: "the requested address is in the pool", requested: "10.0.0.9", action: actionClaim, address: "10.0.0.9"},
		"RequestedOutside": {reason: "another address is never allocated instead", requested: "10.9.0.9", err: ipam.OutsidePool{}},
		"RequestedNoIP":    {reason: "no address has this notation", requested: "10.0.0", err: ipam.OutsidePool{}},
		"OtherFamily":      {reason: "no pool of the network has such addresses", requested: "2001:db8::5", err: errNotServed{}},
		"NetworkDeleted":   {reason: "a network that is being deleted takes no new users", deleted: true, err: errNetworkClosed{}},
		"InvalidPool":      {reason: "the network team has to correct the pool", pool: "10.0.0.0/33", err: errInvalidPool{}},
		"Released":         {reason: "an IPAllocation that lost its address gets no other", status: v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationReleased}, err: errExpired},
		"Permanent":        {reason: "an address without an end needs no renewal", status: kept(nil, nil), action: actionKeep, address: "10.0.0.5"},
		"Full":             {reason: "a full delivery creates a lost Lease", status: kept(nil, nil), full: true, action: actionAdopt, address: "10.0.0.5"},
		"FullNotDue":       {reason: "a full delivery creates a lost Lease", network: temporary, status: kept(at(1060), at(1010)), full: true, action: actionAdopt, address: "10.0.0.5", expires: at(1060)},
		"FullAny":          {reason: "an IPAllocation without an address has no Lease", full: true, action: actionSelect},
		"Refused":          {reason: "the Lease had another holder, and may have none now", status: v1alpha2.IPAllocationStatus{Phase: v1alpha2.IPAllocationError, Address: "10.0.0.5"}, action: actionAdopt, address: "10.0.0.5"},
		"KeptByOldNetwork": {reason: "a machine uses the address, whatever the network is now", status: kept(nil, nil), deleted: true, pool: "10.0.0.0/33", action: actionKeep, address: "10.0.0.5"},
		"NotDue":           {reason: "half of its time is not over", network: temporary, status: kept(at(1060), at(1010)), action: actionKeep, address: "10.0.0.5", expires: at(1060)},
		"Due":              {reason: "half of its time is over", network: temporary, status: kept(at(1050), at(1000)), action: actionRenew, address: "10.0.0.5", expires: at(1100)},
		"BecomesTemporary": {reason: "the network team has set a time", network: temporary, status: kept(nil, nil), action: actionRenew, address: "10.0.0.5", expires: at(1100)},
		"BecomesPermanent": {reason: "the network team has removed the time", status: kept(at(1050), at(1000)), action: actionRenew, address: "10.0.0.5"},
		"Orphaned":         {reason: "a NetworkConfiguration that was deleted may be created again within the time", network: temporary, status: kept(at(1050), at(1000)), orphaned: true, action: actionKeep, address: "10.0.0.5", expires: at(1050)},
		"Expired":          {reason: "the time is over, and no NetworkConfiguration needs the address", network: temporary, status: kept(at(1000), at(950)), orphaned: true, err: errExpired},
		"LateRenewal":      {reason: "the NetworkConfiguration exists, only its delivery was late", network: temporary, status: kept(at(900), at(850)), action: actionRenew, address: "10.0.0.5", expires: at(1100)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.pool == "" {
				tc.pool = "10.0.0.0/24"
			}
			nn := networked(tc.pool, "10.0.0.1", tc.network)
			if tc.deleted {
				nn.DeletionTimestamp = &metav1.Time{Time: now}
			}
			a := &v1alpha2.IPAllocation{Status: tc.status}
			a.Spec.RequestedAddress, a.Spec.NetworkConfigurationName = tc.requested, "web"
			nc := &v1alpha1.NetworkConfiguration{}
			if !tc.orphaned {
				nc.Name = "web"
			}
			plan, err := planAddress(nn, nc, a, now, tc.full)
			if reflect.TypeOf(err) != reflect.TypeOf(tc.err) {
				t.Fatalf("%s: got error %v, want a %T", tc.reason, err, tc.err)
			}
			if got := plan.address; plan.action != tc.action || got.IsValid() != (tc.address != "") || got.IsValid() && got.String() != tc.address {
				t.Errorf("%s: got %s %s, want %s %s", tc.reason, plan.action, got, tc.action, tc.address)
			}
			if !tc.expires.Equal(plan.validity.expires) {
				t.Errorf("%s: the address expires at %v, want %v", tc.reason, plan.validity.expires, tc.expires)
			}
		})
	}
}

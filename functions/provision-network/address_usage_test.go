package main

import (
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
)

func TestIsCountedByAllocations(t *testing.T) {
	t.Parallel()
	static, dynamic := v1alpha1.InterfaceStatus{AllocationMethod: v1alpha2.AllocationStatic}, v1alpha1.InterfaceStatus{AllocationMethod: v1alpha2.AllocationDHCP}
	of := func(cluster string, interfaces ...v1alpha1.InterfaceStatus) *v1alpha1.NetworkConfiguration {
		nc := &v1alpha1.NetworkConfiguration{Status: v1alpha1.NetworkConfigurationStatus{NetworkInterfaces: interfaces}}
		nc.Spec.ClusterIdentifier = cluster
		return nc
	}
	for name, tc := range map[string]struct {
		reason, eventType, kind string
		carried                 any
		want                    bool
	}{
		"Static":     {"events of its allocations trigger the count", events.TypeUpdate, "NetworkConfiguration", of("", static), true},
		"Mixed":      {"only the event of the NetworkConfiguration reports reservations", events.TypeUpdate, "NetworkConfiguration", of("", static, dynamic), false},
		"None":       {"reservations may have been released", events.TypeUpdate, "NetworkConfiguration", of(""), false},
		"Cluster":    {"the status lists the clusters of a network", events.TypeUpdate, "NetworkConfiguration", of("shop", static), false},
		"Gone":       {"the deletion of its network may wait for it", events.TypeDelete, "NetworkConfiguration", of("", static), false},
		"Reference":  {"an event without the object does not say", events.TypeRefUpdate, "NetworkConfiguration", of("", static), false},
		"Allocation": {"its address is counted", events.TypeUpdate, "IPAllocation", &v1alpha2.IPAllocation{}, false},
	} {
		e := event.New()
		e.SetType(tc.eventType)
		if err := e.SetData(event.ApplicationJSON, tc.carried); err != nil {
			t.Fatal(err)
		}
		if got := isCountedByAllocations(e, tc.kind); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

func TestDescribeCount(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 247: "247", 1_000_000: "1000000", 1_000_001: ">1000000", maxCount: ">1000000"} {
		if got := describeCount(n); got != want {
			t.Errorf("%d addresses are shown as %s, want %s", n, got, want)
		}
	}
}

package network

import (
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha2"
)

func TestOnly(t *testing.T) {
	t.Parallel()
	named := func(names ...string) (items []v1alpha2.NetworkNamespace) {
		for _, n := range names {
			items = append(items, v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Name: n}})
		}
		return items
	}
	cases := map[string]struct {
		reason string
		items  []v1alpha2.NetworkNamespace
		want   string
		why    Unresolved
	}{
		"None": {reason: "there is no network to select", why: Unresolved{"NoNetworkNamespace", "there is no NetworkNamespace in namespace a: create one"}},
		"One":  {reason: "the only network is selected", items: named("x"), want: "x"},
		"Two": {reason: "a guess would be wrong half of the time", items: named("y", "x"), why: Unresolved{"NetworkNamespaceAmbiguous",
			"namespace a has several NetworkNamespaces: write one of x, y into networkNamespaceName"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := only("a", tc.items)
			var why Unresolved
			errors.As(err, &why)
			if why != tc.why || (got != nil && got.Name != tc.want) || (got == nil && tc.want != "") {
				t.Errorf("%s: got %v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	ready := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: "Ready", Status: status, Reason: reason}}
	}
	for name, tc := range map[string]struct {
		reason     string
		conditions []metav1.Condition
		want       bool
	}{
		"None":      {"the first network may be the one", ready(metav1.ConditionFalse, "NoNetworkNamespace"), true},
		"NotFound":  {"it may be the named one", ready(metav1.ConditionFalse, "NetworkNamespaceNotFound"), true},
		"Ambiguous": {"another network does not resolve the ambiguity", ready(metav1.ConditionFalse, "NetworkNamespaceAmbiguous"), false},
		"Found":     {"it has a network", ready(metav1.ConditionTrue, "MachineRunning"), false},
		"New":       {"its own event follows", nil, false},
	} {
		if got := IsMissing(tc.conditions); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

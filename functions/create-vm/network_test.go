package main

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestUnanswered(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1", UID: "1"}}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.NetworkConfiguration)
		want   bool
	}{
		"new":             {"the machine has just made it", func(*v1alpha1.NetworkConfiguration) {}, true},
		"answered":        {"there may be addresses", func(nc *v1alpha1.NetworkConfiguration) { nc.Status.Phase = v1alpha1.NetworkConfigurationReady }, false},
		"refused":         {"the machine tells why", func(nc *v1alpha1.NetworkConfiguration) { nc.Status.Phase = v1alpha1.NetworkConfigurationError }, false},
		"going":           {"the machine may wait for it to go", func(nc *v1alpha1.NetworkConfiguration) { nc.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false},
		"shared":          {"a machine may wait for it to be there", func(nc *v1alpha1.NetworkConfiguration) { nc.OwnerReferences = nil }, false},
		"of another name": {"its machine is another one", func(nc *v1alpha1.NetworkConfiguration) { nc.Name = "m2" }, false},
	}
	for name, tc := range cases {
		nc := ownConfiguration(m, "net")
		tc.change(nc)
		if got := unanswered(nc); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

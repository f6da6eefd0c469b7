package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestIsNew(t *testing.T) {
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
		if got := isNew(nc); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

func TestCheckUsable(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1", UID: "1"}}
	of := func(name string, uid types.UID) *v1alpha1.NetworkConfiguration {
		return ownConfiguration(&v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: uid}}, "net")
	}
	going := func(nc *v1alpha1.NetworkConfiguration, finalizers ...string) *v1alpha1.NetworkConfiguration {
		nc.DeletionTimestamp, nc.Finalizers = &metav1.Time{Time: time.Now()}, finalizers
		return nc
	}
	shared := func() *v1alpha1.NetworkConfiguration { return &v1alpha1.NetworkConfiguration{} }
	cases := map[string]struct {
		reason string
		nc     *v1alpha1.NetworkConfiguration
		refuse string
		mends  bool
	}{
		"Own":     {reason: "it is this machine's", nc: of("m1", "1")},
		"Shared":  {reason: "it is nobody's own", nc: shared()},
		"Kept":    {reason: "it is there for as long as the machine", nc: going(shared(), v1alpha1.FinalizerUsedBy+"m1")},
		"OwnKept": {reason: "so is the machine's own", nc: going(of("m1", "1"), v1alpha1.FinalizerUsedBy+"m1")},
		"Going":   {reason: "it stays for others only", nc: going(shared(), v1alpha1.FinalizerUsedBy+"m2"), refuse: "NetworkConfigurationNotFound"},
		"OwnGone": {reason: "it is made anew as soon as it is gone", nc: going(of("m1", "1"), v1alpha1.FinalizerKea), refuse: "is being deleted", mends: true},
		"Earlier": {reason: "it goes with the earlier machine", nc: of("m1", "0"), refuse: "is being deleted", mends: true},
		"Other":   {reason: "only who wrote the spec can mend it", nc: of("m2", "2"), refuse: "NetworkConfigurationNotFound: NetworkConfiguration m2 is Machine m2's own"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkUsable(m, tc.nc)
			if (err == nil) != (tc.refuse == "") || isRetried(err) != tc.mends || (err != nil && !strings.Contains(err.Error(), tc.refuse)) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

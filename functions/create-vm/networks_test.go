package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

func TestIsNew(t *testing.T) {
	t.Parallel()
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m1", UID: "1"}}
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.NetworkConfiguration)
		want   bool
	}{
		"new":             {"the machine has just created it", func(*v1alpha1.NetworkConfiguration) {}, true},
		"answered":        {"it may have addresses", func(nc *v1alpha1.NetworkConfiguration) { nc.Status.Phase = v1alpha1.NetworkConfigurationReady }, false},
		"refused":         {"the machine reports the error", func(nc *v1alpha1.NetworkConfiguration) { nc.Status.Phase = v1alpha1.NetworkConfigurationError }, false},
		"deleting":        {"the machine may wait for its deletion", func(nc *v1alpha1.NetworkConfiguration) { nc.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, false},
		"shared":          {"a machine may wait for it to exist", func(nc *v1alpha1.NetworkConfiguration) { nc.OwnerReferences = nil }, false},
		"of another name": {"it belongs to another machine", func(nc *v1alpha1.NetworkConfiguration) { nc.Name = "m2" }, false},
	}
	for name, tc := range cases {
		nc := ownConfiguration(m, "net")
		tc.change(nc)
		if got := isNew(nc); got != tc.want {
			t.Errorf("%s: %s: got %t, want %t", name, tc.reason, got, tc.want)
		}
	}
}

func TestCheckConfigurationUsable(t *testing.T) {
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
		reason  string
		nc      *v1alpha1.NetworkConfiguration
		want    string
		retried bool
	}{
		"Own":     {reason: "it belongs to this machine", nc: of("m1", "1")},
		"Shared":  {reason: "it belongs to no single machine", nc: shared()},
		"Kept":    {reason: "it is kept for as long as the machine", nc: going(shared(), v1alpha1.FinalizerUsedBy+"m1")},
		"OwnKept": {reason: "the machine's own is kept as well", nc: going(of("m1", "1"), v1alpha1.FinalizerUsedBy+"m1")},
		"Going":   {reason: "it is kept for other machines only", nc: going(shared(), v1alpha1.FinalizerUsedBy+"m2"), want: "NetworkConfigurationNotFound"},
		"OwnGone": {reason: "it is created again after its deletion", nc: going(of("m1", "1"), v1alpha1.FinalizerKea), want: "is being deleted", retried: true},
		"Earlier": {reason: "it is deleted together with the earlier machine", nc: of("m1", "0"), want: "is being deleted", retried: true},
		"Other":   {reason: "only the requester can fix the spec", nc: of("m2", "2"), want: "NetworkConfigurationNotFound: NetworkConfiguration m2 belongs to Machine m2: name another"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := checkConfigurationUsable(m, tc.nc)
			if (err == nil) != (tc.want == "") || reconcile.Retried(err) != tc.retried || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

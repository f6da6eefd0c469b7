package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestQuota has a ResourceQuota refuse the objects of an address. The NetworkConfiguration says so, and gets its address after the quota is gone.
func TestQuota(t *testing.T) {
	t.Parallel()
	for _, counted := range []corev1.ResourceName{"count/ipallocations.vitistack.io", "count/leases.coordination.k8s.io"} {
		t.Run(string(counted), func(t *testing.T) {
			t.Parallel()
			s := setUp(t)
			quotas, err := kube.New(s.config, "test", kube.Kinds(corev1.SchemeGroupVersion, &corev1.ResourceQuota{}))
			if err != nil {
				t.Fatal(err)
			}
			none := corev1.ResourceList{counted: resource.MustParse("0")}
			quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "addresses"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}
			if err := quotas.Create(t.Context(), quota); err != nil {
				t.Fatal(err)
			}
			before := quota.DeepCopy()
			quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none} // the controller manager counts
			if _, err := quotas.PatchStatus(t.Context(), before, quota); err != nil {
				t.Fatal(err)
			}
			s.network("net", "10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.1"})
			s.configuration("web", "net", eth0())
			f := s.replica(s.config)
			reconciled := func(reason, says string) (nc *v1alpha1.NetworkConfiguration) {
				feed.Until(t, "web is "+reason, func() (bool, string) {
					err := kube.OnConflict(func() error { return f.configurations().reconcileConfiguration(t.Context(), s.namespace, "web", true) })
					nc = &v1alpha1.NetworkConfiguration{}
					if err == nil {
						err = s.kube.Get(t.Context(), s.namespace, "web", nc)
					}
					if err != nil {
						return false, err.Error()
					}
					return reasonOf(nc.Status.Conditions) == reason && strings.Contains(nc.Status.Message, says), nc.Status.Message
				})
				return nc
			}
			if nc := reconciled("AllocationRefused", "exceeded quota: addresses"); nc.Status.Phase != v1alpha1.NetworkConfigurationError {
				t.Errorf("phase %s", nc.Status.Phase)
			}
			if err := quotas.Delete(t.Context(), quota); err != nil {
				t.Fatal(err)
			}
			reconciled("NetworkConfigured", "every interface has its addresses")
			s.requireConsistentLeases()
		})
	}
}

package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// refusing fails the first requests that create a Secret.
type refusing struct {
	http.RoundTripper
	left atomic.Int64
}

func (r *refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPost && strings.HasSuffix(req.URL.Path, "/secrets") && r.left.Add(-1) >= 0 {
		return nil, errors.New("lost")
	}
	return r.RoundTripper.RoundTrip(req)
}

// TestMakerOfKeysFails has the delivery fail that has announced the creation of the keys. Other
// deliveries wait for it, and its next attempt creates them.
func TestMakerOfKeysFails(t *testing.T) {
	t.Parallel()
	r := &refusing{}
	r.left.Store(1)
	s := newEnv(t, envOptions{
		wrap:   func(next http.RoundTripper) http.RoundTripper { r.RoundTripper = next; return r },
		handle: dropEvents,
	})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Talos = &v1alpha1.TalosOptions{ServiceAccountKey: v1alpha1.ServiceAccountKeyRSA}
	s.create(kc)
	first, other := resyncEvent(s.namespace, "shop", "first"), resyncEvent(s.namespace, "shop", "other")
	if _, err := s.function.handle(t.Context(), first); err == nil {
		t.Fatal("keys were created without a Secret")
	}
	if _, err := s.function.handle(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if message := s.get("shop").Status.Message; message != "waiting for the cluster keys to be generated" {
		t.Errorf("another delivery reports %q", message)
	}
	if _, err := s.function.handle(t.Context(), first); err != nil && events.IsPermanent(err) {
		t.Fatal(err)
	}
	s.secret("shop-talos-secrets")
}

// TestKeysAreDeleted deletes the keys of a cluster at several stages. They are created again only
// while no node knows them.
func TestKeysAreDeleted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, reason string
		// refused is the request that nodes reject until the keys are deleted. closed is whether
		// machines get no addresses until then. reached reports whether the cluster has reached the
		// stage.
		refused string
		closed  bool
		reached func(*env, *v1alpha1.KubernetesCluster) bool
		lost    bool
	}{
		{"NoNode", "no node has a configuration with them", "", true, func(_ *env, kc *v1alpha1.KubernetesCluster) bool {
			return isTrue(kc, conditionCredentials)
		}, false},
		{"Configured", "a node has a configuration with them, and etcd is not bootstrapped", "Bootstrap", false, func(s *env, _ *v1alpha1.KubernetesCluster) bool {
			return slices.Contains(s.machines("shop"), "cp-0") && plan.IsInstalled(s.machine("shop-cp-0"))
		}, true},
		{"Running", "the cluster runs", "", false, func(_ *env, kc *v1alpha1.KubernetesCluster) bool { return isUpToDate(kc) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.closed.Store(tc.closed)
			if err := s.plan.Set(faults.Rule{Operation: "MachineService/" + tc.refused, Error: "Unavailable"}); err != nil {
				t.Fatal(err)
			}
			s.create(s.cluster("shop", 1, 0))
			feed.Until(t, tc.reason, func() (bool, string) {
				kc := s.get("shop")
				return tc.reached(s, kc), kc.Status.Message
			})
			old := s.secret("shop-talos-secrets")
			if err := s.kube.Delete(t.Context(), old); err != nil {
				t.Fatal(err)
			}
			if tc.lost {
				s.reconcile("shop")
				s.awaitReason("shop", "KeysLost", "restore", "Secret shop-talos-secrets", "delete the cluster")
				s.growWithoutKeys("shop")
				s.restore(old)
			} else {
				s.reconcile("shop")
				feed.Until(t, "other keys are created, so that no delivery continues with the first ones", func() (bool, string) {
					now := &corev1.Secret{}
					err := s.kube.Get(t.Context(), s.namespace, "shop-talos-secrets", now)
					return err == nil && now.UID != old.UID, fmt.Sprint(err)
				})
			}
			if err := s.plan.Set(); err != nil {
				t.Fatal(err)
			}
			s.closed.Store(false)
			kc := s.awaitRunning("shop", "cp-0")
			if !isTrue(kc, conditionCredentials) {
				t.Errorf("the cluster runs, with conditions %v", kc.Status.Conditions)
			}
			if same := bytes.Equal(s.secret("shop-talos-secrets").Data[pkiKey], old.Data[pkiKey]); same != tc.lost {
				t.Errorf("%s: the cluster has the same keys: %t, want %t", tc.reason, same, tc.lost)
			}
		})
	}
}

// growWithoutKeys adds a machine to a cluster whose keys are lost, and checks that it reports the loss,
// creates no keys and configures no node.
func (s *env) growWithoutKeys(cluster string) {
	s.Helper()
	s.change(cluster, func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers = []v1alpha1.WorkerPool{{Name: "pool", Replicas: 1}}
	})
	feed.Until(s, "the new machine has its address", func() (bool, string) {
		kc := s.get(cluster)
		up := slices.Contains(s.machines(cluster), "pool-0") && plan.HasAddress(s.machine(cluster+"-pool-0"))
		return up && kc.Status.ObservedGeneration == kc.Generation, kc.Status.Message
	})
	s.reconcile(cluster)
	if plan.HasMachineConfig(s.machine(cluster + "-pool-0")) {
		s.Error("a node has a configuration with keys that are lost")
	}
	if err := s.kube.Get(s.Context(), s.namespace, cluster+"-talos-secrets", &corev1.Secret{}); !kube.NotFound(err) {
		s.Errorf("other keys were created: %v", err)
	}
	if c := meta.FindStatusCondition(s.get(cluster).Status.Conditions, conditionCredentials); c.Status != metav1.ConditionFalse || c.Reason != "KeysLost" {
		s.Errorf("condition %s: %s %s", conditionCredentials, c.Status, c.Reason)
	}
	s.change(cluster, func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers = nil })
}

// restore creates a deleted Secret again with its content.
func (s *env) restore(secret *corev1.Secret) {
	s.Helper()
	secret = secret.DeepCopy()
	secret.UID, secret.ResourceVersion = "", ""
	s.create(secret)
}

// TestRemoveWithoutKeys deletes a cluster whose keys are lost.
func TestRemoveWithoutKeys(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop")
	if err := s.kube.Delete(t.Context(), s.secret("shop-talos-secrets")); err != nil {
		t.Fatal(err)
	}
	s.reconcile("shop")
	s.awaitSilentAPI("shop", "KeysLost", metav1.ConditionUnknown, "last seen: 1 member")
	if err := s.kube.Delete(t.Context(), s.get("shop")); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err) && len(s.machines("shop")) == 0, fmt.Sprint(err, s.machines("shop"))
	})
}

package main

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/feed"
)

// newHeldEnv returns an env with options, and the switch that keeps all events from its function: then only the test delivers them.
func newHeldEnv(t *testing.T, o envOptions) (*env, *atomic.Bool) {
	t.Helper()
	held := &atomic.Bool{}
	o.handle = func(handle events.Handler) events.Handler {
		return func(ctx context.Context, in event.Event) (*event.Event, error) {
			if held.Load() {
				return nil, nil
			}
			return handle(ctx, in)
		}
	}
	return newEnv(t, o), held
}

// deliverLate delivers an event of resync for a cluster to another process. The delivery waits until meanwhile returns, after it has read the
// cluster and before it reads the Machines.
func (s *env) deliverLate(cluster string, meanwhile func()) {
	s.Helper()
	reads, config := &beforeRequest{resource: "machines"}, s.server.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		reads.RoundTripper = next
		return reads
	})
	do := func() error {
		meanwhile()
		return nil
	}
	reads.do.Store(&do)
	late := s.newFunction(s.clientOf(config, plan.FunctionName), time.Now)
	_, err := late.handle(s.Context(), resyncEvent(s.namespace, cluster, "late")) // it may wait for nodes
	if reads.do.Load() != nil {
		s.Errorf("the late delivery has not read the Machines: %v", err)
	}
}

// awaitUpToDate reconciles a cluster until it is Ready with its present spec.
func (s *env) awaitUpToDate(cluster string) {
	s.Helper()
	feed.Until(s, cluster+" is up to date", func() (bool, string) {
		s.reconcile(cluster)
		kc := s.get(cluster)
		return isUpToDate(kc), kc.Status.Message
	})
}

// TestLateScaleDown takes a scale-down back while a delivery that has read it is about to choose the worker to remove. Another delivery has
// seen the cluster complete first.
func TestLateScaleDown(t *testing.T) {
	t.Parallel()
	s, held := newHeldEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
	held.Store(true)
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.deliverLate("shop", func() {
		s.change("shop", replicas(1, map[string]int32{"pool": 2}))
		s.awaitUpToDate("shop")
	})
	for _, node := range []string{"pool-0", "pool-1"} {
		s.requireUntouched("shop", node)
	}
}

// TestLateConfiguration takes a patch of the nodes back while a delivery that has read it is about to apply it. Nodes may reboot for a
// change of their configuration.
func TestLateConfiguration(t *testing.T) {
	t.Parallel()
	const apply = "MachineService/ApplyConfiguration"
	s, held := newHeldEnv(t, envOptions{})
	s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "patches"}, Data: map[string]string{"a.yaml": "machine:\n  sysctls:\n    vm.swappiness: \"1\"\n"}})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	held.Store(true)
	patched := func(names ...v1alpha1.ObjectName) func(*v1alpha1.KubernetesCluster) {
		return func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{All: names}}
		}
	}
	s.change("shop", patched("patches"))
	calls := 0
	s.deliverLate("shop", func() {
		s.change("shop", patched())
		s.awaitUpToDate("shop")
		calls = s.plan.Calls()[apply]
	})
	if late := s.plan.Calls()[apply] - calls; late != 0 {
		t.Errorf("nodes got %d configurations that the spec does not ask for", late)
	}
}

// TestLateEndpoint names another endpoint for a new cluster, and takes that back while a delivery that has read it is about to release the
// virtual address. Another delivery has given the address to the nodes.
func TestLateEndpoint(t *testing.T) {
	t.Parallel()
	s, held := newHeldEnv(t, envOptions{})
	held.Store(true)
	s.create(s.cluster("shop", 3, 0))
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointCustom, Host: "api.shop.example"}
	})
	vip := &v1alpha2.IPAllocation{}
	s.deliverLate("shop", func() {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.ControlPlaneEndpoint = nil })
		feed.Until(t, "the cluster has its virtual address", func() (bool, string) {
			s.reconcile("shop")
			err := s.kube.Get(t.Context(), s.namespace, "shop-vip", vip)
			return err == nil && vip.Status.Address != "" && s.get("shop").Status.Endpoint != "", fmt.Sprint(err)
		})
	})
	now := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, "shop-vip", now); err != nil || now.UID != vip.UID {
		t.Errorf("the virtual address is released, and allocated again: %v", err)
	}
}

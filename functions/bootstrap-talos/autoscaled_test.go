package main

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/utils/ptr"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
)

// autoscaled creates a cluster with the pool pool, which is autoscaled, and the pool web, which is not.
func (s *env) autoscaled(name string) {
	s.Helper()
	kc := s.cluster(name, 1, 1)
	kc.Spec.Topology.Workers[0].Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 3}
	kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: "web", Replicas: 1})
	s.create(kc)
}

// TestStatusOfAutoscaledCluster reads the status of a cluster that is Ready for the first time. The delivery writes scaledWorkers into the
// spec before it writes the status.
func TestStatusOfAutoscaledCluster(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.autoscaled("shop")
	got := s.awaitRunning("shop")
	if a := got.Status.Accepted; got.Status.Version == "" || a == nil || a.Topology.ScaledWorkers == nil {
		t.Errorf("the status of a cluster that is Ready lacks the version or the number of autoscaled workers: %q, %+v", got.Status.Version, a)
	}
}

// TestMachineBeforeItsAutoscaledCluster has the event of a Machine arrive before that of its cluster, in which another pool is autoscaled.
func TestMachineBeforeItsAutoscaledCluster(t *testing.T) {
	t.Parallel()
	var stopped atomic.Bool
	s := newEnv(t, envOptions{handle: func(handle events.Handler) events.Handler {
		return func(ctx context.Context, in event.Event) (*event.Event, error) {
			if stopped.Load() {
				return nil, nil
			}
			return handle(ctx, in)
		}
	}})
	s.autoscaled("shop")
	s.awaitRunning("shop")
	stopped.Store(true)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers[1].Autoscaling = &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 3}
	})
	if _, err := s.function.configureMachine(t.Context(), "shop", s.machine("shop-pool-0"), reconcileOptions{}); err != nil {
		t.Errorf("configure a Machine: %v", err)
	}
	if got := s.get("shop").Spec.Topology.ScaledWorkers; ptr.Deref(got, 0) != 2 {
		t.Errorf("scaledWorkers is %d, want the 2 workers of both pools", ptr.Deref(got, 0))
	}
}

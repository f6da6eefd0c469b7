package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/feed"
)

// createClass creates a MachineClass and delivers its event.
func (s *env) createClass(name string) *v1alpha1.MachineClass {
	s.Helper()
	c := &v1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MachineClassSpec{
		Resources: v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 8}, Memory: &v1alpha1.MachineMemory{Size: "32Gi"}},
		Disks:     []v1alpha1.MachineDisk{{Name: v1alpha1.RootDisk, Size: "100Gi"}},
	}}
	if err := s.kube.Create(s.Context(), c); err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = s.kube.Delete(context.Background(), c) })
	added := events.NewReconcileRequest("/test", events.Ref{APIVersion: v1alpha1.GroupVersion.String(), Kind: "MachineClass", Name: name}, string(c.UID), "1")
	added.SetType(events.TypeRefAdd)
	feed.Until(s, "the event is delivered, as often as the Broker would", func() (bool, string) {
		_, err := s.function.handle(s.Context(), added)
		return err == nil, fmt.Sprint(err)
	})
	return c
}

// TestMachineClassOfPool creates a cluster before the MachineClass of its pool, and deletes the MachineClass while
// the cluster runs.
func TestMachineClassOfPool(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	class := s.namespace + "-xl"
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Topology.Workers[0].Template = class
	s.create(kc)
	s.awaitReason("shop", "TemplateNotFound")
	valid := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionTopologyValid)
	if valid == nil || valid.Status != metav1.ConditionFalse || !strings.HasPrefix(valid.Message, `pool pool: template "`+class+`" does not exist: write small, medium`) ||
		!strings.HasSuffix(valid.Message, "ask the platform team to create MachineClass "+class) {
		t.Errorf("condition %+v", valid)
	}
	if machines := s.machines("shop"); len(machines) > 0 {
		t.Errorf("machines %v are created with an unknown size", machines)
	}

	object := s.createClass(class)
	s.awaitRunning("shop")
	first := s.machine("shop-pool-0")
	if first.Spec.Template != class || first.Labels[v1alpha1.LabelMachineTemplate] != class {
		t.Errorf("the machine has template %q and labels %v", first.Spec.Template, first.Labels)
	}

	if err := s.kube.Delete(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 2 })
	feed.Until(t, "the pool grows without its MachineClass", func() (bool, string) {
		kc := s.get("shop")
		return kc.Status.WorkersReady == "2/2", kc.Status.WorkersReady + " " + kc.Status.Message
	})
	s.awaitRunning("shop")
	if m := s.machine("shop-pool-0"); m.UID != first.UID {
		t.Error("the first worker was replaced")
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: "other", Replicas: 1, MachineProperties: v1alpha1.MachineProperties{Template: class}})
	})
	s.awaitReason("shop", "TemplateNotFound")
	if kc := s.get("shop"); kc.Status.Phase != v1alpha1.ClusterRunning || kc.Status.WorkersReady != "2/2" {
		t.Errorf("the cluster is %s with workers %s, want Running and 2/2", kc.Status.Phase, kc.Status.WorkersReady)
	}
	s.createClass(class)
	feed.Until(t, "the new pool has its machine", func() (bool, string) {
		kc := s.get("shop")
		return kc.Status.WorkersReady == "3/3", kc.Status.WorkersReady + " " + kc.Status.Message
	})
}

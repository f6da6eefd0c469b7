package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/bootstrap-talos/manifests"
	"github.com/vitistack/stack/functions/bootstrap-talos/talos"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// awaitBootstrapMachine waits until a control plane is chosen to bootstrap etcd.
func (s *env) awaitBootstrapMachine(cluster string) *v1alpha1.Machine {
	s.Helper()
	var m *v1alpha1.Machine
	feed.Until(s, "a control plane is chosen", func() (bool, string) {
		name := s.get(cluster).Status.BootstrapMachine
		if name == "" {
			return false, s.get(cluster).Status.Message
		}
		m = s.machine(name)
		return true, ""
	})
	return m
}

// loseMachine deletes a machine with its disk, and waits for its replacement.
func (s *env) loseMachine(m *v1alpha1.Machine) {
	s.Helper()
	if err := s.kube.Delete(s.Context(), m); err != nil {
		s.Fatal(err)
	}
	s.awaitReplacement(m.UID)
}

// awaitReplacement waits until one of three machines is replaced.
func (s *env) awaitReplacement(gone types.UID) {
	s.Helper()
	feed.Until(s, "the machine is replaced", func() (bool, string) {
		list := &v1alpha1.MachineList{}
		if err := s.kube.List(s.Context(), s.namespace, "", list); err != nil {
			return false, err.Error()
		}
		there := slices.ContainsFunc(list.Items, func(m v1alpha1.Machine) bool { return m.UID == gone })
		return !there && len(list.Items) == 3, fmt.Sprintf("%d machines, among them the one to be removed: %t", len(list.Items), there)
	})
}

// memberIDs returns the IDs of etcd's members by name.
func (s *env) memberIDs(cluster, controlPlane string) map[string]uint64 {
	s.Helper()
	ids := map[string]uint64{}
	ctx, c, end, err := talos.Connect(s.Context(), plan.Address(s.machine(controlPlane)), s.access(cluster), time.Minute)
	if err != nil {
		s.Fatal(err)
	}
	defer end()
	list, err := c.EtcdMemberList(ctx, &machine.EtcdMemberListRequest{QueryLocal: true})
	if err != nil {
		return ids
	}
	for _, m := range list.Messages[0].Members {
		if !m.IsLearner {
			ids[m.Hostname] = m.Id
		}
	}
	return ids
}

// TestBootstrapMachineIsLost loses the machine that etcd was to be bootstrapped on, or was
// bootstrapped on without a recorded success. In both cases there is exactly one etcd in the end.
func TestBootstrapMachineIsLost(t *testing.T) {
	t.Parallel()
	for name, begun := range map[string]bool{"Before": false, "After": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			if err := s.plan.Set(faults.Rule{Operation: "MachineService/Bootstrap", Error: "Unavailable", After: begun}); err != nil {
				t.Fatal(err)
			}
			s.create(s.cluster("shop", 3, 0))
			first := s.awaitBootstrapMachine("shop")
			other, before := "shop-cp-1", map[string]uint64{}
			if first.Name == other {
				other = "shop-cp-2"
			}
			if begun {
				feed.Until(t, "all control planes have joined the etcd whose bootstrap was not recorded", func() (bool, string) {
					if !plan.IsRunning(s.machine(other)) {
						return false, "no address"
					}
					before = s.memberIDs("shop", other)
					return len(before) == 3, ""
				})
			}
			s.loseMachine(first)
			if err := s.plan.Set(); err != nil {
				t.Fatal(err)
			}
			kc := s.awaitRunning("shop")
			if !begun && kc.Status.BootstrapUID == first.UID {
				t.Errorf("etcd was bootstrapped on %s, which was lost before", first.Name)
			}
			planes := s.machines("shop")
			for _, plane := range planes {
				if got := s.members("shop", plane); !slices.Equal(got, planes) {
					t.Errorf("%s has etcd members %v, want %v", plane, got, planes)
				}
			}
			if after := s.memberIDs("shop", other); begun && after[other] != before[other] {
				t.Errorf("%s was etcd member %x, and is %x: a second etcd was bootstrapped", strings.TrimPrefix(other, "shop-"), before[other], after[other])
			}
		})
	}
}

// TestReplacementHasOneName has two deliveries replace one machine. One of them still sees its
// removal, and the other sees that it is deleted.
func TestReplacementHasOneName(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{handle: dropEvents})
	s.create(s.cluster("shop", 3, 0))
	kc := s.get("shop")
	before := kc.DeepCopy()
	kube.SetCondition(&kc.Status.Conditions, kc.Generation, v1alpha1.ConditionMachinesCreated, true, "MachinesCreated", "3 machines")
	if _, err := s.kube.PatchStatus(t.Context(), before, kc); err != nil {
		t.Fatal(err)
	}
	look := func(see func(map[string]*v1alpha1.Machine)) *cluster {
		kc := s.get("shop")
		c := &cluster{KubernetesCluster: kc, before: kc.DeepCopy()}
		if err := s.function.machines.read(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		see(c.observed.machines)
		var err error
		if c.plan, err = plan.Make(kc, c.observed.machines, plan.DefaultTalosVersion); err != nil {
			t.Fatal(err)
		}
		return c
	}
	leaving := func(machines map[string]*v1alpha1.Machine) {
		machines["shop-cp-0"] = &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: "shop-cp-0", DeletionTimestamp: &metav1.Time{Time: time.Now()}, Labels: map[string]string{v1alpha1.LabelClusterRole: v1alpha1.RoleControlPlane},
		}}
	}
	begun := look(leaving)
	for _, m := range begun.plan.Members[:2] {
		s.create(manifests.NewMachine(begun.KubernetesCluster, begun.plan, m, "", ""))
	}
	sees, saw := look(leaving), look(func(map[string]*v1alpha1.Machine) {})
	if err := s.function.machines.ensure(t.Context(), sees); err != nil {
		t.Fatal(err)
	}
	if err := s.function.machines.ensure(t.Context(), saw); !kube.Conflict(err) {
		t.Errorf("the later delivery has to retry, got %v", err)
	}
	notYet := look(func(machines map[string]*v1alpha1.Machine) { delete(machines, "shop-cp-3") })
	if err := s.function.machines.ensure(t.Context(), notYet); err != nil {
		t.Fatal(err)
	}
	if got, want := s.machines("shop"), []string{"cp-1", "cp-2", "cp-3"}; !slices.Equal(got, want) {
		t.Errorf("machines %v, want %v", got, want)
	}
}

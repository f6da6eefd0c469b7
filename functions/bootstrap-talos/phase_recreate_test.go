package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestUnstartedMachinesAreRecreated corrects a cluster whose machines cannot be created.
func TestUnstartedMachinesAreRecreated(t *testing.T) {
	t.Parallel()
	schematic := strings.Repeat("a", 64)
	for name, tc := range map[string]struct {
		correct func(*v1alpha1.KubernetesCluster)
		is      func(*v1alpha1.Machine) bool
	}{
		"Template": {
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.ControlPlane.Template, kc.Spec.Topology.Workers[0].Template = "small", "small"
			},
			func(m *v1alpha1.Machine) bool {
				return m.Spec.Template == "small" && m.Labels[v1alpha1.LabelMachineTemplate] == "small"
			},
		},
		"Schematic": {
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Talos = &v1alpha1.TalosOptions{Schematic: schematic} },
			func(m *v1alpha1.Machine) bool { return strings.Contains(m.Spec.OS.ImageID, schematic) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.closed.Store(true)
			s.create(s.cluster("shop", 1, 1))
			feed.Until(t, "the machines are created", func() (bool, string) {
				return len(s.machines("shop")) == 2, s.get("shop").Status.Message
			})
			s.change("shop", tc.correct)
			feed.Until(t, "the machines are as the spec says", func() (bool, string) {
				list := &v1alpha1.MachineList{}
				if err := s.kube.List(t.Context(), s.namespace, "", list); err != nil {
					return false, err.Error()
				}
				isOther := func(m v1alpha1.Machine) bool { return !tc.is(&m) }
				return len(list.Items) == 2 && !slices.ContainsFunc(list.Items, isOther), fmt.Sprint(s.machines("shop"), " ", s.get("shop").Status.Message)
			})
			s.closed.Store(false)
			s.awaitRunning("shop")
		})
	}
}

// TestUnstartedWorkerIsRecreated corrects the template of a pool that cannot grow, while the other nodes of the cluster run.
func TestUnstartedWorkerIsRecreated(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	controlPlane := s.machine("shop-cp-0").UID
	s.closed.Store(true)
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Topology.Workers = append(kc.Spec.Topology.Workers, v1alpha1.WorkerPool{Name: "web", Replicas: 1, MachineProperties: v1alpha1.MachineProperties{Template: "large"}})
	})
	s.awaitReason("shop", reasonWaitingForMachines, "shop-web-0")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[1].Template = "small" })
	feed.Until(t, "the machine of the pool is small", func() (bool, string) {
		found := s.templates("shop")
		return found["web-0"] == "" && found["web-1"] == "small" || found["web-0"] == "small", fmt.Sprint(found)
	})
	s.closed.Store(false)
	s.awaitRunning("shop")
	if s.machine("shop-cp-0").UID != controlPlane {
		t.Error("the control plane, which runs, was replaced")
	}
}

package talos_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/google/go-cmp/cmp"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/vitistack/stack/tests/sim/talos"
)

// readyNodes returns the names of the Ready nodes.
func readyNodes(ctx context.Context, k *kubernetes.Clientset) ([]string, error) {
	list, err := k.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var ready []string
	for _, node := range list.Items {
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				ready = append(ready, node.Name)
			}
		}
	}
	return ready, nil
}

func TestClusterComesUp(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.11.6", "v1.12.4", "v1.13.9"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{})
			c := r.cluster(3, 1)
			ready, err := readyNodes(t.Context(), r.kube())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"cp-2", "cp-3", "cp-4", "worker-5"}, ready); diff != "" {
				t.Errorf("nodes of the cluster (-want +got):\n%s", diff)
			}
			r.eventually("all control planes are voters", func(ctx context.Context) error {
				names, err := members(ctx, c)
				slices.Sort(names)
				if diff := cmp.Diff([]string{"cp-2", "cp-3", "cp-4"}, names); err == nil && diff != "" {
					return fmt.Errorf("members differ:\n%s", diff)
				}
				return err
			})
		})
	}
}

func TestDiskImageNeedsNoInstallation(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.12.4", "v1.13.9"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			r := newRack(t, version, talos.Timing{Install: time.Hour})
			m := r.machine(2)
			m.Kind, m.Preinstalled = "nocloud", true
			if err := r.fleet.PowerOn(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			r.apply(2, r.config(machine.TypeControlPlane, "machine:\n  install:\n    $patch: delete\n"))
			c := r.up(2)
			r.bootstrap(c)
			r.nodesReady(1)
			v, err := c.Version(t.Context())
			if err != nil || v.Messages[0].Platform.Name != "nocloud" || v.Messages[0].Platform.Mode != "cloud" {
				t.Errorf("platform is %v, %v", v, err)
			}
		})
	}
}

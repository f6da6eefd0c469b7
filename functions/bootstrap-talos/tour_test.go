package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/client/config"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// TestTour creates a cluster of each Talos version. With the owner's talosconfig it calls what
// talosctl version, etcd members and kubeconfig call.
func TestTour(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1.11.6", "1.12.6", "1.13.9"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			kc := s.cluster("shop", 1, 1)
			kc.Spec.Topology.Version, kc.Spec.Talos = "1.34.1", &v1alpha1.TalosOptions{Version: version}
			s.create(kc)
			s.awaitRunning("shop", "cp-0", "pool-0")
			file, err := config.FromBytes(s.secret("shop-talosconfig").Data[talosconfigKey])
			if err != nil {
				t.Fatal(err)
			}
			c, err := client.New(t.Context(), client.WithConfig(file))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			ctx := client.WithNodes(t.Context(), plan.Address(s.machine("shop-cp-0")), plan.Address(s.machine("shop-pool-0")))
			answers, err := c.Version(ctx)
			if err != nil || len(answers.Messages) != 2 {
				t.Fatalf("version: %v, %v", answers, err)
			}
			for _, m := range answers.Messages {
				if m.Version.Tag != "v"+version {
					t.Errorf("node %s runs %s, want v%s", m.Metadata.GetHostname(), m.Version.Tag, version)
				}
			}
			members, err := c.EtcdMemberList(t.Context(), &machine.EtcdMemberListRequest{})
			if err != nil || len(members.Messages[0].Members) != 1 || members.Messages[0].Members[0].Hostname != "shop-cp-0" {
				t.Errorf("etcd members: %v, %v", members, err)
			}
			kubeconfig, err := c.Kubeconfig(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := nodesBy(t, kubeconfig); !slices.Equal(got, []string{"shop-cp-0", "shop-pool-0"}) {
				t.Errorf("the kubeconfig lists nodes %v", got)
			}
		})
	}
}

// nodesBy returns the names of the nodes that a kubeconfig gives access to.
func nodesBy(t *testing.T, kubeconfig []byte) []string {
	t.Helper()
	rest, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	api, err := kubernetes.NewForConfig(rest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := api.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range list.Items {
		names = append(names, strings.TrimSpace(n.Name))
	}
	slices.Sort(names)
	return names
}

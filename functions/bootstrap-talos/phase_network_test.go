package main

import (
	"fmt"
	"net"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// awaitEndpoint waits until status, kubeconfig and the configuration of these nodes have an endpoint, and
// checks that the API answers there.
func (s *env) awaitEndpoint(cluster, host string, nodes ...string) {
	s.Helper()
	want := "https://" + net.JoinHostPort(host, "6443")
	feed.Until(s, "the endpoint is "+want, func() (bool, string) {
		if got := s.get(cluster).Status.Endpoint; got != want {
			return false, "the status has " + got
		}
		config, err := clientcmd.RESTConfigFromKubeConfig(s.secret(cluster + "-kubeconfig").Data[kubeconfigKey])
		if err != nil || config.Host != want {
			return false, "the kubeconfig has another endpoint"
		}
		for _, node := range nodes {
			if !strings.Contains(s.activeConfig(cluster, node), "endpoint: "+want) {
				return false, "the configuration of " + node + " says otherwise"
			}
		}
		_, err = s.workload(cluster).CoreV1().Nodes().List(s.Context(), metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// TestClusterStaysInItsNetwork creates another NetworkNamespace beside that of a cluster which names none.
func TestClusterStaysInItsNetwork(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	if n := s.machine("shop-pool-0").Spec.NetworkNamespaceName; n != "" {
		t.Errorf("a first Machine names network %q: the only network could not be replaced any more", n)
	}
	s.create(&v1alpha2.NetworkNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: "another"},
		Spec:       v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic}},
	})
	s.reconcile("shop")
	if kc := s.get("shop"); !isUpToDate(kc) {
		t.Errorf("another network in the namespace: got %s: %s", kc.Status.Phase, kc.Status.Message)
	}
	s.change("shop", replicas(3, map[string]int32{"pool": 2}))
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0", "pool-1")
	if n := s.machine("shop-pool-1").Spec.NetworkNamespaceName; n != "net" {
		t.Errorf("a new Machine is in network %q, want net", n)
	}
}

// TestNetworkIsRecorded writes another NetworkNamespace into a running cluster that names none, and then that of its
// machines.
func TestNetworkIsRecorded(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(&v1alpha2.NetworkNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: "another"},
		Spec:       v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic}},
	})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.NetworkNamespaceName = "net"
	s.create(kc)
	if got := s.awaitRunning("shop", "cp-0", "pool-0").Status.NetworkNamespaceName; got != "net" {
		t.Errorf("the status names NetworkNamespace %q, want net", got)
	}
}

// TestWrongEndpointIsCorrected writes the host of another server into a running cluster, and then the right one.
func TestWrongEndpointIsCorrected(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop", "cp-0")
	endpoint := s.get("shop").Status.Endpoint
	write := func(host string) {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointCustom, Host: host}
		})
	}
	write("127.0.0.9")
	s.awaitReason("shop", "WaitingForEndpoint", "nothing serves the endpoint https://127.0.0.9:6443")
	if got := s.get("shop").Status.Endpoint; got != endpoint {
		t.Errorf("the endpoint is %s before it is served, want %s", got, endpoint)
	}
	write(plan.Address(s.machine("shop-cp-0")))
	s.awaitRunning("shop", "cp-0")
	s.awaitEndpoint("shop", plan.Address(s.machine("shop-cp-0")), "cp-0")
}

// TestWrongVirtualAddressIsCorrected writes an address outside of the network into a running cluster, and then none.
func TestWrongVirtualAddressIsCorrected(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop", "cp-0")
	write := func(address string) {
		s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
			kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: address}
		})
	}
	write("192.0.2.9")
	s.awaitReason("shop", "VirtualAddressFailed", "192.0.2.9")
	write("")
	s.awaitRunning("shop", "cp-0")
	s.awaitEndpoint("shop", s.vip("shop"), "cp-0")
}

// TestRefusedVirtualAddressStopsNoRepair grows a running cluster by a worker while its endpoint cannot become the virtual address that
// its spec names.
func TestRefusedVirtualAddressStopsNoRepair(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	endpoint := s.get("shop").Status.Endpoint
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: "192.0.2.9"}
		kc.Spec.Topology.Workers[0].Replicas = 2
	})
	feed.Until(t, "the pool grows", func() (bool, string) {
		kc := s.get("shop")
		return kc.Status.WorkersReady == "2/2", kc.Status.WorkersReady + " " + kc.Status.Message
	})
	s.awaitReason("shop", "VirtualAddressFailed", "192.0.2.9")
	if got := s.get("shop").Status.Endpoint; got != endpoint {
		t.Errorf("the endpoint is %s, want %s, which the nodes know", got, endpoint)
	}
}

// TestUnusedVirtualAddressIsReleased asks for a virtual address in a running cluster that cannot get it, and then for none.
func TestUnusedVirtualAddressIsReleased(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]*v1alpha1.ControlPlaneEndpoint{"Node": {Mode: v1alpha1.EndpointNode}, "Removed": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", 1, 0))
			s.awaitRunning("shop", "cp-0")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: "192.0.2.9"}
			})
			s.awaitReason("shop", "VirtualAddressFailed", "192.0.2.9")
			s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.ControlPlaneEndpoint = endpoint })
			s.awaitRunning("shop", "cp-0")
			s.awaitEndpoint("shop", plan.Address(s.machine("shop-cp-0")), "cp-0")
			if err := s.kube.Get(t.Context(), s.namespace, "shop-vip", &v1alpha2.IPAllocation{}); !kube.NotFound(err) {
				t.Errorf("the IPAllocation of the virtual address stays: %v", err)
			}
		})
	}
}

// TestEndpointOfANode replaces the node whose address is the endpoint.
func TestEndpointOfANode(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.awaitEndpoint("shop", plan.Address(s.machine("shop-cp-0")), "cp-0", "pool-0")
	s.annotate("shop-cp-0", v1alpha1.AnnotationRemove, "true")
	s.awaitRunning("shop", "cp-1", "pool-0")
	s.awaitEndpoint("shop", plan.Address(s.machine("shop-cp-1")), "cp-1", "pool-0")
}

// TestEndpointBecomesVirtual replaces the endpoint of one node by the virtual address of three, which
// stays when two of them are removed.
func TestEndpointBecomesVirtual(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.change("shop", replicas(3, map[string]int32{"pool": 1}))
	s.awaitRunning("shop", "cp-0", "cp-1", "cp-2", "pool-0")
	vip := s.vip("shop")
	s.awaitEndpoint("shop", vip, "cp-0", "cp-1", "cp-2", "pool-0")
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitRunning("shop", "cp-0", "pool-0")
	s.reconcile("shop")
	s.awaitEndpoint("shop", vip, "cp-0", "pool-0")
}

// TestDeletedVirtualAddressIsKept deletes the IPAllocation of the virtual address of a running cluster.
func TestDeletedVirtualAddressIsKept(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	endpoint := s.awaitRunning("shop").Status.Endpoint
	a := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(t.Context(), s.namespace, "shop-vip", a); err != nil {
		t.Fatal(err)
	}
	former := a.DeepCopy()
	if err := s.kube.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the address is allocated again", func() (bool, string) {
		s.reconcile("shop")
		now := &v1alpha2.IPAllocation{}
		err := s.kube.Get(t.Context(), s.namespace, "shop-vip", now)
		return err == nil && now.UID != former.UID && now.Status.Address != "", fmt.Sprint(err, now.Status)
	})
	if got := s.vip("shop"); got != former.Status.Address {
		t.Errorf("the virtual address is %s, want %s", got, former.Status.Address)
	}
	if got := s.awaitRunning("shop").Status.Endpoint; got != endpoint {
		t.Errorf("the endpoint is %s, want %s, which every kubeconfig names", got, endpoint)
	}
}

// TestEndpointIsServed has machines whose network interfaces no configuration selects, so that no node
// has the virtual address.
func TestEndpointIsServed(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.temporary = true
	s.create(s.cluster("shop", 3, 0))
	s.awaitReason("shop", "WaitingForEndpoint", "nothing serves the endpoint", "control planes answer", "node shop-cp-", "02:00:00", "alias net0")
	if kc := s.get("shop"); kc.Status.Phase == v1alpha1.ClusterRunning {
		t.Errorf("the cluster is %s, although no node serves its endpoint", kc.Status.Phase)
	}
}

// vip returns the virtual address of a cluster.
func (s *env) vip(cluster string) string {
	s.Helper()
	a := &v1alpha2.IPAllocation{}
	if err := s.kube.Get(s.Context(), s.namespace, cluster+"-vip", a); err != nil {
		s.Fatal(err)
	}
	return a.Status.Address
}

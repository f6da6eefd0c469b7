package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// network creates another Ready network, with an allocation type and a prefix.
func (s *env) network(name string, kind v1alpha2.AllocationType, prefix string) {
	s.Helper()
	nn := &v1alpha2.NetworkNamespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: kind}},
	}
	s.create(nn)
	before := nn.DeepCopy()
	nn.Status.IPv4Prefix = prefix
	nn.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "NetworkReady", LastTransitionTime: metav1.Now()}}
	if _, err := s.kube.PatchStatus(s.Context(), before, nn); err != nil {
		s.Fatal(err)
	}
}

// TestRemediesOfNewClusters has clusters that do not fit into their network. No machine is created,
// and following the message leads to Running.
func TestRemediesOfNewClusters(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		words   []string
		network v1alpha2.AllocationType
		prefix  string
		planes  int32
		wrong   func(*v1alpha1.KubernetesCluster)
		remedy  func(*v1alpha1.KubernetesCluster)
	}{
		"DHCP": {"VirtualAddressFailed", []string{"NetworkNamespace \"lan\"", "write mode node"}, v1alpha2.AllocationDHCP, "", 3,
			func(*v1alpha1.KubernetesCluster) {},
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointNode}
			}},
		"Requested": {"VirtualAddressFailed", []string{"10.9.9.9", "ask for another", "spec.controlPlaneEndpoint.address"}, v1alpha2.AllocationStatic, "", 3,
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointVIP, Address: "10.9.9.9"}
			},
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.ControlPlaneEndpoint.Address = "" }},
		"Overlap": {"NetworkOverlap", []string{"serviceCIDR 10.96.0.0/12", "spec.networking.serviceCIDR"}, v1alpha2.AllocationStatic, "10.100.0.0/24", 1,
			func(*v1alpha1.KubernetesCluster) {},
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Networking = &v1alpha1.ClusterNetworking{ServiceCIDR: "172.20.0.0/16"}
			}},
		"Family": {"FamilyMismatch", []string{"podCIDR fd01::/56", "has only 10.50.0.0/24", "spec.networking.podCIDR"}, v1alpha2.AllocationStatic, "10.50.0.0/24", 1,
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Networking = &v1alpha1.ClusterNetworking{PodCIDR: "fd01::/56"}
			},
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Networking = nil }},
		"Pods": {"PrefixSize", []string{"podCIDR 10.1.0.0/24", "write a prefix of /23", "spec.networking.podCIDR"}, v1alpha2.AllocationStatic, "10.50.0.0/24", 1,
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Networking = &v1alpha1.ClusterNetworking{PodCIDR: "10.1.0.0/24"}
			},
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Networking.PodCIDR = "10.1.0.0/23" }},
		"Services": {"PrefixSize", []string{"serviceCIDR 172.0.0.0/11", "write a prefix of /12 to /28", "spec.networking.serviceCIDR"}, v1alpha2.AllocationStatic, "10.50.0.0/24", 1,
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Topology.Version, kc.Spec.Networking = "1.33", &v1alpha1.ClusterNetworking{ServiceCIDR: "172.0.0.0/11"} // Kubernetes 1.34 accepts it
			},
			func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Networking.ServiceCIDR = "172.16.0.0/12" }},
		"Patched": {"PrefixSize", []string{"podCIDR 10.1.0.0/25"}, v1alpha2.AllocationStatic, "10.50.0.0/24", 1,
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Networking = &v1alpha1.ClusterNetworking{PodCIDR: "10.1.0.0/25"}
			},
			func(kc *v1alpha1.KubernetesCluster) {
				kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{ControlPlane: []v1alpha1.ObjectName{"node-prefixes"}}}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.network("lan", tc.network, tc.prefix)
			kc := s.cluster("shop", tc.planes, 0)
			kc.Spec.NetworkNamespaceName = "lan"
			tc.wrong(kc)
			s.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "node-prefixes"}, Data: map[string]string{
				"sizes.yaml": "cluster: {controllerManager: {extraArgs: {node-cidr-mask-size-ipv4: \"27\"}}}",
			}})
			s.create(kc)
			s.awaitReason("shop", tc.reason, tc.words...)
			if got := s.machines("shop"); len(got) != 0 {
				t.Errorf("machines %v of an invalid cluster were created", got)
			}
			s.change("shop", tc.remedy)
			s.awaitRunning("shop")
		})
	}
}

// TestMoreNodesThanPodPrefixes scales a cluster beyond its podCIDR, which keeps its nodes and says what to write.
func TestMoreNodesThanPodPrefixes(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Networking = &v1alpha1.ClusterNetworking{PodCIDR: "10.1.0.0/22"}
	s.create(kc)
	s.awaitRunning("shop")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 3 })
	s.awaitReason("shop", "InvalidTopology", "podCIDR 10.1.0.0/22, which cannot be changed", "to 3 machines in all")
	if got := s.machines("shop"); len(got) != 2 {
		t.Errorf("the cluster has the machines %v, want 2", got)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Topology.Workers[0].Replicas = 2 })
	s.awaitRunning("shop")
}

// TestEndpointPort has the API servers listen on the port of the endpoint.
func TestEndpointPort(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.ControlPlaneEndpoint = &v1alpha1.ControlPlaneEndpoint{Mode: v1alpha1.EndpointNode, Port: 7443}
	s.create(kc)
	if got := s.awaitRunning("shop").Status.Endpoint; !strings.HasSuffix(got, ":7443") {
		t.Errorf("the endpoint is %s", got)
	}
	if _, err := s.workload("shop").CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the API server does not answer at the endpoint: %v", err)
	}
}

package main

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/feed"
)

// owned returns the objects that belong to a cluster by their label.
func (s *env) owned(cluster string) (all []kube.Object) {
	s.Helper()
	labelled := metav1.ListOptions{LabelSelector: v1alpha1.LabelClusterName + "=" + cluster}
	machines := &v1alpha1.MachineList{}
	client, err := kubernetes.NewForConfig(s.config)
	if err == nil {
		err = s.kube.List(s.Context(), s.namespace, labelled.LabelSelector, machines)
	}
	if err != nil {
		s.Fatal(err)
	}
	secrets, err := client.CoreV1().Secrets(s.namespace).List(s.Context(), labelled)
	if err != nil {
		s.Fatal(err)
	}
	configMaps, err := client.CoreV1().ConfigMaps(s.namespace).List(s.Context(), labelled)
	if err != nil {
		s.Fatal(err)
	}
	for i := range machines.Items {
		all = append(all, &machines.Items[i])
	}
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	for i := range configMaps.Items {
		all = append(all, &configMaps.Items[i])
	}
	return all
}

// orphanCluster deletes a cluster with --cascade=orphan, and plays the garbage collector.
func (s *env) orphanCluster(name string) {
	s.Helper()
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	how := metav1.DeletePropagationOrphan
	if err := client.Resource(clusters.Resource).Namespace(s.namespace).Delete(s.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		s.Fatal(err)
	}
	s.awaitReason(name, reasonDeleting, "garbage collector")
	for _, obj := range s.owned(name) {
		s.orphan(obj)
	}
	kc := s.get(name)
	left := slices.DeleteFunc(slices.Clone(kc.Finalizers), func(f string) bool { return f == metav1.FinalizerOrphanDependents })
	if err := s.kube.Merge(s.Context(), kc, map[string]any{"metadata": map[string]any{"finalizers": left}}); err != nil {
		s.Fatal(err)
	}
	feed.Until(s, "the cluster is deleted", func() (bool, string) {
		err := s.kube.Get(s.Context(), s.namespace, name, &v1alpha1.KubernetesCluster{})
		return kube.NotFound(err), ""
	})
}

// adopt makes a cluster the owner of objects, as kubectl viti adopt does.
func (s *env) adopt(kc *v1alpha1.KubernetesCluster, all []kube.Object) error {
	owners := kube.Owned(kc, v1alpha1.GroupVersion.String(), "KubernetesCluster")
	for _, obj := range all {
		if err := s.kube.Merge(s.Context(), obj, map[string]any{"metadata": map[string]any{"ownerReferences": owners}}); err != nil {
			return err
		}
	}
	return nil
}

// beforeRequest calls do once, before a request for a resource.
type beforeRequest struct {
	http.RoundTripper
	resource string
	do       atomic.Pointer[func() error]
}

// RoundTrip implements http.RoundTripper.
func (b *beforeRequest) RoundTrip(req *http.Request) (*http.Response, error) {
	if strings.Contains(req.URL.Path, "/"+b.resource) {
		if do := b.do.Swap(nil); do != nil {
			if err := (*do)(); err != nil {
				return nil, err
			}
		}
	}
	return b.RoundTripper.RoundTrip(req)
}

// TestAdoptedClusterKeepsItsVersions deletes a cluster with --cascade=orphan, creates it again with a minor version and without a Talos
// version, and has it adopt what it owned. Its nodes stay as they are.
func TestAdoptedClusterKeepsItsVersions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		creating bool
	}{
		"after NameTaken":    {"the user follows the message", false},
		"during a reconcile": {"a delivery that has not seen the Machines of the cluster meets them when it creates them", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := &beforeRequest{resource: "configmaps"} // a reconcile has listed the Machines then
			s := newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper {
				reads.RoundTripper = next
				return reads
			}})
			kc := s.cluster("shop", 1, 1)
			kc.Spec.Topology.Version, kc.Spec.Talos = "1.33.2", &v1alpha1.TalosOptions{Version: "1.12.6"}
			s.create(kc)
			s.awaitVersions("shop", "1.33.2", "1.12.6")
			machines := s.machines("shop")
			members := s.memberIDs("shop", "shop-cp-0")
			s.orphanCluster("shop")

			again := s.cluster("shop", 1, 1)
			again.Spec.Topology.Version = "1.33"
			again.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: string(kc.UID)}
			owned := s.owned("shop")
			if tc.creating {
				adopt := func() error { return s.adopt(s.get("shop"), owned) }
				reads.do.Store(&adopt)
				s.create(again)
			} else {
				s.create(again)
				s.awaitReason("shop", "NameTaken")
				if err := s.adopt(again, owned); err != nil {
					t.Fatal(err)
				}
			}
			got := s.awaitRunning("shop", machines...)
			if got.Status.Version != "1.33.2" || got.Status.TalosVersion != "1.12.6" || got.Status.BootstrapMachine != "shop-cp-0" {
				t.Errorf("the status has Kubernetes %s, Talos %s, and etcd on %q: %s", got.Status.Version, got.Status.TalosVersion, got.Status.BootstrapMachine, tc.reason)
			}
			for node, versions := range nodeVersions(got) {
				if versions != "v1.33.2 on 1.12.6" {
					t.Errorf("%s runs %s: %s", node, versions, tc.reason)
				}
			}
			for _, image := range []string{"kube-apiserver:v1.33.2", "kubelet:v1.33.2"} {
				if !strings.Contains(s.activeConfig("shop", "cp-0"), image) {
					t.Errorf("the control plane does not have the image %s any more: %s", image, tc.reason)
				}
			}
			if after := s.memberIDs("shop", "shop-cp-0"); after["shop-cp-0"] != members["shop-cp-0"] {
				t.Errorf("the member of etcd was %x, and is %x: a second etcd was bootstrapped: %s", members["shop-cp-0"], after["shop-cp-0"], tc.reason)
			}
		})
	}
}

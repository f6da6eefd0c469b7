package main

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

// deploy runs replicas pods in a cluster, with a PodDisruptionBudget that keeps stay of them.
func (s *env) deploy(cluster, name string, replicas int32, stay int) {
	s.Helper()
	labels := map[string]string{"app": name}
	client := s.workload(cluster)
	_, err := client.AppsV1().Deployments("default").Create(s.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "example.com/app:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	least := intstr.FromInt32(int32(stay))
	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(s.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	feed.Until(s, "the pods run", func() (bool, string) {
		d, err := client.AppsV1().Deployments("default").Get(s.Context(), name, metav1.GetOptions{})
		return err == nil && d.Status.ReadyReplicas == replicas, ""
	})
}

// podsOn returns the pods on a node in namespace default.
func (s *env) podsOn(cluster, node string) (names []string) {
	s.Helper()
	list, err := s.workload(cluster).CoreV1().Pods("default").List(s.Context(), metav1.ListOptions{})
	if err != nil {
		s.Fatal(err)
	}
	for _, p := range list.Items {
		if p.Spec.NodeName == cluster+"-"+node {
			names = append(names, p.Name)
		}
	}
	return names
}

func TestDrainRespectsBudgets(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 1, 2))
	s.awaitRunning("shop")
	s.deploy("shop", "web", 4, 4)
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitReason("shop", "RemovingNodes", "pool-", "default/web-", "The disruption budget web needs 4 healthy pods")
	leaving := "pool-1"
	if s.machine("shop-pool-0").Annotations[v1alpha1.AnnotationRemoving] != "" {
		leaving = "pool-0"
	}
	if len(s.podsOn("shop", leaving)) == 0 {
		t.Errorf("no pod is left on %s, although the PodDisruptionBudget keeps all", leaving)
	}
	err := s.workload("shop").PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kc := s.awaitRunning("shop", slices.DeleteFunc([]string{"cp-0", "pool-0", "pool-1"}, func(n string) bool { return n == leaving })...)
	if kc.Status.WorkersReady != "1/1" {
		t.Errorf("workers: %s, want 1/1", kc.Status.WorkersReady)
	}
}

func TestNamedMachineIsReplaced(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	s.awaitRunning("shop")
	s.annotate("shop-cp-0", v1alpha1.AnnotationRemove, "true") // the bootstrap node, which is healthy
	s.awaitRunning("shop", "cp-1", "cp-2", "cp-3")
	if got := s.members("shop", "cp-1"); !slices.Equal(got, []string{"cp-1", "cp-2", "cp-3"}) {
		t.Errorf("etcd members: %v", got)
	}
}

func TestDeadControlPlaneIsReplaced(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(*env){
		"Named":   func(s *env) { s.annotate("shop-cp-1", v1alpha1.AnnotationRemove, "true") },
		"Deleted": func(s *env) { _ = s.kube.Delete(s.Context(), s.machine("shop-cp-1")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newEnv(t, envOptions{})
			s.create(s.cluster("shop", 3, 0))
			s.awaitRunning("shop")
			if err := s.fleet.PowerOff(string(s.machine("shop-cp-1").UID)); err != nil {
				t.Fatal(err)
			}
			dead := s.machine("shop-cp-1").UID
			how(s)
			s.awaitReplacement(dead)
			s.awaitRunning("shop")
			want := s.machines("shop") // the name of a deleted machine can be used again
			if got := s.members("shop", "cp-0"); !slices.Equal(got, want) {
				t.Errorf("etcd members: %v, want %v", got, want)
			}
			if _, all := s.nodes("shop"); !slices.Equal(all, want) {
				t.Errorf("nodes: %v, want %v", all, want)
			}
		})
	}
}

// TestQuorum has two of three control planes die. No member is removed from etcd until a user forces
// it.
func TestQuorum(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.create(s.cluster("shop", 3, 0))
	s.awaitRunning("shop")
	for _, name := range []string{"shop-cp-1", "shop-cp-2"} {
		if err := s.fleet.PowerOff(string(s.machine(name).UID)); err != nil {
			t.Fatal(err)
		}
	}
	s.annotate("shop-cp-1", v1alpha1.AnnotationRemove, "true") // before a replacement is selected
	s.change("shop", replicas(1, nil))
	s.awaitReason("shop", "EtcdUnavailable", "shop-cp-1", v1alpha1.AnnotationForce)
	for _, name := range []string{"cp-0", "cp-1", "cp-2"} { // and cp-3, if the removal of cp-1 was seen first
		if got := s.machines("shop"); !slices.Contains(got, name) {
			t.Errorf("machines %v, want %s among them", got, name)
		}
	}
	s.annotate("shop-cp-1", v1alpha1.AnnotationForce, "true")
	feed.Until(t, "the Machine is deleted", func() (bool, string) {
		got := s.machines("shop")
		return !slices.Contains(got, "cp-1"), strings.Join(got, " ")
	})
}

// TestNodeBeforeStatus has the kubelet of a machine register before the status of the Machine says that it has a virtual machine, as it
// happens if create-vm ends in between. A kubelet does not register again, so that the Node has to stay.
func TestNodeBeforeStatus(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{started: func(s *env, m *v1alpha1.Machine) {
		if plan.PoolOf(m) == v1alpha1.ControlPlanePool {
			return
		}
		feed.Until(s, "the new node has registered", func() (bool, string) {
			_, all := s.nodes("shop")
			return len(all) == 2, strings.Join(all, ", ")
		})
		s.reconcile("shop")
	}})
	s.create(s.cluster("shop", 1, 0))
	s.awaitRunning("shop", "cp-0")
	s.change("shop", replicas(1, map[string]int32{"pool": 1}))
	s.awaitRunning("shop", "cp-0", "pool-0")
}

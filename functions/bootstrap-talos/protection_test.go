package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/feed"
)

// asFunction sends requests with the rights of bootstrap-talos in an installation.
type asFunction struct{ next http.RoundTripper }

func (a asFunction) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Impersonate-User", "system:serviceaccount:vitistack-system:bootstrap-talos")
	return a.next.RoundTrip(r)
}

// newProtectedEnv returns an env whose API server has the policy of protected objects, and whose
// function has its shipped rights.
func newProtectedEnv(t *testing.T) *env {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t)
	client, err := dynamic.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]schema.GroupVersionResource{
		"ClusterRole":                      {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
		"ClusterRoleBinding":               {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
		"ValidatingAdmissionPolicy":        {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"},
		"ValidatingAdmissionPolicyBinding": {Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"},
	}
	for _, file := range []string{"bootstrap-talos.yaml", "admission.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "knative", file))
		if err != nil {
			t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(doc), &object.Object); err != nil {
				t.Fatal(err)
			}
			resource, known := resources[object.GetKind()]
			if !known || (file == "admission.yaml" && object.GetName() != "vitistack-protected") {
				continue
			}
			body, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			force := true
			if _, err := client.Resource(resource).Patch(t.Context(), object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "install", Force: &force}); err != nil {
				t.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
	return newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper { return asFunction{next} }})
}

// protect sets spec.protected of a Machine. If protected is true, it waits until the API server
// refuses a deletion.
func (s *env) protect(name string, protected bool) {
	s.Helper()
	if err := s.kube.Merge(s.Context(), s.machine(name), map[string]any{"spec": map[string]any{"protected": protected}}); err != nil {
		s.Fatal(err)
	}
	client, err := dynamic.NewForConfig(s.config)
	if err != nil {
		s.Fatal(err)
	}
	if !protected {
		return
	}
	feed.Until(s, "a deletion of "+name+" is refused", func() (bool, string) {
		err := client.Resource(machines.Resource).Namespace(s.namespace).Delete(s.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "is protected"), ""
	})
}

// requireUntouched checks that the removal of a node has not started.
func (s *env) requireUntouched(cluster, node string) {
	s.Helper()
	for range 3 {
		s.reconcile(cluster)
	}
	m := s.machine(cluster + "-" + node)
	if m.DeletionTimestamp != nil || m.Annotations[v1alpha1.AnnotationRemoving] != "" {
		s.Errorf("the removal of %s has started: %v", node, m.ObjectMeta)
	}
	n, err := s.workload(cluster).CoreV1().Nodes().Get(s.Context(), m.Name, metav1.GetOptions{})
	if err != nil || n.Spec.Unschedulable {
		s.Errorf("node %s is cordoned, %v", node, err)
	}
}

// TestProtectedMachineIsNotRemoved requests the removal of protected Machines in each way that a user
// has, and follows the condition.
func TestProtectedMachineIsNotRemoved(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason       string
		machine      string
		remove       func(*env)
		during, then []string
	}{
		"ScaledDown": {"the newest worker is protected, and the other one is removed in its place", "pool-1",
			func(s *env) { s.change("shop", replicas(1, map[string]int32{"pool": 1})) }, []string{"cp-0", "pool-1"}, nil},
		"ScaledToZero": {"only protected workers are left, and the rest of the cluster follows its spec", "pool-1",
			func(s *env) { s.change("shop", replicas(1, map[string]int32{"pool": 0, "other": 1})) }, []string{"cp-0", "other-0", "pool-1"}, []string{"cp-0", "other-0"}},
		"PoolRemoved": {"a removed pool keeps its protected worker", "pool-0",
			func(s *env) { s.change("shop", replicas(1, nil)) }, []string{"cp-0", "pool-0"}, []string{"cp-0"}},
		"Marked": {"a protected worker gets no replacement", "pool-0",
			func(s *env) { s.annotate("shop-pool-0", v1alpha1.AnnotationRemove, "true") }, []string{"cp-0", "pool-0", "pool-1"}, []string{"cp-0", "pool-1", "pool-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProtectedEnv(t)
			s.create(s.cluster("shop", 1, 2))
			s.awaitRunning("shop", "cp-0", "pool-0", "pool-1")
			s.protect("shop-"+tc.machine, true)
			tc.remove(s)
			if tc.then == nil {
				s.awaitRunning("shop", tc.during...)
				return
			}
			s.awaitReason("shop", reasonMachineProtected, "cannot remove Machine "+s.namespace+"/shop-"+tc.machine, s.machine("shop-"+tc.machine).UnprotectCommand())
			feed.Until(t, tc.reason, func() (bool, string) {
				ready, all := s.nodes("shop")
				return slices.Equal(s.machines("shop"), tc.during) && slices.Equal(all, tc.during) && slices.Equal(ready, all), strings.Join(all, " ")
			})
			s.requireUntouched("shop", tc.machine)
			s.awaitReason("shop", reasonMachineProtected)
			s.protect("shop-"+tc.machine, false)
			s.awaitRunning("shop", tc.then...)
		})
	}
}

// TestProtectedMachineKeepsItsCluster deletes a cluster with a protected Machine. The cluster is
// unchanged until the protection ends.
func TestProtectedMachineKeepsItsCluster(t *testing.T) {
	t.Parallel()
	for name, force := range map[string]bool{"Deleted": false, "Forced": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newProtectedEnv(t)
			s.create(s.cluster("shop", 1, 1))
			kc := s.awaitRunning("shop", "cp-0", "pool-0")
			s.protect("shop-pool-0", true)
			if force {
				if err := s.kube.Merge(t.Context(), kc, map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationForce: "true"}}}); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.kube.Delete(t.Context(), kc); err != nil {
				t.Fatal(err)
			}
			s.awaitReason("shop", reasonMachineProtected, s.machine("shop-pool-0").UnprotectCommand())
			for range 3 {
				s.reconcile("shop")
			}
			for _, node := range []string{"cp-0", "pool-0"} {
				s.requireUntouched("shop", node)
			}
			s.protect("shop-pool-0", false)
			feed.Until(t, "the cluster is deleted", func() (bool, string) {
				err := s.kube.Get(t.Context(), s.namespace, "shop", &v1alpha1.KubernetesCluster{})
				return kube.NotFound(err) && len(s.machines("shop")) == 0, ""
			})
		})
	}
}

// TestProtectionStopsRemoval protects a worker whose removal has started.
func TestProtectionStopsRemoval(t *testing.T) {
	t.Parallel()
	s := newProtectedEnv(t)
	s.create(s.cluster("shop", 1, 1))
	s.awaitRunning("shop")
	s.deploy("shop", "web", 2, 2)
	s.change("shop", replicas(1, nil))
	s.awaitReason("shop", "RemovingNodes", "pool-0")
	s.protect("shop-pool-0", true)
	s.awaitReason("shop", reasonMachineProtected, s.machine("shop-pool-0").UnprotectCommand())
	if err := s.workload("shop").PolicyV1().PodDisruptionBudgets("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.reconcile("shop")
	}
	if pods := s.podsOn("shop", "pool-0"); len(pods) != 2 {
		t.Errorf("pods of a protected Machine were evicted, left are %v", pods)
	}
	s.protect("shop-pool-0", false)
	s.awaitRunning("shop", "cp-0")
}

// TestRefusedDeletion distinguishes the refusal of the policy from other refusals of the API server.
func TestRefusedDeletion(t *testing.T) {
	t.Parallel()
	machines := v1alpha1.GroupVersion.WithResource("machines").GroupResource()
	for name, tc := range map[string]struct {
		reason  string
		message string
		want    bool
	}{
		"Protected": {"the message names the policy", "ValidatingAdmissionPolicy 'vitistack-protected' with binding 'vitistack-protected' denied request: Machine a/b is protected", true},
		"Rights":    {"the platform team has to grant the right", `User "bootstrap-talos" cannot delete resource "machines"`, false},
		"Webhook":   {"another policy of the installation", `admission webhook "guard.example.com" denied the request`, false},
	} {
		_, got := reconcile.AsUserError(refusedDeletion(apierrors.NewForbidden(machines, "b", errors.New(tc.message))))
		if got != tc.want {
			t.Errorf("%s: %s: MachineProtected is %t", name, tc.reason, got)
		}
	}
}

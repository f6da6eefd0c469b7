package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	machineClass     = "apiVersion: vitistack.io/v1alpha1\nkind: MachineClass\nmetadata: {name: odd}\nspec: {resources: {cpu: {cores: 3}, memory: {size: 3Gi}}, disks: [{name: root, size: 23Gi}]}\n"
	machineWithClass = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: alone}
spec: {template: odd, providerRef: {name: kubevirt}, networkNamespaceName: network}
`
	clusterWithClass = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec: {data: {}, networkNamespaceName: network, topology: {version: "1.33", controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}},
  workers: [{name: odd, replicas: 1, template: odd, providerRef: {name: kubevirt}}]}}
`
)

// TestMachineClass creates a Machine and a cluster before their MachineClass, and deletes it while they run.
func TestMachineClass(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", machineWithClass)
	e.Apply("default", clusterWithClass)
	missing := `template "odd" does not exist: write small, medium or large, or ask the platform team to create MachineClass odd`
	for name, message := range map[string]string{"alone": missing, "shop": "pool odd: " + missing} {
		feed.Until(t, name+" says that its size does not exist", func() (bool, string) {
			ready := readyOf(t, e, name)
			return ready.Reason == "TemplateNotFound" && ready.Message == message, ready.String()
		})
	}

	e.Apply("", machineClass)
	began := time.Now()
	feed.Until(t, "both continue", func() (bool, string) {
		alone, shop := readyOf(t, e, "alone"), readyOf(t, e, "shop")
		return alone.Reason != "TemplateNotFound" && shop.Reason != "TemplateNotFound", alone.String() + shop.String()
	})
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("they continue after %s", took)
	}
	e.UntilPhase(engine.Machines, "default", "alone", "Running")
	e.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	for _, name := range []string{"alone", "shop-odd-0"} {
		vm := e.Get(engine.VirtualMachines, "default", name)
		if cores, _, _ := unstructured.NestedInt64(vm.Object, "spec", "template", "spec", "domain", "cpu", "cores"); cores != 3 {
			t.Errorf("virtual machine %s has %d cores, want those of the MachineClass", name, cores)
		}
	}
	var sizes struct{ MachineClasses []struct{ Name string } }
	body, err := e.Ask("api/v1/machine-classes")
	if err != nil || json.Unmarshal(body, &sizes) != nil || len(sizes.MachineClasses) != 4 || sizes.MachineClasses[3].Name != "odd" {
		t.Errorf("the sizes are %s, %v", body, err)
	}
	feed.Until(t, "the REST API shows the size", func() (bool, string) {
		body, err := e.Ask("api/v1/machines/default/alone")
		shown := err == nil && strings.Contains(string(body), `"cpus":3,`) && strings.Contains(string(body), `"memoryBytes":3221225472`)
		return shown, fmt.Sprintf("%s %v", body, err)
	})

	e.Delete(engine.MachineClasses, "", "odd")
	patch := []byte(`[{"op": "replace", "path": "/spec/topology/workers/0/replicas", "value": 2}]`)
	clusters := e.Client.Resource(engine.KubernetesClusters).Namespace("default")
	if _, err := clusters.Patch(t.Context(), "shop", types.JSONPatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the new machine and its cluster say that the size does not exist", func() (bool, string) {
		if e.Get(engine.Machines, "default", "shop-odd-1") == nil {
			return false, "no Machine"
		}
		m, shop := readyOf(t, e, "shop-odd-1"), readyOf(t, e, "shop")
		return m.Reason == "TemplateNotFound" && strings.Contains(shop.Message, missing), m.String() + shop.String()
	})
	if ready := readyOf(t, e, "shop-odd-0"); ready.Status != metav1.ConditionTrue {
		t.Errorf("the machine that exists is not Ready without its MachineClass: %s", ready.String())
	}
	e.Apply("", machineClass)
	feed.Until(t, "the pool has grown", func() (bool, string) {
		workers, _, _ := unstructured.NestedString(e.Get(engine.KubernetesClusters, "default", "shop").Object, "status", "workersReady")
		return workers == "2/2", workers
	})
}

// readyOf returns the condition Ready of a Machine, or of the cluster shop.
func readyOf(t *testing.T, e *engine.Engine, name string) metav1.Condition {
	t.Helper()
	resource := engine.Machines
	if name == "shop" {
		resource = engine.KubernetesClusters
	}
	var object struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Get(resource, "default", name).Object, &object); err != nil {
		t.Fatal(err)
	}
	if c := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return *c
	}
	return metav1.Condition{}
}

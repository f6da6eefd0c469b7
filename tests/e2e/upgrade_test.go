package e2e

import (
	"fmt"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const (
	upgradedCluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec:
  data: {}
  topology:
    version: "1.33"
    controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}
    workers: [{name: web, replicas: 1, template: small, providerRef: {name: kubevirt}}]
`
	upgradedMachine = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: %s}
spec: {template: small, providerRef: {name: kubevirt}}
`
)

// TestUpgradeFromLastRelease upgrades the last release to this checkout while a cluster runs and a machine is being created.
// Everything that exists stays, and the new functions finish the machine, and scale, upgrade and delete the cluster.
func TestUpgradeFromLastRelease(t *testing.T) {
	t.Parallel()
	e := engine.StartLastRelease(t, "--config", "RESYNC_PERIOD=3s")
	e.Apply("a", e.StaticNetwork("network", 10, 100))
	e.Apply("a", upgradedCluster+"---\n"+fmt.Sprintf(upgradedMachine, "db"))
	e.UntilPhase(engine.KubernetesClusters, "a", "shop", "Running")
	e.UntilPhase(engine.Machines, "a", "db", "Running")
	before := identities(e)
	e.Apply("a", fmt.Sprintf(upgradedMachine, "late"))

	e.Upgrade()
	e.UntilPhase(engine.Machines, "a", "late", "Running")
	untilReconciled(t, e)
	if after := identities(e); !containsAll(after, before) {
		t.Errorf("objects of the last release:\n%v\nafter the upgrade:\n%v", before, after)
	}

	patch := `[{"op": "replace", "path": "/spec/topology/version", "value": "1.34"}, {"op": "replace", "path": "/spec/topology/workers/0/replicas", "value": 2}]`
	if _, err := e.Client.Resource(engine.KubernetesClusters).Namespace("a").Patch(t.Context(), "shop", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the new functions have upgraded and scaled the cluster", func() (bool, string) {
		kc := clusterNamed(t, e, "shop")
		return kc.Status.Version >= "1.34" && kc.Status.WorkersReady == "2/2" && kc.Status.ObservedGeneration == kc.Generation &&
			meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionReady), fmt.Sprintf("%+v", kc.Status)
	})
	if after := identities(e); !containsAll(after, before) {
		t.Errorf("objects of the last release:\n%v\nafter the upgrade of the cluster:\n%v", before, after)
	}

	e.Delete(engine.KubernetesClusters, "a", "shop")
	for _, name := range []string{"db", "late"} {
		e.Delete(engine.Machines, "a", name)
	}
	feed.Until(t, "everything is deleted", func() (bool, string) {
		left := identities(e)
		return len(left) == 0, fmt.Sprint(left)
	})
}

// clusterNamed returns a cluster in namespace a.
func clusterNamed(t *testing.T, e *engine.Engine, name string) *v1alpha1.KubernetesCluster {
	t.Helper()
	kc := &v1alpha1.KubernetesCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(e.Get(engine.KubernetesClusters, "a", name).Object, kc); err != nil {
		t.Fatal(err)
	}
	return kc
}

// untilReconciled requests a reconcile of the cluster, and waits until bootstrap-talos has done all that is due.
func untilReconciled(t *testing.T, e *engine.Engine) {
	t.Helper()
	trigger := func() (found engine.Trigger) {
		for _, tr := range e.Report().Triggers {
			if tr.Name == "vitistack-system/bootstrap-talos" {
				found = tr
			}
		}
		return found
	}
	before := trigger().Delivered
	request := fmt.Sprintf(`{"metadata": {"annotations": {%q: "upgraded"}}}`, v1alpha1.AnnotationReconcile)
	if _, err := e.Client.Resource(engine.KubernetesClusters).Namespace("a").Patch(t.Context(), "shop", types.MergePatchType, []byte(request), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	feed.Until(t, "the new functions have reconciled the cluster", func() (bool, string) {
		now, kc := trigger(), clusterNamed(t, e, "shop")
		return now.Delivered > before && now.InFlight+now.Queued == 0 && meta.IsStatusConditionTrue(kc.Status.Conditions, v1alpha1.ConditionReady),
			fmt.Sprintf("%+v %+v", now, kc.Status.Conditions)
	})
}

// identities returns the UIDs of the machines of namespace a with their virtual machines, configurations and addresses, by kind and name.
func identities(e *engine.Engine) map[string]types.UID {
	all := map[string]types.UID{}
	for _, resource := range []schema.GroupVersionResource{engine.Machines, engine.VirtualMachines, engine.NetworkConfigurations, engine.IPAllocations} {
		for _, o := range e.List(resource, "a", "") {
			all[kindAndName(&o)] = o.GetUID()
		}
	}
	return all
}

func kindAndName(o *unstructured.Unstructured) string { return o.GetKind() + "/" + o.GetName() }

// containsAll reports whether all has the entries of some.
func containsAll(all, some map[string]types.UID) bool {
	rest := maps.Clone(some)
	maps.DeleteFunc(rest, func(name string, uid types.UID) bool { return all[name] == uid })
	return len(rest) == 0
}

package e2e

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// orphan deletes an object with --cascade=orphan, and waits until it is gone.
func orphan(t *testing.T, e *engine.Engine, resource schema.GroupVersionResource, name string) {
	t.Helper()
	how := metav1.DeletePropagationOrphan
	if err := e.Client.Resource(resource).Namespace("default").Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how}); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, e, resource, name)
}

func awaitGone(t *testing.T, e *engine.Engine, resource schema.GroupVersionResource, name string) {
	t.Helper()
	feed.Until(t, resource.Resource+" "+name+" is gone", func() (bool, string) {
		u, err := e.Client.Resource(resource).Namespace("default").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, ""
		}
		return false, fmt.Sprint(err, u)
	})
}

// TestOrphanedCluster deletes a cluster with --cascade=orphan. Its machines keep running until a new cluster of the same name
// adopts them, and those that it has orphaned again can be deleted.
func TestOrphanedCluster(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	const cluster = `apiVersion: vitistack.io/v1alpha1
kind: KubernetesCluster
metadata: {name: shop}
spec: {data: {}, networkNamespaceName: network, topology: {version: "1.33", controlplane: {replicas: 1, template: small, providerRef: {name: kubevirt}}, workers: [{name: web, replicas: 1, template: small, providerRef: {name: kubevirt}}]}}
`
	e.Apply("default", cluster)
	former := e.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running").GetUID()
	vms, machines := uidsOf(e, engine.VirtualMachines), uidsOf(e, engine.Machines)
	requireKept := func() {
		t.Helper()
		if now := uidsOf(e, engine.VirtualMachines); !maps.Equal(now, vms) {
			t.Errorf("the virtual machines are %v, were %v", now, vms)
		}
		if now := uidsOf(e, engine.Machines); !maps.Equal(now, machines) {
			t.Errorf("the Machines are %v, were %v", now, machines)
		}
		for _, m := range e.List(engine.Machines, "default", "") {
			if m.GetDeletionTimestamp() != nil {
				t.Errorf("Machine %s is being deleted", m.GetName())
			}
		}
	}
	orphan(t, e, engine.KubernetesClusters, "shop")
	requireKept()
	e.Apply("default", strings.Replace(cluster, "{name: shop}", fmt.Sprintf("{name: shop, annotations: {%s: %s}}", v1alpha1.AnnotationFormerUIDs, former), 1))
	feed.Until(t, "the cluster asks for kubectl viti adopt", func() (bool, string) {
		ready := readyOf(t, e, "shop")
		return ready.Reason == "NameTaken" && strings.Contains(ready.Message, "kubectl viti adopt -n default"), ready.String()
	})
	if out, ok := tryViti(t, e, "adopt", "-n", "default"); !ok {
		t.Fatalf("kubectl viti adopt: %s", out)
	}
	e.UntilPhase(engine.KubernetesClusters, "default", "shop", "Running")
	requireKept()
	orphan(t, e, engine.KubernetesClusters, "shop")
	for name := range machines {
		e.Delete(engine.Machines, "default", name)
	}
	for name := range machines {
		awaitGone(t, e, engine.Machines, name)
		awaitGone(t, e, engine.VirtualMachines, name)
	}
}

// TestOrphanedMachine orphans a Machine on KubeVirt as docs/backup.md says. A new Machine adopts its virtual machine and the
// Secret of that, and deletes both.
func TestOrphanedMachine(t *testing.T) {
	t.Parallel()
	u := &env{engine.Start(t), t}
	u.Apply("default", u.StaticNetwork("network", 10, 250))
	const web = `apiVersion: vitistack.io/v1alpha1
kind: Machine
metadata: {name: web}
spec: {template: small, providerRef: {name: kubevirt}, networkNamespaceName: network, cloudInit: {secretRef: {name: web-user-data, key: userdata}}}
`
	u.Apply("default", "apiVersion: v1\nkind: Secret\nmetadata: {name: web-user-data, labels: {vitistack.io/cloud-init: \"true\"}}\nstringData: {userdata: \"#cloud-config\\nhostname: web\\n\"}\n")
	u.Apply("default", web)
	former := u.UntilPhase(engine.Machines, "default", "web", "Running").GetUID()
	vms := uidsOf(u.Engine, engine.VirtualMachines)
	u.patch(engine.Machines, "default", "web", `{"metadata": {"annotations": {"vitistack.io/paused": "true"}}}`)
	u.patch(engine.Machines, "default", "web", `{"metadata": {"finalizers": null}}`)
	orphan(t, u.Engine, engine.Machines, "web")
	u.Apply("default", strings.Replace(web, "{name: web}", fmt.Sprintf("{name: web, annotations: {%s: %s}}", v1alpha1.AnnotationFormerUIDs, former), 1))
	m := u.UntilPhase(engine.Machines, "default", "web", "Running")
	if now := uidsOf(u.Engine, engine.VirtualMachines); !maps.Equal(now, vms) {
		t.Errorf("the virtual machines are %v, were %v", now, vms)
	}
	secret := u.Get(engine.Secrets, "default", "web-cloudinit")
	if mark := secret.GetAnnotations()[v1alpha1.AnnotationUID]; mark != string(m.GetUID()) || !metav1.IsControlledBy(secret, m) {
		t.Errorf("Secret web-cloudinit has the mark %s and owners %v", mark, secret.GetOwnerReferences())
	}
	u.Delete(engine.Machines, "default", "web")
	awaitGone(t, u.Engine, engine.Machines, "web")
	awaitGone(t, u.Engine, engine.VirtualMachines, "web")
	awaitGone(t, u.Engine, engine.Secrets, "web-cloudinit")
}

package app

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/fakeapi"
	"github.com/vitistack/stack/tests/stand/browser"
)

// TestPageCommands has the commands of an object be those for the object as it is: its pools, its Secrets, its versions and its state.
func TestPageCommands(t *testing.T) {
	t.Parallel()
	c := aCluster("team-a", "shop", "Running")
	c.Spec.Topology.ControlPlane.Replicas, c.Spec.Topology.ControlPlane.Version = 3, "1.33"
	c.Spec.Topology.Workers = []v1alpha1.WorkerPool{
		{Name: "auto", Replicas: 2, Autoscaling: &v1alpha1.Autoscaling{Enabled: true, MinReplicas: 1, MaxReplicas: 4}},
		{Name: "gpu", Replicas: 1, Version: "1.33"},
	}
	c.Status.Version, c.Status.TalosVersion = "1.33.13", "1.13.9"
	c.Status.Secrets = &v1alpha1.ClusterSecrets{Kubeconfig: "shop-kube"}
	s := startCold(t, func(api *fakeapi.Server) {
		api.Put(t, "kubernetesclusters", c)
		m := aMachine("team-a", "web", "Running")
		m.Spec.PowerState = v1alpha1.PowerStopped
		api.Put(t, "machines", m)
	})
	s.waitReady()
	b := browser.New(t, s.url, 1200, 900)
	b.Open("#/clusters/team-a/shop")
	shown := func() map[string]string {
		return browser.Eval[map[string]string](b, `Object.fromEntries([...document.querySelectorAll(".commands li")].map((x) => [x.querySelector("p").innerText, x.querySelector("code").innerText]))`)
	}
	b.Wait("the spec", `document.querySelector(".commands")?.innerText.includes("Scale gpu")`)
	got := shown()
	for title, want := range map[string]string{
		"Scale the control plane from 3 to 5": `kubectl patch kubernetescluster shop -n team-a --type json -p '[{"op":"test","path":"/spec/topology/controlplane/replicas","value":3},{"op":"replace","path":"/spec/topology/controlplane/replicas","value":5}]'`,
		"Scale gpu from 1 to 2":               `kubectl patch kubernetescluster shop -n team-a --type json -p '[{"op":"test","path":"/spec/topology/workers/1/name","value":"gpu"},{"op":"replace","path":"/spec/topology/workers/1/replicas","value":2}]'`,
		"Upgrade to Kubernetes 1.34":          `kubectl patch kubernetescluster shop -n team-a --type json -p '[{"op":"replace","path":"/spec/topology/version","value":"1.34"},{"op":"replace","path":"/spec/topology/controlplane/version","value":"1.34"},{"op":"test","path":"/spec/topology/workers/1/name","value":"gpu"},{"op":"replace","path":"/spec/topology/workers/1/version","value":"1.34"}]'`,
		"Pause all changes to it":             `kubectl patch kubernetescluster shop -n team-a --type merge -p '{"spec":{"paused":true}}'`,
		"Download its kubeconfig":             `(umask 077 && kubectl get secret shop-kube -n team-a -o jsonpath='{.data.kubeconfig}' | base64 -d > shop.kubeconfig)`,
		"Reconcile now":                       `kubectl annotate kubernetescluster shop -n team-a vitistack.io/reconcile="$(date +%s)" --overwrite`,
		"Scale auto from 2 to 3":              "",
		"Download its talosconfig":            "",
	} {
		if diff := cmp.Diff(want, got[title]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", title, diff)
		}
	}
	c.Spec.Paused, c.Status.Version, c.Spec.Topology.Version = true, "1.36.6", "1.36"
	c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: new(metav1.Now())}}
	s.api.Put(t, "kubernetesclusters", c)
	b.Wait("the cluster that is paused", `document.querySelector(".commands")?.innerText.includes('{"spec":{"paused":false}}')`)
	for title := range shown() {
		if strings.HasPrefix(title, "Upgrade to") {
			t.Errorf("a cluster with the newest version is offered %q", title)
		}
	}
	b.See("#/machines/team-a/web")
	b.Wait("the machine that is off", `document.querySelector(".commands")?.innerText.includes("Start it")`)
	got = shown()
	if want := `kubectl patch machine web -n team-a --type merge -p "{\"spec\":{\"restartToken\":\"$(date +%s)\"}}"`; got["Restart it"] != want {
		t.Errorf("the restart is %s, want %s", got["Restart it"], want)
	}
	if want := `kubectl patch machine web -n team-a --type merge -p '{"spec":{"powerState":"Running"}}'`; got["Start it"] != want {
		t.Errorf("the start is %s, want %s", got["Start it"], want)
	}
	b.Clean()
}

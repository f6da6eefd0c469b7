package app

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/browser"
)

// follower returns a cluster of ClusterTemplate standard that has a revision.
func follower(name, environment, revision string, conditions ...metav1.Condition) *v1alpha1.KubernetesCluster {
	c := aCluster("team-a", name, "Running")
	c.Labels = map[string]string{"environment": environment}
	c.Annotations = map[string]string{v1alpha1.AnnotationTemplate: `{"name": "standard", "revision": "` + revision + `", "cluster": {}}`}
	c.Spec.TemplateRef = &v1alpha1.ClusterTemplateReference{Name: "standard"}
	c.Generation, c.Status.ObservedGeneration = 1, 1
	c.Status.Conditions = conditions
	return c
}

// TestClusterTemplates lists a ClusterTemplate whose rollout a cluster stops over REST, counts its clusters in metrics, and
// shows it on the page, on that of the cluster, and among what needs attention.
func TestClusterTemplates(t *testing.T) {
	t.Parallel()
	s := start(t)
	ct := &v1alpha1.ClusterTemplate{TypeMeta: metav1.TypeMeta{APIVersion: "vitistack.io/v1alpha1", Kind: "ClusterTemplate"}, ObjectMeta: meta("", "standard")}
	ct.Spec.Cluster.Topology = &v1alpha1.TemplatedTopology{Version: "1.34"}
	wave := func(name string) v1alpha1.TemplateWave {
		return v1alpha1.TemplateWave{Name: name, Selector: v1alpha1.WaveSelector{MatchLabels: map[string]string{"environment": name}}}
	}
	ct.Spec.Rollout = &v1alpha1.TemplateRollout{MaxConcurrent: 2, Waves: []v1alpha1.TemplateWave{wave("test"), wave("prod")}}
	now := template.Revision(ct.Spec.Cluster)
	running := metav1.Condition{Type: "Ready", Status: "True", Reason: "ClusterRunning", LastTransitionTime: born}
	broken := []metav1.Condition{
		{Type: "Ready", Status: "False", Reason: "UpgradeFailed", Message: "node web-cp-0 does not come back", LastTransitionTime: born},
		{Type: "Stalled", Status: "True", Reason: "UpgradeFailed", LastTransitionTime: born},
	}
	for _, c := range []*v1alpha1.KubernetesCluster{follower("late", "prod", "old", running), follower("web", "test", now, broken...), follower("done", "test", now, running), follower("other", "lab", "old", running)} {
		s.api.Put(t, "kubernetesclusters", c)
	}
	ct.Status = v1alpha1.ClusterTemplateStatus{
		Clusters: 4, CurrentClusters: 1, UpdatingClusters: 1, WaitingClusters: 2, Wave: "test", Revision: now,
		Updating:  []v1alpha1.TemplateUpdate{{Namespace: "team-a", Name: "web", UID: "uid-web", Revision: now}},
		Overrides: []v1alpha1.TemplateOverride{{Namespace: "team-a", Name: "done", Fields: []string{"topology.version"}}},
		Conditions: []metav1.Condition{{
			Type: "Ready", Status: "False", Reason: "RolloutStopped", LastTransitionTime: born,
			Message: "KubernetesCluster team-a/web does not become Ready with the template: UpgradeFailed: node web-cp-0 does not come back. 2 clusters wait",
		}},
	}
	s.api.Put(t, "clustertemplates", ct)
	eventually(t, "the list", func() bool { return s.get("/api/v1/clustertemplates").Header.Get("X-Total-Count") == "1" })
	eventually(t, "the clusters", func() bool { return s.get("/api/v1/clusters").Header.Get("X-Total-Count") == "4" })
	checkTemplateDetail(t, s)
	for query, want := range map[string]int{
		"clusterTemplate=standard": 4, "rollout=Stopped": 1, "rollout=Waiting": 2, "wave=prod": 1, "clusterTemplate=other": 0, "wave=test&rollout=Current": 1,
	} {
		if n := len(names(t, s.get("/api/v1/clusters?"+query), "clusters")); n != want {
			t.Errorf("%s lists %d, want %d", query, n, want)
		}
	}
	for state, want := range map[string]float64{"Stopped": 1, "Waiting": 2, "Current": 1, "New": 0} {
		if n, ok := value(families(t, s)["vitistack_cluster_template_clusters"], "state", state); !ok || n != want {
			t.Errorf("%v clusters are %s, want %v", n, state, want)
		}
	}
	page := browser.New(t, s.url, 1200, 800)
	page.Open("#/overview")
	page.Wait("the cluster that stops the rollout, with the template that waits for it", `document.querySelector(".attention")?.textContent.includes("node web-cp-0 does not come back")`)
	page.Open("#/clustertemplates")
	page.Wait("the table", `document.querySelector("#main")?.textContent.includes("standard")`)
	page.Accessible("cluster templates")
	page.Open("#/clustertemplates/standard")
	page.Wait("the waves, the cluster that stops the rollout and why", `/test in progress.*team-a\/done.*Current.*team-a\/web.*Stopped.*node web-cp-0 does not come back.*prod.*team-a\/late.*Waiting.*In no wave.*team-a\/other.*topology\.version/s.test(document.querySelector("#main")?.textContent)`)
	page.Accessible("one cluster template")
	page.Open("#/clusters/team-a/web")
	page.Wait("the template of the cluster", `document.querySelector(".facts")?.textContent.includes("standard Stopped")`)

	ct.Spec.Rollout.Waves = ct.Spec.Rollout.Waves[1:]
	s.api.Put(t, "clustertemplates", ct)
	eventually(t, "the clusters of the removed wave", func() bool { return len(names(t, s.get("/api/v1/clusters?wave=test"), "clusters")) == 0 })
}

// checkTemplateDetail reads ClusterTemplate standard by its identifier and its name.
func checkTemplateDetail(t *testing.T, s *env) {
	t.Helper()
	for _, id := range []string{"uid-standard", "standard"} {
		got := s.get("/api/v1/clustertemplates/" + id).object(t)
		if got["status"] != "failed" || got["phase"] != "RolloutStopped" || got["version"] != "1.34" || got["waitingClusters"] != 2.0 || got["wave"] != "test" {
			t.Errorf("%s: %v", id, got)
		}
		var order []string
		for _, m := range got["members"].([]any) {
			m := m.(map[string]any)
			order = append(order, m["name"].(string)+" "+m["state"].(string))
		}
		if want := "done Current, web Stopped, late Waiting, other Waiting"; strings.Join(order, ", ") != want {
			t.Errorf("%s: the clusters are %v, want %s", id, order, want)
		}
	}
	about := s.get("/api/v1/objects/uid-standard").object(t)
	if about["kind"] != "ClusterTemplate" || len(about["conditions"].([]any)) != 1 {
		t.Errorf("the conditions: %v", about)
	}
}

// TestPreviewOfTemplate previews a changed ClusterTemplate with a real API server, which says who owns the fields of its clusters.
func TestPreviewOfTemplate(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	name := s.namespace + "-standard"
	manifest := "apiVersion: vitistack.io/v1alpha1\nkind: ClusterTemplate\nmetadata: {name: " + name + "}\nspec:\n  cluster: {topology: {version: '1.33', controlplane: {replicas: 1}}}\n  rollout: {waves: [{name: test, selector: {matchLabels: {environment: test}}}]}\n"
	templates := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "clustertemplates"}
	s.create(templates, "", manifest)
	t.Cleanup(func() { _ = s.client.Resource(templates).Delete(context.Background(), name, metav1.DeleteOptions{}) })
	clusters := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters"}
	for cluster, spec := range map[string]string{"canary": "", "own": ", topology: {version: '1.33'}"} {
		s.create(clusters, s.namespace, "apiVersion: vitistack.io/v1alpha1\nkind: KubernetesCluster\nmetadata: {name: "+cluster+", namespace: "+s.namespace+", labels: {environment: test}}\nspec: {data: {}, templateRef: {name: "+name+"}"+spec+"}\n")
	}
	eventually(t, "the gateway to answer", func() bool { return s.do(http.MethodGet, "/ready", "").StatusCode == http.StatusOK })
	r := s.do(http.MethodPost, "/api/v1/preview", strings.Replace(manifest, "'1.33'", "'1.34'", 1))
	if r.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", r.Status, r.body)
	}
	got := r.object(t)
	documents := got["documents"].([]any)
	if len(documents) != 3 || got["changed"] != true {
		t.Fatalf("want the template and its clusters: %s", r.body)
	}
	for i, want := range []struct {
		name string
		to   any
	}{{"canary", "1.34"}, {"own", nil}} {
		d := documents[i+1].(map[string]any)
		var to any
		for _, c := range d["changes"].([]any) {
			if c := c.(map[string]any); c["field"] == "topology.version" {
				to = c["to"]
			}
		}
		if d["name"] != want.name || to != want.to || d["note"] != "by ClusterTemplate "+name+", in wave test (1 of 1)" {
			t.Errorf("want %s with %v: %v", want.name, want.to, d)
		}
	}
}

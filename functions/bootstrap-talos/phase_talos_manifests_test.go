package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tests/stand/feed"
)

// inlineManifest is a patch with an inline manifest of the ConfigMap default/banner, indented as YAML needs it.
func inlineManifest(data string) string {
	return "cluster:\n  inlineManifests:\n  - name: banner\n    contents: |\n      apiVersion: v1\n      kind: ConfigMap\n      metadata: {name: banner}\n      data: " + data + "\n"
}

// TestManifestsOfPatches changes what a patch has Talos put into the workload cluster. Talos itself only creates what does
// not exist.
func TestManifestsOfPatches(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	patches := s.configMap("patches", map[string]string{"a.yaml": inlineManifest("{text: red}")})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{ControlPlane: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	s.awaitRunning("shop")
	patch := func(text string) {
		t.Helper()
		if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": text}}); err != nil {
			t.Fatal(err)
		}
		s.reconcile("shop")
	}
	banner := func(want string) {
		t.Helper()
		feed.Until(t, "the workload cluster has the manifest", s.hasBanner("shop", want))
	}
	banner("red")
	patch(inlineManifest("{text: blue}"))
	banner("blue")
	s.awaitRunning("shop")

	patch(inlineManifest("[wrong]"))
	s.awaitReason("shop", addons.ReasonRefused, "manifest 99-banner of the machine configuration: the workload API refuses ConfigMap banner", "Correct it in the ConfigMap")
	if c := meta.FindStatusCondition(s.get("shop").Status.Conditions, v1alpha1.ConditionConfigCurrent); c.Status != metav1.ConditionFalse || c.Reason != addons.ReasonRefused {
		t.Errorf("condition ConfigCurrent: %v", c)
	}
	patch(inlineManifest("{text: green}"))
	banner("green")
	s.awaitRunning("shop")

	proxy, dns := "example.com/kube-proxy", "example.com/coredns:v2"
	patch("cluster:\n  proxy:\n    image: " + proxy + ":v1\n    extraArgs:\n      metrics-bind-address: 0.0.0.0:10249\n  coreDNS:\n    image: " + dns + "\n")
	feed.Until(t, "kube-proxy has its argument", func() (bool, string) {
		ds, err := s.workload("shop").AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		c := ds.Spec.Template.Spec.Containers[0]
		return slices.Contains(c.Command, "--metrics-bind-address=0.0.0.0:10249") && strings.HasPrefix(c.Image, proxy), strings.Join(append(c.Command, c.Image), " ")
	})
	feed.Until(t, "CoreDNS has its image", func() (bool, string) {
		d, err := s.workload("shop").AppsV1().Deployments("kube-system").Get(t.Context(), "coredns", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return d.Spec.Template.Spec.Containers[0].Image == dns, d.Spec.Template.Spec.Containers[0].Image
	})
	banner("green") // an object that the configuration no longer has stays
	if names := s.awaitRunning("shop").Status.TalosManifests; names["99-banner"] != "" || names["coredns"] != dns {
		t.Errorf("the status has %v", names)
	}
}

// hasBanner returns a function that reports whether the ConfigMap of inlineManifest has a text in the cluster.
func (s *env) hasBanner(cluster, want string) func() (bool, string) {
	return func() (bool, string) {
		cm, err := s.workload(cluster).CoreV1().ConfigMaps("default").Get(s.Context(), "banner", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return cm.Data["text"] == want, cm.Data["text"]
	}
}

// TestManifestTakenBack changes an inline manifest, and takes that back before a delivery could record that it has applied it. The workload
// cluster gets the former one again.
func TestManifestTakenBack(t *testing.T) {
	t.Parallel()
	u := &unwritten{}
	s := newEnv(t, envOptions{wrap: u.wrap})
	patches := s.configMap("patches", map[string]string{"a.yaml": inlineManifest("{text: red}")})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Talos = &v1alpha1.TalosOptions{Patches: &v1alpha1.ConfigPatches{ControlPlane: []v1alpha1.ObjectName{"patches"}}}
	s.create(kc)
	if s.awaitRunning("shop").Status.TalosManifests["99-banner"] == "" {
		t.Fatal("the status does not have the manifest")
	}
	u.text.Store(`"99-banner":"sha256:`)
	for _, text := range []string{"blue", "red"} {
		if err := s.kube.Merge(t.Context(), patches, map[string]any{"data": map[string]any{"a.yaml": inlineManifest("{text: " + text + "}")}}); err != nil {
			t.Fatal(err)
		}
		s.awaitAfterResync("shop", "the workload cluster has "+text, s.hasBanner("shop", text))
	}
	u.text.Store("")
	s.awaitRunning("shop")
}

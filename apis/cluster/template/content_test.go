package template_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestNextStep(t *testing.T) {
	t.Parallel()
	const content = `{"name": "standard", "revision": "a", "cluster": {}}`
	for name, tc := range map[string]struct {
		because, ref, annotation string
		observed                 int64
		want                     template.Step
	}{
		"None":     {"the cluster has no template", "", "", 1, template.Keep},
		"New":      {"the cluster has no content yet", "standard", "", -1, template.Adopt},
		"Other":    {"the cluster names another template now", "large", content, 1, template.Adopt},
		"Damaged":  {"the annotation was changed", "standard", "{", 2, template.Adopt},
		"Changed":  {"a field may have left the manifest", "standard", content, 1, template.Complete},
		"Observed": {"the spec was completed", "standard", content, 2, template.Keep},
		"Removed":  {"the cluster has left its template", "", content, 2, template.Release},
	} {
		kc := &v1alpha1.KubernetesCluster{ObjectMeta: metav1.ObjectMeta{Generation: 2, Annotations: map[string]string{}}}
		kc.Status.ObservedGeneration = tc.observed
		if tc.ref != "" {
			kc.Spec.TemplateRef = &v1alpha1.ClusterTemplateReference{Name: tc.ref}
		}
		if tc.annotation != "" {
			kc.Annotations[v1alpha1.AnnotationTemplate] = tc.annotation
		}
		if got := template.NextStep(kc); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.because, got, tc.want)
		}
	}
}

func TestRevision(t *testing.T) {
	t.Parallel()
	base := v1alpha1.TemplatedCluster{Topology: &v1alpha1.TemplatedTopology{Version: "1.34"}}
	version, networks, endpoint := *base.DeepCopy(), *base.DeepCopy(), *base.DeepCopy()
	version.Topology.Version = "1.35"
	networks.Networking = &v1alpha1.ClusterNetworking{CNI: v1alpha1.CNINone}
	endpoint.ControlPlaneEndpoint = &v1alpha1.TemplatedEndpoint{Mode: v1alpha1.EndpointNode}
	if template.Revision(base) == template.Revision(version) {
		t.Error("another version is another revision")
	}
	if template.Revision(base) != template.Revision(networks) || template.Revision(base) != template.Revision(endpoint) {
		t.Error("fields that clusters only get when they are created start no rollout")
	}
}

package preview

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// templatedCluster adds what happens to a cluster after it has got the fields of its ClusterTemplate, if it names one.
func (m clusterPreview) templatedCluster(kc *v1alpha1.KubernetesCluster) {
	content, _ := template.Applied(kc)
	if !m.of.Checked {
		kc.ManagedFields = nil // without a dry run of the API server they do not say who owns what the manifest changes
	}
	if ref := kc.Spec.TemplateRef; ref != nil && content.Name != ref.Name {
		i := slices.IndexFunc(m.world.Templates, func(t v1alpha1.ClusterTemplate) bool { return t.Name == ref.Name })
		if i < 0 {
			m.warn("/spec/templateRef/name", template.ReasonMissing, "ClusterTemplate %s does not exist: the cluster waits until it is created", ref.Name)
			return
		}
		content = template.ContentFor(kc, &m.world.Templates[i])
	}
	if kc.Spec.TemplateRef != nil && content.Name != "" {
		completed, err := template.Preview(kc, content)
		if err != nil {
			m.refuse("/spec/templateRef", template.ReasonRejected, err.Error())
			return
		}
		kc = completed
	}
	m.cluster(kc)
}

// clusterTemplate adds the clusters of a ClusterTemplate that exists and would be accepted.
func (m clusterPreview) clusterTemplate(after *unstructured.Unstructured) {
	ct := &v1alpha1.ClusterTemplate{}
	if m.decode(after, ct) && m.of.Before != nil && len(m.of.Refusals) == 0 {
		m.clusters = m.clustersOf(ct)
	}
}

// clustersOf returns the clusters of a ClusterTemplate as documents, in the order in which a rollout updates them. Their
// notes say in which wave they are.
func (m clusterPreview) clustersOf(ct *v1alpha1.ClusterTemplate) (all []Document) {
	if m.world.Unread.Clusters {
		m.uncheck("what the change does to the clusters of the ClusterTemplate")
		return nil
	}
	var waves []v1alpha1.TemplateWave
	if ct.Spec.Rollout != nil {
		waves = ct.Spec.Rollout.Waves
	}
	clusters := slices.Clone(m.world.Clusters)
	slices.SortFunc(clusters, func(a, b v1alpha1.KubernetesCluster) int {
		return cmp.Or(cmp.Compare(template.WaveOf(waves, a.Labels), template.WaveOf(waves, b.Labels)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for i := range clusters {
		kc := &clusters[i]
		if kc.Spec.TemplateRef == nil || kc.Spec.TemplateRef.Name != ct.Name || kc.DeletionTimestamp != nil {
			continue
		}
		after, err := template.Preview(kc, template.ContentFor(kc, ct))
		if err != nil {
			m.refuse("/spec/cluster", template.ReasonRejected, err.Error())
			continue
		}
		note := "after all waves, because no wave selects it"
		if wave := template.WaveOf(waves, kc.Labels); wave < len(waves) {
			note = fmt.Sprintf("in wave %s (%d of %d)", waves[wave].Name, wave+1, len(waves))
		}
		before, current := toUnstructured(kc), toUnstructured(after)
		all = append(all, Document{Index: m.of.Index, Object: current, Before: before, After: current, Note: "by ClusterTemplate " + ct.Name + ", " + note})
	}
	return all
}

func toUnstructured(kc *v1alpha1.KubernetesCluster) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(kc)
	if err != nil {
		fields = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: fields}
	u.SetAPIVersion(v1alpha1.GroupVersion.String())
	u.SetKind("KubernetesCluster")
	return u
}

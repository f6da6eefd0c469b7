package cause

import (
	"encoding/json"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// fieldsOf has the fields of a KubernetesCluster that a reason is about, if a ClusterTemplate can be what is wrong. It lacks reasons about
// ConfigMaps, which the requester creates.
var fieldsOf = map[string][]string{
	"KubernetesVersionUnknown":      {"topology.version", "topology.controlplane.version"},
	"KubernetesVersionNotSupported": {"topology.version", "topology.controlplane.version", "talos.version"},
	"KubernetesDowngrade":           {"topology.version", "topology.controlplane.version"},
	"KubernetesUpgradePath":         {"topology.version", "topology.controlplane.version"},
	"TalosVersionUnknown":           {"talos.version"},
	"TalosUpgradePath":              {"talos.version"},
	"TalosTooOld":                   {"talos.version", "topology.version", "topology.controlplane.version"},
	"VersionSkew":                   {"topology.version", "topology.controlplane.version", "topology.workers"},
	"TemplateNotFound":              {"topology.controlplane.template", "topology.workers"},
	"ProviderNotFound":              {"topology.controlplane.providerRef", "topology.workers"},
	"AddonNotAllowed":               {"addons"},
}

// TemplateAdvice returns the advice for the conditions of an object of a kind that are about fields which a KubernetesCluster has from its
// ClusterTemplate, by reason. It takes precedence over Advise: the ClusterTemplate belongs to the platform team.
func TemplateAdvice(kind string, m metav1.Object, conditions []metav1.Condition) map[string]Advice {
	name := templateOf(m)
	if kind != kindCluster || name == "" {
		return nil
	}
	found := map[string]Advice{}
	for _, c := range conditions {
		if isFromTemplate(m, fieldsOf[c.Reason]) {
			advice := Advise(kind, c.Reason)
			advice.Owner = PlatformTeam
			advice.Remedy = "Correct the field that the message names in ClusterTemplate " + name + ", from which the cluster has it. To continue before that, the requester writes the field into the cluster."
			found[c.Reason] = advice
		}
	}
	return found
}

// advise returns the advice for a reason: that about the ClusterTemplate, if there is one, or else that of Advise.
func advise(kind, reason string, template map[string]Advice) Advice {
	if advice, ok := template[reason]; ok {
		return advice
	}
	return Advise(kind, reason)
}

// templateOf returns the name of the ClusterTemplate whose fields a cluster has, or nothing.
func templateOf(m metav1.Object) string {
	content := struct{ Name string }{}
	if json.Unmarshal([]byte(m.GetAnnotations()[v1alpha1.AnnotationTemplate]), &content) != nil {
		return ""
	}
	return content.Name
}

// isFromTemplate reports whether the ClusterTemplate gives a cluster one of the fields of the spec, and its manifest has none of them.
func isFromTemplate(m metav1.Object, fields []string) bool {
	given := false
	for _, manager := range m.GetManagedFields() {
		owned := map[string]any{}
		if manager.FieldsV1 == nil || json.Unmarshal([]byte(manager.FieldsV1.GetRawString()), &owned) != nil {
			continue
		}
		for _, field := range fields {
			if !hasField(owned, "spec."+field) {
				continue
			}
			if manager.Manager != v1alpha1.FieldManagerTemplate {
				return false
			}
			given = true
		}
	}
	return given
}

// hasField reports whether managedFields have a field or a part of it.
func hasField(owned map[string]any, field string) bool {
	name, rest, isDeeper := strings.Cut(field, ".")
	inner, ok := owned["f:"+name].(map[string]any)
	return ok && (!isDeeper || hasField(inner, rest))
}

package cause

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/cluster/template"
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
	if kind != kindCluster {
		return nil
	}
	content, ok := template.Applied(m)
	if !ok {
		return nil
	}
	found := map[string]Advice{}
	for _, c := range conditions {
		if template.OwnsAny(m, fieldsOf[c.Reason]...) {
			advice := Advise(kind, c.Reason)
			advice.Owner = PlatformTeam
			advice.Remedy = "Correct the field that the message names in ClusterTemplate " + content.Name + ", from which the cluster has it. To continue before that, the requester writes the field into the cluster."
			found[c.Reason] = advice
		}
	}
	return found
}

// advise returns the advice for a reason: that about the ClusterTemplate, if there is one, or else that of Advise.
func advise(kind, reason string, ofTemplate map[string]Advice) Advice {
	if advice, ok := ofTemplate[reason]; ok {
		return advice
	}
	return Advise(kind, reason)
}

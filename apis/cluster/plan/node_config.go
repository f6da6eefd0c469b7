package plan

import (
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// PatchesOf returns the ConfigMaps with the patches of the machines of a role with some properties, in the order in which
// they are applied.
func PatchesOf(kc *v1alpha1.KubernetesCluster, role string, properties v1alpha1.MachineProperties) []v1alpha1.ObjectName {
	var names []v1alpha1.ObjectName
	if kc.Spec.Talos != nil && kc.Spec.Talos.Patches != nil {
		p := kc.Spec.Talos.Patches
		names = append(names, p.All...)
		if role == v1alpha1.RoleControlPlane {
			names = append(names, p.ControlPlane...)
		} else {
			names = append(names, p.Workers...)
		}
	}
	return append(names, properties.Patches...)
}

// WithNodeConfigs returns the plan with the parts of the configurations of each pool that only a new node gets. The
// machines of a pool without an entry are not compared with them.
func (p Plan) WithNodeConfigs(configs map[string]nodeconfig.Parts) Plan {
	p.Groups = slices.Clone(p.Groups)
	for i := range p.Groups {
		p.Groups[i].NodeConfig = configs[p.Groups[i].Pool]
	}
	return p
}

// NodeConfigOf returns what the node of a Machine was installed with, and false if that is not known.
func NodeConfigOf(m *v1alpha1.Machine) (nodeconfig.Parts, bool) {
	return nodeconfig.Parse(m.Annotations[v1alpha1.AnnotationNodeConfig])
}

// DifferenceFromPatches returns which parts of the configuration of a node differ from the patches of its group, and need
// a new node, or an empty string.
func DifferenceFromPatches(m *v1alpha1.Machine, g Group) string {
	has, known := NodeConfigOf(m)
	if !known || g.NodeConfig == nil {
		return ""
	}
	parts := has.Compare(g.NodeConfig).NewNode
	if len(parts) == 0 {
		return ""
	}
	return "another " + strings.Join(parts, " and ") + " than its patches"
}

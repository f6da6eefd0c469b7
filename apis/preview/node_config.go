package preview

import (
	"slices"

	"github.com/vitistack/stack/apis/cluster/nodeconfig"
	clusterplan "github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// nodeConfigs returns the parts of the configurations of each pool that only a new node gets, by its patches. Pools whose
// patches cannot be read, or are wrong, are left out.
func (m clusterPreview) nodeConfigs(kc *v1alpha1.KubernetesCluster, p clusterplan.Plan) map[string]nodeconfig.Parts {
	if m.of.Before == nil {
		return nil
	}
	found := map[string]nodeconfig.Parts{}
	for _, g := range p.Groups {
		var all []map[string]string
		isRead := true
		for _, name := range clusterplan.PatchesOf(kc, g.Role, g.Properties) {
			data, known := m.patches(string(name))
			all, isRead = append(all, data), isRead && known
		}
		if !isRead {
			m.uncheck("whether the patches of pool " + g.Pool + " need new nodes")
			continue
		}
		if parts, err := nodeconfig.OfConfigMaps(all...); err == nil {
			found[g.Pool] = parts
		}
	}
	return found
}

// patches returns the data of a ConfigMap with patches, and false if it cannot be read or does not exist.
func (m clusterPreview) patches(name string) (map[string]string, bool) {
	if m.world.ConfigMap == nil {
		return nil, false
	}
	data, exists, err := m.world.ConfigMap(m.result.Namespace, name)
	return data, exists && err == nil
}

// describeNodeConfig adds to a step that replaces machines which parts of their configurations need new nodes.
func (m clusterPreview) describeNodeConfig(s Step, p clusterplan.Plan, machines map[string]*v1alpha1.Machine) Step {
	if s.Action != string(clusterplan.StepReplace) {
		return s
	}
	for _, name := range s.Machines {
		machine := machines[name]
		i := slices.IndexFunc(p.Groups, func(g clusterplan.Group) bool { return g.Pool == clusterplan.PoolOf(machine) })
		if i < 0 {
			continue
		}
		if difference := clusterplan.DifferenceFromPatches(machine, p.Groups[i]); difference != "" {
			s.Detail += "; " + name + " has " + difference
			break
		}
	}
	return s
}

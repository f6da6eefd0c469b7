package plan

import (
	"maps"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// StepAction is what happens to machines of a cluster.
type StepAction string

// What happens to machines.
const (
	StepCreate  StepAction = "create"
	StepUpgrade StepAction = "upgrade"
	StepResize  StepAction = "resize"
	StepReplace StepAction = "replace"
	StepRemove  StepAction = "remove"
)

// Step is something that happens to machines of a pool.
type Step struct {
	Action StepAction
	// Kind is what an upgrade is about.
	Kind v1alpha1.UpgradeKind
	Pool string
	// Machines are in the order in which it happens to them, and AtOnce how many of them at the same
	// time.
	Machines []string
	AtOnce   int
}

// Forecast returns what happens to the machines of a cluster until it is as its plan says, in the order
// of the function: machines are created, machines leave, nodes are upgraded, and then outdated machines are
// resized in place or replaced. It decides as the function does, and assumes that all machines are healthy. running
// returns the Kubernetes version that a node runs; the versions of Talos and of the API servers are those
// of the status. protected are the machines that stay because of their protection. classes are the MachineClasses that exist.
func (p Plan) Forecast(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, classes []v1alpha1.MachineClass, running func(name string) string) (steps []Step, protected []string) {
	for _, g := range p.Groups {
		var created []string
		for _, m := range p.Members {
			if m.Pool == g.Pool && machines[m.Name] == nil {
				created = append(created, m.Name)
			}
		}
		steps = appendStep(steps, Step{Action: StepCreate, Pool: g.Pool, Machines: created, AtOnce: len(created)})
	}
	var removed []string
	for _, g := range p.AllGroups(machines) {
		present := PoolMachines(machines, g.Pool, NamePrefix(kc.Name, g.Pool), assumeHealthy)
		leaving, kept := SelectMachinesToRemove(g.Replicas, len(present), len(present), g.Rollout.MaxUnavailable, present)
		protected, removed = append(protected, kept...), append(removed, leaving...)
		steps = appendStep(steps, Step{Action: StepRemove, Pool: g.Pool, Machines: leaving, AtOnce: RemovalLimit(g.Pool)})
	}
	staying := maps.Clone(machines)
	maps.DeleteFunc(staying, func(name string, _ *v1alpha1.Machine) bool { return slices.Contains(removed, name) })
	steps = append(steps, p.forecastUpgrades(kc, staying, running)...)
	outdated := p.OutdatedMachines(staying, classes)
	for _, g := range p.Groups {
		present := PoolMachines(staying, g.Pool, NamePrefix(kc.Name, g.Pool), assumeHealthy)
		resized := SelectResizes(present, len(present), outdated.InPlace, nil)
		steps = appendStep(steps, Step{Action: StepResize, Pool: g.Pool, Machines: resized, AtOnce: ResizeLimit(g)})
		inOrder := SelectOutdated(present, RolloutLimits{MaxSurge: len(present)}, outdated.Replaced)
		steps = appendStep(steps, Step{Action: StepReplace, Pool: g.Pool, Machines: inOrder, AtOnce: max(1, g.Rollout.MaxSurge+g.Rollout.MaxUnavailable)})
	}
	return steps, protected
}

func appendStep(steps []Step, s Step) []Step {
	if len(s.Machines) == 0 {
		return steps
	}
	s.AtOnce = min(s.AtOnce, len(s.Machines))
	return append(steps, s)
}

// forecastUpgrades returns the upgrades of the nodes that exist, kind by kind and pool by pool.
func (p Plan) forecastUpgrades(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, running func(name string) string) (steps []Step) {
	var nodes []UpgradeNode
	for _, m := range p.Members {
		if machines[m.Name] == nil || kc.Status.Version == "" {
			continue
		}
		o := UpgradeNode{Member: m, Node: Node{Name: m.Name, Ready: true, Version: running(m.Name), TalosVersion: kc.Status.TalosVersion}}
		if m.Role == v1alpha1.RoleControlPlane {
			o.APIVersion = kc.Status.Version
		}
		nodes = append(nodes, o)
	}
	atOnce := UpgradeConcurrency(kc)
	for kind := p.NextUpgradeKind(nodes); kind != ""; kind = p.NextUpgradeKind(nodes) {
		next := p.NextNodesToUpgrade(kind, nodes, nil, atOnce)
		for _, o := range next {
			FindNode(nodes, o.Name).setVersion(kind, p.WantedVersion(kind, o.Member))
			if last := len(steps) - 1; last >= 0 && steps[last].Kind == kind && steps[last].Pool == o.Pool {
				steps[last].Machines = append(steps[last].Machines, o.Name)
				continue
			}
			steps = append(steps, Step{Action: StepUpgrade, Kind: kind, Pool: o.Pool, Machines: []string{o.Name}, AtOnce: max(1, atOnce[o.Pool])})
		}
	}
	for i := range steps {
		steps[i].AtOnce = min(steps[i].AtOnce, len(steps[i].Machines))
	}
	return steps
}

// setVersion records that a node runs a version of a kind.
func (o *UpgradeNode) setVersion(kind v1alpha1.UpgradeKind, version string) {
	switch kind {
	case v1alpha1.UpgradeTalos:
		o.Node.TalosVersion = version
	case v1alpha1.UpgradeControlPlane:
		o.APIVersion = version
	default:
		o.Node.Version = version
	}
}

// UpgradeConcurrency returns how many nodes of each pool may be upgraded at the same time.
func UpgradeConcurrency(kc *v1alpha1.KubernetesCluster) map[string]int {
	out := map[string]int{}
	for _, p := range kc.Spec.Topology.Workers {
		out[p.Name] = int(p.UpgradeConcurrency)
	}
	return out
}

// AllGroups returns the groups of the plan, and those of Machines whose pool is not in the spec.
func (p Plan) AllGroups(machines map[string]*v1alpha1.Machine) []Group {
	groups := slices.Clone(p.Groups)
	for _, name := range slices.Sorted(maps.Keys(machines)) {
		pool := PoolOf(machines[name])
		if !slices.ContainsFunc(groups, func(g Group) bool { return g.Pool == pool }) {
			groups = append(groups, Group{Pool: pool, Role: v1alpha1.RoleWorker})
		}
	}
	return groups
}

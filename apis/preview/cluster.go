package preview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	clusterplan "github.com/vitistack/stack/apis/cluster/plan"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// cluster adds what bootstrap-talos says of a cluster, and what happens to its machines.
func (m clusterPreview) cluster(kc *v1alpha1.KubernetesCluster) {
	if !m.checkReplicas(kc) {
		return
	}
	m.addons(kc)
	kc.Spec.Topology.ScaledWorkers = clusterplan.NextScaledWorkers(kc)
	machines := m.machinesOf(kc)
	running := m.runningVersions(kc, machines)
	p, err := clusterplan.Make(kc, machines, m.world.DefaultTalos)
	if err == nil {
		err = m.checkMoreNodes(kc)
	}
	if err != nil {
		reason, message := reasonOf(err)
		m.refuse(pointerOf(kc, reason), reason, message)
		return
	}
	if pool, err := clusterplan.FindUnknownTemplate(kc, m.world.Classes); err != nil {
		reason, message := reasonOf(err)
		m.refuse(pointerOfPool(kc, pool)+"/template", reason, message)
		return
	}
	p = p.WithNodeConfigs(m.nodeConfigs(kc, p))
	steps, protected := p.Forecast(kc, machines, m.world.Classes, running)
	for _, name := range protected {
		m.warn("/spec/topology", "MachineProtected", "Machine %s is protected, and stays: set its spec.protected to false to have it removed", name)
	}
	if kc.Spec.Paused && len(steps) > 0 {
		m.warn("/spec/paused", "Paused", "spec.paused is true: nothing of this happens until it is false")
	}
	addresses := 0
	for _, s := range steps {
		m.result.Steps = append(m.result.Steps, m.describeNodeConfig(stepOf(p, s), p, machines))
		addresses += m.takeMachines(kc, p, s)
		if s.Action == clusterplan.StepResize {
			m.growMachines(kc, p, s, machines)
		}
	}
	if p.Endpoint.Mode == v1alpha1.EndpointVIP && p.Endpoint.Address == "" && m.of.Before == nil {
		addresses++
	}
	if m.of.Before == nil {
		m.checkNewNetwork(kc, p, addresses)
	} else if addresses > 0 {
		m.network(kc.Spec.NetworkNamespaceName, addresses)
	}
}

// checkNewNetwork refuses what a new cluster cannot have in its network.
func (m clusterPreview) checkNewNetwork(kc *v1alpha1.KubernetesCluster, p clusterplan.Plan, addresses int) {
	m.checkPodPrefix(kc)
	nn := m.network(kc.Spec.NetworkNamespaceName, addresses)
	if nn == nil {
		return
	}
	if err := p.CheckPrefixes(kc.Spec.Networking, nn); err != nil {
		reason, message := reasonOf(err)
		m.refuse("/spec/networking", reason, message)
	}
}

// checkMoreNodes returns a UserError if podCIDR has no room for more nodes of a cluster that exists.
func (m clusterPreview) checkMoreNodes(kc *v1alpha1.KubernetesCluster) error {
	if err := clusterplan.CheckMoreNodes(kc); err != nil && !m.setsNodePrefixes(kc) {
		return err
	}
	return nil
}

// checkPodPrefix refuses a podCIDR without room for the nodes of a new cluster.
func (m clusterPreview) checkPodPrefix(kc *v1alpha1.KubernetesCluster) {
	if err := clusterplan.CheckPodPrefix(kc); err != nil && !m.setsNodePrefixes(kc) {
		reason, message := reasonOf(err)
		m.refuse("/spec/networking/podCIDR", reason, message)
	}
}

// setsNodePrefixes reports whether a patch sets how podCIDR is divided among the nodes, or patches that may do so cannot be read.
func (m clusterPreview) setsNodePrefixes(kc *v1alpha1.KubernetesCluster) bool {
	for _, name := range clusterplan.PatchesOf(kc, v1alpha1.RoleControlPlane, kc.Spec.Topology.ControlPlane.MachineProperties) {
		data, known := m.patches(string(name))
		if !known {
			m.uncheck("whether podCIDR has room for the nodes")
			return true
		}
		if clusterplan.SetsNodePrefixes(data) {
			return true
		}
	}
	return false
}

// checkReplicas refuses numbers of machines that the API server refuses, and reports false for them. They bound
// what is computed for a cluster.
func (m clusterPreview) checkReplicas(kc *v1alpha1.KubernetesCluster) bool {
	const most, mostPlanes, mostPools = 500, 7, 32
	t := kc.Spec.Topology
	if n := t.ControlPlane.Replicas; n < 1 || n > mostPlanes {
		m.refuse("/spec/topology/controlplane/replicas", "", "write 1, 3, 5 or 7")
		return false
	}
	if len(t.Workers) > mostPools {
		m.refuse("/spec/topology/workers", "", "a cluster has at most 32 pools: write fewer")
		return false
	}
	for i, pool := range t.Workers {
		at := "/spec/topology/workers/" + strconv.Itoa(i)
		if pool.Replicas < 0 || pool.Replicas > most {
			m.refuse(at+"/replicas", "", "write a number from 0 to 500")
			return false
		}
		if a := pool.Autoscaling; a != nil && (a.MinReplicas < 0 || a.MinReplicas > most || a.MaxReplicas > most) {
			m.refuse(at+"/autoscaling", "", "write numbers from 0 to 500")
			return false
		}
	}
	return true
}

// machinesOf returns the Machines of an existing cluster, by name.
func (m clusterPreview) machinesOf(kc *v1alpha1.KubernetesCluster) map[string]*v1alpha1.Machine {
	found := map[string]*v1alpha1.Machine{}
	for i := range m.world.Machines {
		machine := &m.world.Machines[i]
		if m.of.Before != nil && machine.Namespace == m.result.Namespace && machine.Labels[v1alpha1.LabelClusterName] == kc.Name {
			found[machine.Name] = machine
		}
	}
	return found
}

// runningVersions returns a function that returns the Kubernetes version that a node of an existing cluster
// runs: the one of the spec before the change, because a change that is under way ends with it.
func (m clusterPreview) runningVersions(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine) func(name string) string {
	versions := map[string]string{}
	before := &v1alpha1.KubernetesCluster{}
	if m.of.Before != nil && decode(m.of.Before, before) == nil {
		if p, err := clusterplan.Make(before, machines, m.world.DefaultTalos); err == nil {
			for _, member := range p.Members {
				versions[member.Name] = member.Version
			}
		}
	}
	return func(name string) string {
		if v, known := versions[name]; known {
			return v
		}
		return kc.Status.Version
	}
}

// takeMachines adds what new machines take of their MachineProvider, and returns how many addresses they
// need. Machines that are replaced need room for those that exist at the same time.
func (m clusterPreview) takeMachines(kc *v1alpha1.KubernetesCluster, p clusterplan.Plan, s clusterplan.Step) int {
	group := slices.IndexFunc(p.Groups, func(g clusterplan.Group) bool { return g.Pool == s.Pool })
	n := len(s.Machines)
	switch {
	case group < 0, s.Action == clusterplan.StepUpgrade, s.Action == clusterplan.StepResize, s.Action == clusterplan.StepRemove:
		return 0
	case s.Action == clusterplan.StepReplace:
		n = min(n, max(1, p.Groups[group].Rollout.MaxSurge))
	}
	properties := p.Groups[group].Properties
	size, err := machineplan.ResolveSize(v1alpha1.MachineSpec{Template: properties.Template}, m.world.Classes)
	if err != nil { // the cluster goes on without its MachineClass, and its new machines do not
		reason, message := reasonOf(err)
		m.warn(pointerOfPool(kc, s.Pool)+"/template", reason, "pool %s: new machines wait: %s", s.Pool, message)
		return n
	}
	m.provider(properties.ProviderRef, pointerOfPool(kc, s.Pool)+"/providerRef/name", m.result.Namespace, slices.Repeat([]machineplan.Size{size}, n))
	return n
}

// stepOf describes a step of a cluster.
func stepOf(p clusterplan.Plan, s clusterplan.Step) Step {
	what := "pool " + s.Pool
	if s.Pool == v1alpha1.ControlPlanePool {
		what = "the control plane"
	}
	detail := ""
	switch s.Action {
	case clusterplan.StepCreate:
		detail = "machines of " + what + " are created"
	case clusterplan.StepRemove:
		detail = fmt.Sprintf("nodes of %s are drained for at most %s, and their machines deleted", what, clusterplan.DrainTimeout(p.PropertiesOf(s.Pool)))
	case clusterplan.StepReplace:
		detail = fmt.Sprintf("machines of %s are replaced: a new machine joins, and the node of the former one is drained for at most %s", what, clusterplan.DrainTimeout(p.PropertiesOf(s.Pool)))
	case clusterplan.StepResize:
		pace := "one after another"
		if s.AtOnce > 1 {
			pace = fmt.Sprintf("%d at a time", s.AtOnce)
		}
		detail = fmt.Sprintf("machines of %s are resized in place, %s: a node is drained for at most %s, and its machine restarts with the new size",
			what, pace, clusterplan.DrainTimeout(p.PropertiesOf(s.Pool)))
	case clusterplan.StepUpgrade:
		detail = describeUpgrade(p, s, what)
	}
	return Step{Action: string(s.Action), Machines: s.Machines, AtOnce: s.AtOnce, Detail: detail}
}

func describeUpgrade(p clusterplan.Plan, s clusterplan.Step, what string) string {
	i := slices.IndexFunc(p.Members, func(m clusterplan.Member) bool { return m.Name == s.Machines[0] })
	to := p.WantedVersion(s.Kind, p.Members[i])
	switch s.Kind {
	case v1alpha1.UpgradeTalos:
		return fmt.Sprintf("nodes of %s are drained and restart with Talos %s", what, to)
	case v1alpha1.UpgradeControlPlane:
		return "the API servers are upgraded to Kubernetes " + to
	default:
		return fmt.Sprintf("the kubelets of %s are upgraded to Kubernetes %s", what, to)
	}
}

// pointerOf returns the JSON pointer of the field that an error of a cluster is about.
func pointerOf(kc *v1alpha1.KubernetesCluster, reason string) string {
	const topology = "/spec/topology"
	t := kc.Spec.Topology
	switch {
	case strings.HasPrefix(reason, "Talos"):
		return "/spec/talos/version"
	case strings.HasPrefix(reason, "Kubernetes"):
		return topology + "/version"
	case reason == "InvalidTopology" && t.ControlPlane.Replicas%2 == 0:
		return topology + "/controlplane/replicas"
	case reason == "InvalidTopology":
		if second := firstRepeated(t.Workers); second >= 0 {
			return topology + "/workers/" + strconv.Itoa(second) + "/name"
		}
	}
	return topology
}

// firstRepeated returns the index of the first pool whose name an earlier one has, or -1.
func firstRepeated(pools []v1alpha1.WorkerPool) int {
	for i, pool := range pools {
		if slices.ContainsFunc(pools[:i], func(p v1alpha1.WorkerPool) bool { return p.Name == pool.Name }) || pool.Name == v1alpha1.ControlPlanePool {
			return i
		}
	}
	return -1
}

func pointerOfPool(kc *v1alpha1.KubernetesCluster, name string) string {
	if name == v1alpha1.ControlPlanePool {
		return "/spec/topology/controlplane"
	}
	i := slices.IndexFunc(kc.Spec.Topology.Workers, func(p v1alpha1.WorkerPool) bool { return p.Name == name })
	return "/spec/topology/workers/" + strconv.Itoa(i)
}

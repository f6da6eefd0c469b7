// Package plan decides, from a spec and from what is observed, what happens to a cluster: which
// machines it has, which of them leaves or is upgraded next, and when etcd permits that. Its
// functions have no client, clock or log.
package plan

import (
	"fmt"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// WithAcceptedSpec returns a copy of the cluster with its last valid spec, or nil if there never
// was one.
func WithAcceptedSpec(kc *v1alpha1.KubernetesCluster) *v1alpha1.KubernetesCluster {
	accepted := kc.Status.Accepted
	if accepted == nil {
		return nil
	}
	kc = kc.DeepCopy()
	kc.Spec.Topology = *accepted.Topology.DeepCopy()
	if kc.Spec.Talos == nil && accepted.TalosVersion != "" {
		kc.Spec.Talos = &v1alpha1.TalosOptions{}
	}
	if kc.Spec.Talos != nil {
		kc.Spec.Talos.Version = accepted.TalosVersion
	}
	return kc
}

// Make plans the machines and versions of a cluster. machines are the Machines that exist: those
// that are not being removed keep their names. defaultTalos is the Talos version of clusters
// that name none. A spec that cannot be fulfilled is a UserError.
func Make(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, defaultTalos string) (Plan, error) {
	t := EffectiveTopology(kc.Spec.Topology)
	requested := ""
	if kc.Spec.Talos != nil {
		requested = kc.Spec.Talos.Version
	}
	if requested == "" {
		requested = kc.Status.TalosVersion
	}
	p := Plan{Endpoint: endpointOf(kc), Port: DefaultPort}
	if p.Endpoint.Port != 0 {
		p.Port = p.Endpoint.Port
	}
	wanted := t.Version
	if t.ControlPlane.Version != "" {
		wanted = t.ControlPlane.Version
	}
	var err error
	if p.Versions, err = resolveVersions(pinnedVersion(wanted, kc), requested, defaultTalos); err != nil {
		return Plan{}, err
	}
	if t.ControlPlane.Replicas < 1 || t.ControlPlane.Replicas%2 == 0 {
		return Plan{}, usererror.Error{Reason: "InvalidTopology", Message: fmt.Sprintf("%d control planes cannot keep a majority: write 1, 3, 5 or 7 into topology.controlplane.replicas", t.ControlPlane.Replicas)}
	}
	p.addGroup(kc, machines, Group{v1alpha1.ControlPlanePool, v1alpha1.RoleControlPlane, int(t.ControlPlane.Replicas), p.Kubernetes, t.ControlPlane.MachineProperties, limitsOf(nil), resizesControlPlane(t.ControlPlane), nil})
	for _, pool := range t.Workers {
		version := p.Kubernetes
		if pool.Version != "" {
			if version, err = resolveKubernetes(pinnedPoolVersion(pool, kc, machines), p.Talos); err != nil {
				return Plan{}, err
			}
		}
		p.addGroup(kc, machines, Group{pool.Name, v1alpha1.RoleWorker, int(pool.Replicas), version, pool.MachineProperties, limitsOf(pool.Rollout), resizesPool(pool), nil})
	}
	if err := p.checkMachines(); err != nil {
		return Plan{}, err
	}
	return p, p.checkSkew(kc)
}

func (p *Plan) addGroup(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, g Group) {
	if g.Properties.Template == "" {
		g.Properties.Template = v1alpha1.DefaultMachineTemplate(g.Role)
	}
	p.Groups = append(p.Groups, g)
	prefix := NamePrefix(kc.Name, g.Pool)
	for _, name := range machineNames(prefix, g.Replicas, PoolMachines(machines, g.Pool, prefix, assumeHealthy), kc.Status.Adding, g.Rollout) {
		p.Members = append(p.Members, Member{Name: name, Role: g.Role, Pool: g.Pool, Version: g.version, Properties: g.Properties})
	}
}

// checkMachines returns a UserError for an unknown template, for labels that no node can have, and for a machine name that is not
// unique or too long for a host name.
func (p Plan) checkMachines() error {
	const maxHost = 63
	for _, g := range p.Groups {
		if err := checkLabels(g.Properties.Labels); err != nil {
			return usererror.Error{Reason: "InvalidTopology", Message: fmt.Sprintf("pool %s: %s", g.Pool, err)}
		}
	}
	seen := map[string]bool{}
	for _, m := range p.Members {
		if len(m.Name) > maxHost {
			return usererror.Error{Reason: "InvalidTopology", Message: fmt.Sprintf("machine name %s has more than %d characters: shorten the name of the cluster or of pool %s", m.Name, maxHost, m.Pool)}
		}
		if seen[m.Name] {
			return usererror.Error{Reason: "InvalidTopology", Message: fmt.Sprintf("two machines would be called %s: rename pool %s", m.Name, m.Pool)}
		}
		seen[m.Name] = true
	}
	return nil
}

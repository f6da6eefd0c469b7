package inventory

import (
	"cmp"

	"github.com/vitistack/stack/apis/cluster/template"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Defaults of a cluster's network.
const (
	defaultPodCIDR     = "10.244.0.0/16"
	defaultServiceCIDR = "10.96.0.0/12"
	defaultDNSName     = "cluster.local"
)

// States of a cluster's node.
const (
	nodeReady       = "Ready"
	nodeUnreachable = "Unreachable"
)

func fromCluster(c *v1alpha1.KubernetesCluster) (*Object, error) {
	s, d := &c.Status, &c.Spec.Data
	facts := &Cluster{
		Phase:     cmp.Or(string(s.Phase), string(v1alpha1.ClusterPending)),
		ClusterID: cmp.Or(d.ClusterID, c.Name), Provider: d.Provider,
		Environment: d.Environment, Datacenter: d.Datacenter, Project: d.Project, Region: d.Region,
		Workorder: d.Workorder, Zone: d.Zone, Workspace: d.Workspace,
		Network:      c.Spec.NetworkNamespaceName,
		Version:      cmp.Or(s.Version, string(c.Spec.Topology.Version)),
		TalosVersion: s.TalosVersion,
		Endpoint:     s.Endpoint, ControlPlane: s.ControlPlaneReady, Workers: s.WorkersReady,
		Bootstrapped: s.Version != "",
		PodCIDR:      defaultPodCIDR, ServiceCIDR: defaultServiceCIDR, DNSName: defaultDNSName,
	}
	if n := c.Spec.Networking; n != nil {
		facts.PodCIDR = cmp.Or(n.PodCIDR, facts.PodCIDR)
		facts.ServiceCIDR = cmp.Or(n.ServiceCIDR, facts.ServiceCIDR)
		facts.DNSName = cmp.Or(n.DNSDomain, facts.DNSName)
	}
	if ref := c.Spec.TemplateRef; ref != nil {
		facts.Template, facts.Member = ref.Name, template.MemberOf(c)
	}
	facts.countNodes(c)
	o, err := newObject(KindCluster, v1alpha1.GroupVersion.String(), &c.ObjectMeta, facts, c.Spec, c.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &c.ObjectMeta, s.Conditions)
	return o, nil
}

func fromBackup(b *v1alpha1.EtcdBackup) (*Object, error) {
	facts := &Backup{
		Phase: string(b.Status.Phase), Cluster: b.Spec.ClusterName, Schedule: b.Spec.Schedule, Suspended: b.Spec.Suspend,
		Storage: string(b.Spec.StorageLocation.Type), Retention: b.Spec.Retention, Snapshots: b.Status.BackupCount, Size: b.Status.BackupSize,
	}
	if next := b.Status.NextBackupTime; next != nil {
		facts.Next = next.UTC()
	}
	if last := b.Status.LastBackupTime; last != nil {
		facts.LastSuccess = last.UTC()
	}
	o, err := newObject(KindBackup, v1alpha1.GroupVersion.String(), &b.ObjectMeta, facts, b.Spec, b.Status)
	if err != nil {
		return nil, err
	}
	o.Readiness = readinessOf(o.Kind, &b.ObjectMeta, b.Status.Conditions)
	return o, nil
}

// countNodes counts the wanted and the existing nodes. A cluster that scales down has more nodes than it wants.
func (f *Cluster) countNodes(c *v1alpha1.KubernetesCluster) {
	f.Wanted = int(c.Spec.Topology.ControlPlane.Replicas)
	ready := map[string]int32{}
	for _, p := range c.Status.Pools {
		ready[p.Name] = p.ReadyReplicas
	}
	for _, p := range c.Spec.Topology.Workers {
		f.Wanted += int(p.Replicas)
		f.Pools = append(f.Pools, Pool{Name: p.Name, Total: p.Replicas, Ready: ready[p.Name]})
	}
	for _, n := range c.Status.Nodes {
		if n.Address != "" {
			f.NodeAddresses = append(f.NodeAddresses, n.Address)
		}
		switch n.State {
		case nodeReady:
			f.Ready++
		case nodeUnreachable:
			f.UnreachableNodes = append(f.UnreachableNodes, n.Name)
		}
	}
	f.Total = max(f.Wanted, len(c.Status.Nodes))
}

package inventory

import (
	"strconv"
	"time"
)

// clusterListJSON is one cluster in GET /clusters.
type clusterListJSON struct {
	ID          string        `json:"id"`
	Name        string        `json:"name"`
	Namespace   string        `json:"namespace"`
	Status      string        `json:"status"`
	Nodes       nodesListJSON `json:"nodes"`
	Operators   Uses          `json:"operators"`
	LastUpdated time.Time     `json:"lastUpdated"`
}

type nodesListJSON struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// clusterJSON is one cluster in the stream.
type clusterJSON struct {
	head
	Type         string        `json:"type"`
	Nodes        nodesListJSON `json:"nodes"`
	Operators    Uses          `json:"operators"`
	ClusterID    string        `json:"clusterId"`
	Version      string        `json:"version,omitempty"`
	TalosVersion string        `json:"talosVersion,omitempty"`
	Endpoint     string        `json:"endpoint,omitempty"`
	ControlPlane string        `json:"controlPlaneReady,omitempty"`
	Workers      string        `json:"workersReady,omitempty"`
	Pools        []Pool        `json:"pools,omitempty"`
	Network      string        `json:"network,omitempty"`
	Machines     int           `json:"machines"`
	Environment  string        `json:"environment,omitempty"`
	Datacenter   string        `json:"datacenter,omitempty"`
	Project      string        `json:"project,omitempty"`
	Region       string        `json:"region,omitempty"`
	Workorder    string        `json:"workorder,omitempty"`
	Zone         string        `json:"zone,omitempty"`
	Workspace    string        `json:"workspace,omitempty"`
	// ClusterTemplate is where the cluster is in the rollout of the ClusterTemplate that it names.
	ClusterTemplate *FollowerJSON `json:"clusterTemplate,omitempty"`
	tail
}

// clusterFacts are a KubernetesCluster's facts with what its machines, its network and its ClusterTemplate add.
type clusterFacts struct {
	*Cluster
	uses      Uses
	machines  int
	following *FollowerJSON
}

func clusterItem(o *Object, uses Uses, machines int, following *FollowerJSON) *Item {
	f := &clusterFacts{Cluster: o.Facts.(*Cluster), uses: uses, machines: machines, following: following}
	i := itemOf(TopicClusters, o, clusterStatus(f.Phase, o.Readiness.Reason), f.Phase, f)
	nodes := nodesListJSON{Total: f.Total, Ready: f.Ready}
	i.List = encode(clusterListJSON{
		ID: i.ID, Name: i.Name, Namespace: i.Namespace, Status: i.Status, Nodes: nodes, Operators: uses, LastUpdated: i.Updated,
	})
	i.JSON = encode(clusterJSON{
		head: i.head(), tail: i.tail(), Type: clusterType(f.Provider), Nodes: nodes, Operators: uses,
		ClusterID: f.ClusterID, Version: f.Version, TalosVersion: f.TalosVersion, Endpoint: f.Endpoint,
		ControlPlane: f.ControlPlane, Workers: f.Workers, Pools: f.Pools, Network: f.Network, Machines: machines,
		Environment: f.Environment, Datacenter: f.Datacenter, Project: f.Project, Region: f.Region,
		Workorder: f.Workorder, Zone: f.Zone, Workspace: f.Workspace,
		ClusterTemplate: following,
	})
	return i
}

func (f *clusterFacts) attribute(name string) string {
	switch name {
	case "type":
		return clusterType(f.Provider)
	case "version":
		return f.Version
	case "environment":
		return f.Environment
	case "datacenter":
		return f.Datacenter
	case "project":
		return f.Project
	case "region":
		return f.Region
	case "workorder":
		return f.Workorder
	case "zone":
		return f.Zone
	case "workspace":
		return f.Workspace
	case "network":
		return f.Network
	case "nodes":
		return strconv.Itoa(f.Total)
	case "nodesReady":
		return strconv.Itoa(f.Ready)
	case "machines":
		return strconv.Itoa(f.machines)
	}
	return f.following.attribute(name)
}

// UsesOf returns the operators that a cluster depends on.
func UsesOf(i *Item) Uses {
	if f, ok := i.facts.(*clusterFacts); ok {
		return f.uses
	}
	return Uses{}
}

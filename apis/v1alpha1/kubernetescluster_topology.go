package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// KubernetesVersion is a minor version such as 1.33, which means its newest patch
// release that the cluster's Talos supports, or a full version such as 1.33.4.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.][0-9]{1,3}([.][0-9]{1,2})?$')",message="write a Kubernetes version such as 1.33 or 1.33.4"
type KubernetesVersion string

// ClusterTopology is the control plane and the worker pools.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || self.workers.all(p, !has(p.name) || self.workers.exists_one(o, has(o.name) && o.name == p.name))",message="each worker pool needs a name of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || !self.workers.exists(p, has(p.name) && p.name == 'cp')",message="a worker pool cannot be named cp: its machines would have the names of control plane machines"
type ClusterTopology struct {
	// Kubernetes version of the cluster. It has no effect while controlplane.version is
	// set. Example: 1.34.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`
	// +optional
	ControlPlane ControlPlaneTopology `json:"controlplane,omitempty,omitzero"`
	// Pools of worker nodes, with unique names. In a cluster without workers, pods need a
	// toleration for the taint of control planes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Workers []WorkerPool `json:"workers,omitempty"`
	// Number of workers of all pools with autoscaling. An autoscaler sets it through the
	// subresource scale, within the sums of minReplicas and maxReplicas of these pools. The
	// pools are filled in their order, each within its bounds.
	// Default: the sum of the replicas of these pools, which the stack fills in.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16000
	ScaledWorkers *int32 `json:"scaledWorkers,omitempty"`
}

// ControlPlaneTopology is the control plane.
type ControlPlaneTopology struct {
	// Number of control plane machines: 1, 3, 5 or 7.
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5, 7]",message="write 1, 3, 5 or 7: etcd needs an odd number of members to keep a majority"
	// +optional
	Replicas int32 `json:"replicas,omitempty"`
	// Kubernetes version of the control plane. Default: topology.version.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`
	// How the machines get another size after a change of template.
	// +optional
	Rollout *ControlPlaneRollout `json:"rollout,omitempty"`

	MachineProperties `json:",inline"`
}

// WorkerPool is a group of equal workers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.autoscaling.enabled) || !self.autoscaling.enabled || !has(self.autoscaling.minReplicas) || !has(self.autoscaling.maxReplicas) || self.autoscaling.minReplicas <= self.autoscaling.maxReplicas",message="autoscaling.minReplicas is greater than autoscaling.maxReplicas: exchange the two"
type WorkerPool struct {
	// Name of the pool, which becomes part of its machines' names.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=22
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only, for example worker-pool-1"
	Name string `json:"name"`
	// Number of workers. In a pool with autoscaling it has no effect once
	// topology.scaledWorkers is set.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 500",message="write a number from 0 to 500"
	Replicas int32 `json:"replicas"`
	// Kubernetes version of the pool. Default: the version of the control plane.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`
	// Bounds within which an autoscaler may change replicas.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// Number of workers that are upgraded at the same time. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	UpgradeConcurrency int32 `json:"upgradeConcurrency,omitempty"`
	// How the machines follow a change of template or providerRef. Default: they are replaced,
	// one after the other, each after its replacement is Ready.
	// +optional
	Rollout *Rollout `json:"rollout,omitempty"`

	MachineProperties `json:",inline"`
}

// RolloutType is how machines get another size.
//
// +kubebuilder:validation:Enum=Replace;InPlace
type RolloutType string

// RolloutReplace creates other machines. RolloutInPlace restarts the machines with their new size.
const (
	RolloutReplace RolloutType = "Replace"
	RolloutInPlace RolloutType = "InPlace"
)

// ControlPlaneRollout is how the machines of the control plane get another size, one after the other.
type ControlPlaneRollout struct {
	// Replace or InPlace. InPlace drains a node and restarts its machine with the new CPU and memory
	// and with larger disks, while etcd has all its members. Machines with another provider, other
	// or smaller disks are replaced all the same. Default: Replace. Example: InPlace.
	// +optional
	Type RolloutType `json:"type,omitempty"`
}

// Rollout is how the machines of a pool get another size or provider, and how many at the same time.
//
// +kubebuilder:validation:XValidation:rule="(has(self.maxSurge) ? self.maxSurge : 1) + (has(self.maxUnavailable) ? self.maxUnavailable : 0) > 0",message="maxSurge and maxUnavailable are both 0, so that no machine can be replaced: write at least 1 into one of them"
type Rollout struct {
	// Replace or InPlace. InPlace drains a node and restarts its machine with the new CPU and memory
	// and with larger disks. Machines with another provider, other or smaller disks are replaced
	// all the same. Default: Replace. Example: InPlace.
	// +optional
	Type RolloutType `json:"type,omitempty"`
	// Number of machines that the pool may have above replicas while machines are replaced. 0
	// needs no spare capacity and no spare addresses. It has no effect on machines that are
	// resized in place. Default: 1. Example: 2.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	MaxSurge *int32 `json:"maxSurge,omitempty"`
	// Number of machines that the pool may miss while machines are replaced or resized in place.
	// At least one is resized at a time. Default: 0. Example: 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=50
	MaxUnavailable int32 `json:"maxUnavailable,omitempty"`
}

// HealthCheck has machines replaced whose nodes stay unhealthy: not Ready, or without a Node. A
// machine that is switched off by powerState, protected, being upgraded or resized is not replaced.
type HealthCheck struct {
	// Whether unhealthy machines are replaced, one after the other. Default: true for workers,
	// false for the control plane, where it needs at least three machines and a majority of
	// etcd.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// Time after which an unhealthy machine is replaced. A machine younger than three times that
	// is never replaced. Default: 10m. Example: 30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) >= duration('1m')",message="write a time of at least 1m, such as 10m or 1h30m"
	UnhealthyTimeout *metav1.Duration `json:"unhealthyTimeout,omitempty"`
	// Number of unhealthy machines up to which they are replaced. If more are unhealthy, none
	// is, because then the network or a hypervisor is more likely at fault. Default: two fifths
	// of the machines, at least 1. Example: 2.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	MaxUnhealthy int32 `json:"maxUnhealthy,omitempty"`
}

// MachineProperties are what the machines of a control plane or a pool have in
// common.
type MachineProperties struct {
	// Size of the machines: small, medium, large or the name of a MachineClass (kubectl get
	// machineclasses). Default: large for the control plane, medium for workers. A change
	// replaces the machines, or resizes them in place, as rollout.type says, one after the
	// other. Example: large.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="write small, medium, large or the name of a MachineClass: lower case letters, digits and -"
	Template string `json:"template,omitempty"`
	// MachineProvider of the machines. Default: the default MachineProvider. A change
	// replaces the machines, one after the other.
	// +optional
	ProviderRef *ProviderReference `json:"providerRef,omitempty"`
	// Replaces machines whose nodes stay unhealthy.
	// +optional
	HealthCheck *HealthCheck `json:"healthCheck,omitempty"`
	// Labels of the nodes. Example: {environment: production}.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.size() <= 317 && self[k].size() <= 63)",message="a label has at most 63 characters in its value, and 317 in its key"
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Taints []NodeTaint `json:"taints,omitempty"`
	// ConfigMaps with changes to the configuration of the nodes, after those of
	// talos.patches.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Patches []ObjectName `json:"patches,omitempty"`
	// Time limit for draining a node, which respects PodDisruptionBudgets. After it, an
	// upgrade or a resize stops, and a machine that is being removed is deleted with its
	// remaining pods. Default: an upgrade or a resize stops after 1h, and a removal goes on
	// for as long as pods block it; a condition names them after 1h. Example: 30m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) > duration('0s')",message="write a time such as 30m or 1h30m"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// NodeTaint keeps pods from nodes.
type NodeTaint struct {
	// Key of the taint. Example: dedicated.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$')",message="write the key of a taint: letters, digits, -, _ and . only, after a domain and / where it has one, for example dedicated or example.com/dedicated"
	Key string `json:"key"`
	// Value of the taint. Default: empty.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$')",message="write the value of a taint: letters, digits, -, _ and . only, for example database"
	Value string `json:"value,omitempty"`
	// What happens to pods without a matching toleration: NoSchedule, PreferNoSchedule or
	// NoExecute.
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect"`
}

// Autoscaling bounds the replicas of a pool.
type Autoscaling struct {
	// Whether an autoscaler may change the number of machines in the pool, between minReplicas and
	// maxReplicas.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// Minimum number of machines. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=500
	MinReplicas int32 `json:"minReplicas,omitempty"`
	// Maximum number of machines.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	MaxReplicas int32 `json:"maxReplicas"`
}

// EndpointMode is how the workload API is reached.
// +kubebuilder:validation:Enum=vip;custom;node
type EndpointMode string

// EndpointVIP is a virtual IP address that the control plane nodes share,
// EndpointCustom an external load balancer, and EndpointNode the address of the first
// control plane node.
const (
	EndpointVIP    EndpointMode = "vip"
	EndpointCustom EndpointMode = "custom"
	EndpointNode   EndpointMode = "node"
)

// ControlPlaneEndpoint says where the workload API is reached.
//
// +kubebuilder:validation:XValidation:rule="(self.mode == 'custom') == has(self.host)",message="mode custom needs host, and only mode custom has it"
// +kubebuilder:validation:XValidation:rule="self.mode == 'custom' || !has(self.port) || !(self.port in [2379, 2380, 7445, 50000, 50001] || (self.port >= 10248 && self.port <= 10259))",message="port is one that Talos or Kubernetes itself listens on: write another, for example 6443 or 443"
// +kubebuilder:validation:XValidation:rule="self.mode == 'vip' || !has(self.address)",message="only mode vip has address: mode custom has host"
type ControlPlaneEndpoint struct {
	// vip, custom or node.
	Mode EndpointMode `json:"mode"`
	// Address or DNS name, for mode custom.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",message="write an IP address or a DNS name, without scheme and port"
	Host string `json:"host,omitempty"`
	// Default: 6443. In the modes vip and node the API servers listen on it; in mode
	// custom they listen on 6443, to which host has to lead. The chart's network policies let the
	// stack connect to another port if networkPolicy.clusters.ports lists it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Address for mode vip. Default: an address that the stack allocates.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write one IP address, for example 192.168.10.5"
	Address string `json:"address,omitempty"`
}

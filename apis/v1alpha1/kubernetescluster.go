package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterPhase is where a KubernetesCluster is in its life.
// +kubebuilder:validation:Enum=Pending;PendingApproval;Provisioning;Running;Updating;Deleting;Failed
type ClusterPhase string

// Pending waits for a valid spec or its network, Provisioning builds the first
// nodes, Updating changes a cluster that has been Running.
const (
	ClusterPending         ClusterPhase = "Pending"
	ClusterPendingApproval ClusterPhase = "PendingApproval"
	ClusterProvisioning    ClusterPhase = "Provisioning"
	ClusterRunning         ClusterPhase = "Running"
	ClusterUpdating        ClusterPhase = "Updating"
	ClusterDeleting        ClusterPhase = "Deleting"
	ClusterFailed          ClusterPhase = "Failed"
)

// Conditions of a KubernetesCluster beside Ready, in the order of its life.
const (
	ConditionTopologyValid    = "TopologyValid"
	ConditionNetworkAvailable = "NetworkAvailable"
	ConditionMachinesCreated  = "MachinesCreated"
	ConditionMachinesRunning  = "MachinesRunning"
	ConditionConfigApplied    = "ConfigApplied"
	ConditionBootstrapped     = "Bootstrapped"
	ConditionNodesReady       = "NodesReady"
	// ConditionApproved is there only where approval is required.
	ConditionApproved = "Approved"
	// ConditionVersionsCurrent tells whether every node runs the wanted versions.
	ConditionVersionsCurrent = "VersionsCurrent"
	ConditionEtcdHealthy     = "EtcdHealthy"
	// ConditionConfigCurrent tells whether every node runs the wanted configuration.
	ConditionConfigCurrent = "ConfigCurrent"
)

// KubernetesCluster is a Kubernetes cluster of Talos Linux machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.topology.scaledWorkers,statuspath=.status.scaledWorkers,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:resource:path=kubernetesclusters,scope=Namespaced,shortName=kc,categories=vitistack
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Control planes",type=string,JSONPath=`.status.controlPlaneReady`
// +kubebuilder:printcolumn:name="Workers",type=string,JSONPath=`.status.workersReady`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Upgraded",type=string,JSONPath=`.status.upgrade.progress`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`
// +kubebuilder:printcolumn:name="Talos",type=string,JSONPath=`.status.talosVersion`,priority=1
// +kubebuilder:printcolumn:name="Cluster ID",type=string,JSONPath=`.spec.data.clusterId`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 32 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name becomes part of host names: use at most 32 lower case letters, digits and -, beginning with a letter"
type KubernetesCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   KubernetesClusterSpec   `json:"spec"`
	Status KubernetesClusterStatus `json:"status,omitempty,omitzero"`
}

// KubernetesClusterList is a list of KubernetesClusters.
//
// +kubebuilder:object:root=true
type KubernetesClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []KubernetesCluster `json:"items"`
}

// KubernetesClusterSpec says which cluster is wanted.
type KubernetesClusterSpec struct {
	// Who and what the cluster is for.
	Data ClusterData `json:"data"`
	// Machines of the cluster.
	Topology ClusterTopology `json:"topology"`
	// NetworkNamespace, in the same namespace, that the machines are in. May be
	// left out where the namespace holds exactly one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="networkNamespaceName cannot be changed: a cluster does not move between networks"
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// Where the workload API is reached. Absent means a virtual IP address for a
	// cluster that has or had more than one control plane, and otherwise the address
	// of the first, which moves on when that leaves.
	// +optional
	ControlPlaneEndpoint *ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty"`
	// +optional
	Networking *ClusterNetworking `json:"networking,omitempty"`
	// +optional
	Talos *TalosOptions `json:"talos,omitempty"`
	// +optional
	Upgrade *UpgradeOptions `json:"upgrade,omitempty"`
	// Decision of a ticketing system that the cluster waits for. The annotation
	// vitistack.io/approval of the namespace asks for the same for all clusters in
	// it.
	// +optional
	Approval *ApprovalOptions `json:"approval,omitempty"`
	// Stops every change to the cluster for as long as it is true.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ClusterData says who and what a cluster is for.
type ClusterData struct {
	// Unique identifier of the cluster. Absent means the object's UID.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterUID string `json:"clusterUid,omitempty"`
	// Identifier for people. Absent means metadata.name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterId,omitempty"`
	// Always talos.
	// +kubebuilder:default=talos
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == 'talos'",message="the only provider of clusters is talos: write talos, or leave provider out"
	Provider string `json:"provider,omitempty"`
	// For example dev, staging or prod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Environment string `json:"environment,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Datacenter string `json:"datacenter,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Project string `json:"project,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Work order in the ticketing system that the cluster was asked for by.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Workorder string `json:"workorder,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Workspace string `json:"workspace,omitempty"`
}

// KubernetesVersion is a minor version such as 1.33, which means its newest patch
// release that the cluster's Talos supports, or a full version such as 1.33.4.
//
// +kubebuilder:validation:MaxLength=16
// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.][0-9]{1,3}([.][0-9]{1,3})?$')",message="write a Kubernetes version such as 1.33 or 1.33.4"
type KubernetesVersion string

// ClusterTopology is the control plane and the worker pools.
//
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || self.workers.all(p, self.workers.exists_one(o, o.name == p.name))",message="each worker pool needs a name of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.workers) || !self.workers.exists(p, p.name == 'cp')",message="a worker pool cannot be called cp: its machines would bear the names of the control plane"
type ClusterTopology struct {
	// Kubernetes version of the cluster.
	Version KubernetesVersion `json:"version"`
	// +required
	ControlPlane ControlPlaneTopology `json:"controlplane"`
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Workers []WorkerPool `json:"workers,omitempty"`
	// Workers of all pools with autoscaling together, which is what an autoscaler sets
	// through the subresource scale. The pools are filled in their order, each within
	// its bounds. Absent means what the pools' replicas come to, and is then filled in.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16000
	ScaledWorkers *int32 `json:"scaledWorkers,omitempty"`
}

// ControlPlaneTopology is the control plane.
type ControlPlaneTopology struct {
	// Number of control plane machines: 1, 3, 5 or 7.
	// +kubebuilder:validation:XValidation:rule="self in [1, 3, 5, 7]",message="write 1, 3, 5 or 7: etcd needs an odd number of members to keep a majority"
	Replicas int32 `json:"replicas"`
	// Kubernetes version of the control plane. Absent means topology.version.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`

	MachineProperties `json:",inline"`
}

// WorkerPool is a group of equal workers.
//
// +kubebuilder:validation:XValidation:rule="!has(self.autoscaling) || !has(self.autoscaling.enabled) || !self.autoscaling.enabled || self.autoscaling.minReplicas <= self.autoscaling.maxReplicas",message="autoscaling.minReplicas is greater than autoscaling.maxReplicas: exchange the two"
type WorkerPool struct {
	// Name of the pool, which becomes part of its machines' names.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=22
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only, for example worker-pool-1"
	Name string `json:"name"`
	// Number of workers.
	// +kubebuilder:validation:XValidation:rule="self >= 0 && self <= 500",message="write a number from 0 to 500"
	Replicas int32 `json:"replicas"`
	// Kubernetes version of the pool. Absent means topology.version.
	// +optional
	Version KubernetesVersion `json:"version,omitempty"`
	// Bounds within which an autoscaler may change replicas.
	// +optional
	Autoscaling *Autoscaling `json:"autoscaling,omitempty"`
	// Workers that are upgraded at the same time. Absent means 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	UpgradeConcurrency int32 `json:"upgradeConcurrency,omitempty"`

	MachineProperties `json:",inline"`
}

// MachineProperties are what the machines of a control plane or a pool have in
// common.
type MachineProperties struct {
	// Size of the machines. Absent means large for a control plane and medium for
	// workers.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Template string `json:"template,omitempty"`
	// MachineProvider of the machines.
	// +optional
	ProviderRef *ProviderReference `json:"providerRef,omitempty"`
	// Labels of the nodes.
	// +optional
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
	// How long pods have to go from a machine, for example 30m. One that leaves goes
	// without them then; an upgrade stops. Absent means that PodDisruptionBudgets
	// are respected for ever, and that somebody is told so after an hour.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+(h|m|s))+$') && duration(self) > duration('0s')",message="write a time such as 30m or 1h30m"
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// NodeTaint keeps pods from nodes.
type NodeTaint struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect string `json:"effect"`
}

// Autoscaling bounds the replicas of a pool.
type Autoscaling struct {
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=500
	MinReplicas int32 `json:"minReplicas,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=500
	MaxReplicas int32 `json:"maxReplicas"`
}

// EndpointMode is how the workload API is reached.
// +kubebuilder:validation:Enum=vip;custom;node
type EndpointMode string

// A virtual IP address that the control planes share, an address that somebody
// else provides, or the first control plane's address.
const (
	EndpointVIP    EndpointMode = "vip"
	EndpointCustom EndpointMode = "custom"
	EndpointNode   EndpointMode = "node"
)

// ControlPlaneEndpoint says where the workload API is reached.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="controlPlaneEndpoint cannot be changed: every node's configuration and every kubeconfig names it"
// +kubebuilder:validation:XValidation:rule="(self.mode == 'custom') == has(self.host)",message="mode custom needs host, and only mode custom has it"
type ControlPlaneEndpoint struct {
	// vip, custom or node.
	Mode EndpointMode `json:"mode"`
	// Address or DNS name, for mode custom.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="isIP(self) || self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",message="write an IP address or a DNS name, without scheme and port"
	Host string `json:"host,omitempty"`
	// Absent means 6443.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Address for mode vip. Absent means one that is allocated.
	// +optional
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="write one IP address, for example 192.168.10.5"
	Address string `json:"address,omitempty"`
}

// ClusterNetworking is the network inside the cluster.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="networking cannot be changed after the cluster has been made"
type ClusterNetworking struct {
	// Prefix of pods. Absent means 10.244.0.0/16.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write a prefix, for example 10.244.0.0/16"
	PodCIDR string `json:"podCIDR,omitempty"`
	// Prefix of Services. Absent means 10.96.0.0/12.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write a prefix, for example 10.96.0.0/12"
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// Absent means cluster.local.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
}

// TalosOptions are options of Talos Linux.
type TalosOptions struct {
	// Version of Talos, for example 1.13.9. Absent means the stack's default,
	// which the cluster then keeps.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.][0-9]{1,3}[.][0-9]{1,3}$')",message="write a full Talos version such as 1.13.9"
	Version string `json:"version,omitempty"`
	// Schematic of the image factory, which says which extensions are installed.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="write the 64 hex digits that the image factory gave for the schematic"
	Schematic string `json:"schematic,omitempty"`
	// Disk that Talos is installed to. Absent means /dev/vda.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
	// Changes to the configuration of nodes.
	// +optional
	Patches *ConfigPatches `json:"patches,omitempty"`
	// What is done about a changed configuration that a node takes only with a reboot.
	// +optional
	// +kubebuilder:default=NoReboot
	ConfigChanges ConfigChanges `json:"configChanges,omitempty"`
}

// ConfigPatches names ConfigMaps, in the same namespace, whose every key is a patch
// of machine configurations in the form that talosctl patch takes. They apply in
// the order here, and those of a pool after them; the keys of one in their order.
type ConfigPatches struct {
	// For every node.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	All []ObjectName `json:"all,omitempty"`
	// For control planes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ControlPlane []ObjectName `json:"controlPlane,omitempty"`
	// For workers of all pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Workers []ObjectName `json:"workers,omitempty"`
}

// ObjectName is the name of an object.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type ObjectName string

// ConfigChanges is what is done about a changed configuration that a node takes
// only with a reboot.
// +kubebuilder:validation:Enum=NoReboot;Staged;Reboot
type ConfigChanges string

// NoReboot only tells, Staged has the node take it at its next boot, Reboot reboots
// one node after the other.
const (
	ConfigNoReboot ConfigChanges = "NoReboot"
	ConfigStaged   ConfigChanges = "Staged"
	ConfigReboot   ConfigChanges = "Reboot"
)

// UpgradeOptions say how versions are changed.
type UpgradeOptions struct {
	// Begins with no other node while true. What a node has begun is finished.
	// Setting it back to false also tries again what has failed.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ApprovalPolicy is what has to be approved.
// +kubebuilder:validation:Enum=creation;growth
type ApprovalPolicy string

// Only the first machines of a cluster, or also every later growth: more
// machines, another pool, or another template.
const (
	ApprovalCreation ApprovalPolicy = "creation"
	ApprovalGrowth   ApprovalPolicy = "growth"
)

// ApprovalOptions ask for approval.
type ApprovalOptions struct {
	// creation or growth.
	Policy ApprovalPolicy `json:"policy"`
}

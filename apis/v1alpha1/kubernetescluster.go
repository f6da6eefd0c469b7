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
	// ConditionAuthoritiesRotated is there only where a rotation was asked for.
	ConditionAuthoritiesRotated = "AuthoritiesRotated"
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
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.endpoint) || !has(oldSelf.spec.controlPlaneEndpoint) || (has(self.spec.controlPlaneEndpoint) && self.spec.controlPlaneEndpoint == oldSelf.spec.controlPlaneEndpoint)",message="spec.controlPlaneEndpoint cannot be changed once status.endpoint is set: every node's configuration and every kubeconfig names it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.endpoint) || (has(self.spec.networking) ? has(oldSelf.spec.networking) && self.spec.networking == oldSelf.spec.networking : !has(oldSelf.spec.networking))",message="spec.networking cannot be changed once status.endpoint is set: make another cluster"
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
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.networkNamespaceName) || (has(self.networkNamespaceName) && self.networkNamespaceName == oldSelf.networkNamespaceName)",message="networkNamespaceName cannot be changed: a cluster does not move between networks"
type KubernetesClusterSpec struct {
	// Who and what the cluster is for.
	Data ClusterData `json:"data"`
	// Machines of the cluster.
	Topology ClusterTopology `json:"topology"`
	// NetworkNamespace, in the same namespace, that the machines are in. May be
	// left out where the namespace holds exactly one.
	// +optional
	// +kubebuilder:validation:MaxLength=253
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
	// Unique identifier of the cluster for people and other systems. It identifies
	// nothing here: metadata.uid does.
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
	// Data centre that the cluster is in, for people and reports. Example: oslo-dc1.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Datacenter string `json:"datacenter,omitempty"`
	// Project that the cluster is accounted to. Example: webshop.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Project string `json:"project,omitempty"`
	// Region of the data centre. Example: norway-east.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Work order in the ticketing system that the cluster was asked for by.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Workorder string `json:"workorder,omitempty"`
	// Availability zone of the data centre. Example: az1.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Zone string `json:"zone,omitempty"`
	// Workspace of the requester. Example: team-a.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Workspace string `json:"workspace,omitempty"`
}

// ClusterNetworking is the network inside the cluster.
//
// +kubebuilder:validation:XValidation:rule="!isCIDR((has(self.podCIDR) ? self.podCIDR : '10.244.0.0/16')) || !isCIDR((has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/12')) || !(cidr((has(self.podCIDR) ? self.podCIDR : '10.244.0.0/16')).containsCIDR(cidr((has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/12'))) || cidr((has(self.serviceCIDR) ? self.serviceCIDR : '10.96.0.0/12')).containsCIDR(cidr((has(self.podCIDR) ? self.podCIDR : '10.244.0.0/16'))))",message="podCIDR (absent: 10.244.0.0/16) and serviceCIDR (absent: 10.96.0.0/12) overlap: write two prefixes that do not"
type ClusterNetworking struct {
	// Prefix of pods. Absent means 10.244.0.0/16. It may overlap neither serviceCIDR nor
	// the network of the machines.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write a prefix, for example 10.244.0.0/16"
	PodCIDR string `json:"podCIDR,omitempty"`
	// Prefix of Services. Absent means 10.96.0.0/12. It may overlap neither podCIDR nor the
	// network of the machines.
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
	// Replaces the certificate authorities of the Talos API and of Kubernetes once for
	// each new value, for example 2026-11. Every talosconfig and kubeconfig handed out
	// before ceases to work: read the Secrets in status.secrets again. A value that is
	// there when the cluster is made replaces nothing. A value written during a rotation
	// has its turn after that.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RotateAuthorities string `json:"rotateAuthorities,omitempty"`
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

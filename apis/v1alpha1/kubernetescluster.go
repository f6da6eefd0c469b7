package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterPhase is the phase of a KubernetesCluster.
// +kubebuilder:validation:Enum=Pending;PendingApproval;Provisioning;Running;Updating;Deleting;Failed
type ClusterPhase string

// Phases of a KubernetesCluster. Pending waits for a valid spec or for its network,
// Provisioning creates the first nodes, and Updating changes a cluster that has been
// Running.
const (
	ClusterPending         ClusterPhase = "Pending"
	ClusterPendingApproval ClusterPhase = "PendingApproval"
	ClusterProvisioning    ClusterPhase = "Provisioning"
	ClusterRunning         ClusterPhase = "Running"
	ClusterUpdating        ClusterPhase = "Updating"
	ClusterDeleting        ClusterPhase = "Deleting"
	ClusterFailed          ClusterPhase = "Failed"
)

// KubernetesCluster is a Kubernetes cluster of Talos Linux machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.topology.scaledWorkers,statuspath=.status.scaledWorkers,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:selectablefield:JSONPath=`.spec.templateRef.name`
// +kubebuilder:resource:path=kubernetesclusters,scope=Namespaced,shortName=kc,categories={vitistack,viti}
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
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.endpoint) || !has(oldSelf.spec.controlPlaneEndpoint) || (has(self.spec.controlPlaneEndpoint) && self.spec.controlPlaneEndpoint == oldSelf.spec.controlPlaneEndpoint) || int(url(oldSelf.status.endpoint).getPort()) != (has(oldSelf.spec.controlPlaneEndpoint.port) ? oldSelf.spec.controlPlaneEndpoint.port : 6443) || (has(oldSelf.spec.controlPlaneEndpoint.host) ? url(oldSelf.status.endpoint).getHostname() != oldSelf.spec.controlPlaneEndpoint.host : has(oldSelf.spec.controlPlaneEndpoint.address) ? ip.isCanonical(oldSelf.spec.controlPlaneEndpoint.address) && url(oldSelf.status.endpoint).getHostname() != oldSelf.spec.controlPlaneEndpoint.address : has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason in ['VirtualAddressFailed', 'WaitingForVirtualAddress']))",message="spec.controlPlaneEndpoint cannot be changed once status.endpoint is the endpoint that it names: every node's configuration and every kubeconfig names it"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.endpoint) || (has(self.spec.networking) ? has(oldSelf.spec.networking) && self.spec.networking == oldSelf.spec.networking : !has(oldSelf.spec.networking))",message="spec.networking cannot be changed once status.endpoint is set: make another cluster"
// +kubebuilder:validation:XValidation:rule="(has(self.spec.networkNamespaceName) ? has(oldSelf.spec.networkNamespaceName) && self.spec.networkNamespaceName == oldSelf.spec.networkNamespaceName : !has(oldSelf.spec.networkNamespaceName)) || (has(oldSelf.status) && has(oldSelf.status.networkNamespaceName) ? has(self.spec.networkNamespaceName) && self.spec.networkNamespaceName == oldSelf.status.networkNamespaceName : !has(oldSelf.spec.networkNamespaceName))",fieldPath=".spec.networkNamespaceName",messageExpression="has(oldSelf.status) && has(oldSelf.status.networkNamespaceName) ? 'networkNamespaceName cannot be changed: a cluster does not move between networks; write ' + oldSelf.status.networkNamespaceName + ', in which its machines are, or delete it and create a new one' : 'networkNamespaceName cannot be changed: a cluster does not move between networks; delete it and create a new one'",message="networkNamespaceName cannot be changed: a cluster does not move between networks; delete it and create a new one"
type KubernetesCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec KubernetesClusterSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
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

// KubernetesClusterSpec is the desired state of a cluster.
//
// +kubebuilder:validation:XValidation:rule="(has(self.talos) && has(self.talos.serviceAccountKey) ? self.talos.serviceAccountKey : 'ECDSA') == (has(oldSelf.talos) && has(oldSelf.talos.serviceAccountKey) ? oldSelf.talos.serviceAccountKey : 'ECDSA')",message="talos.serviceAccountKey (absent: ECDSA) cannot be changed: the tokens of every service account would become invalid. Create another cluster"
// +kubebuilder:validation:XValidation:rule="has(self.templateRef) || (has(self.topology) && has(self.topology.version) && has(self.topology.controlplane) && has(self.topology.controlplane.replicas))",fieldPath=".topology",message="topology.version and topology.controlplane.replicas are required: write them, for example {version: \"1.34\", controlplane: {replicas: 3}}, or name a ClusterTemplate in templateRef"
type KubernetesClusterSpec struct {
	// Identity of the cluster in inventories and reports. Example: {environment: prod}.
	Data ClusterData `json:"data"`
	// ClusterTemplate that the platform team publishes. The stack writes its fields into this spec, beside
	// those that the manifest of the cluster has, which take precedence. Without templateRef the fields
	// stay as they are. Default: none. Example: {name: standard}.
	// +optional
	TemplateRef *ClusterTemplateReference `json:"templateRef,omitempty"`
	// Machines of the cluster. version, controlplane and controlplane.replicas are required without
	// templateRef.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.version) || !has(oldSelf.version) || !has(self.controlplane) || !has(oldSelf.controlplane) || self.version == oldSelf.version || !has(self.controlplane.version) || !has(oldSelf.controlplane.version) || self.controlplane.version != oldSelf.controlplane.version || (has(self.workers) ? self.workers.map(p, (has(p.name) ? p.name : '') + ' ' + (has(p.version) ? p.version : '')) : []) != (has(oldSelf.workers) ? oldSelf.workers.map(p, p.name + ' ' + (has(p.version) ? p.version : '')) : [])",fieldPath=".version",message="topology.version has no effect while controlplane.version is set: change controlplane.version and the version of each pool that has one, or remove these versions"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaledWorkers) || !has(oldSelf.scaledWorkers) || self.scaledWorkers != oldSelf.scaledWorkers || !has(self.workers) || !has(oldSelf.workers) || self.workers.all(p, !(has(p.autoscaling) && has(p.autoscaling.enabled) && p.autoscaling.enabled) || !oldSelf.workers.exists(o, has(p.name) && o.name == p.name && has(p.replicas) && has(o.autoscaling) && has(o.autoscaling.enabled) && o.autoscaling.enabled && o.replicas != p.replicas))",message="replicas of a pool with autoscaling has no effect once scaledWorkers is set: run kubectl scale kubernetescluster/NAME --replicas N with the number of workers of all these pools, or change minReplicas and maxReplicas"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaledWorkers) || (has(oldSelf.scaledWorkers) && self.scaledWorkers == oldSelf.scaledWorkers) || (has(self.workers) && self.workers.exists(p, has(p.autoscaling) && has(p.autoscaling.enabled) && p.autoscaling.enabled))",fieldPath=".scaledWorkers",message="scaledWorkers has no effect, because it counts the workers of pools with autoscaling and no pool has autoscaling.enabled: change the replicas of a pool, or set its autoscaling"
	// +kubebuilder:validation:XValidation:rule="!has(self.scaledWorkers) || (has(oldSelf.scaledWorkers) && self.scaledWorkers == oldSelf.scaledWorkers) || !has(self.workers) || !self.workers.exists(p, has(p.autoscaling) && has(p.autoscaling.enabled) && p.autoscaling.enabled) || self.workers.exists(p, has(p.autoscaling) && !has(p.autoscaling.maxReplicas)) || (self.scaledWorkers >= self.workers.map(p, has(p.autoscaling) && has(p.autoscaling.enabled) && p.autoscaling.enabled && has(p.autoscaling.minReplicas) ? p.autoscaling.minReplicas : 0).sum() && self.scaledWorkers <= self.workers.map(p, has(p.autoscaling) && has(p.autoscaling.enabled) && p.autoscaling.enabled ? p.autoscaling.maxReplicas : 0).sum())",fieldPath=".scaledWorkers",message="the pools with autoscaling cannot have this number of workers together: write at least the sum of their minReplicas and at most the sum of their maxReplicas, or change these"
	Topology ClusterTopology `json:"topology,omitempty,omitzero"`
	// NetworkNamespace of the machines, in the same namespace. Default: the only
	// NetworkNamespace of the namespace. Example: prod-net.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// Address of the cluster's Kubernetes API. Default: a virtual IP address for a
	// cluster that has or had more than one control plane machine, and otherwise the
	// address of the first control plane machine, which changes when that machine is
	// replaced.
	// +optional
	ControlPlaneEndpoint *ControlPlaneEndpoint `json:"controlPlaneEndpoint,omitempty"`
	// +optional
	Networking *ClusterNetworking `json:"networking,omitempty"`
	// Add-ons: manifests that are applied to the workload API, in this order, as soon as it
	// answers, and again when a ConfigMap changes. Removing an add-on deletes nothing in the
	// cluster. Default: none. Example: [{name: metrics-server, configMap: metrics-server}].
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Addons []ClusterAddon `json:"addons,omitempty"`
	// +optional
	Talos *TalosOptions `json:"talos,omitempty"`
	// +optional
	Upgrade *UpgradeOptions `json:"upgrade,omitempty"`
	// Requires the approval of a ticketing system. The annotation
	// vitistack.io/approval on the namespace requires it for all clusters of the
	// namespace. Default: no approval.
	// +optional
	Approval *ApprovalOptions `json:"approval,omitempty"`
	// Stops all changes to the cluster while true. Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
	// Refuses every deletion of the KubernetesCluster while true: set it to false before
	// you delete. It does not protect single Machines. Default: false. Example: true.
	// +optional
	Protected bool `json:"protected,omitempty"`
}

// ClusterData identifies a cluster in inventories and reports.
type ClusterData struct {
	// Unique identifier of the cluster in other systems. The stack itself identifies
	// the cluster by metadata.uid.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterUID string `json:"clusterUid,omitempty"`
	// Readable identifier. Default: metadata.name.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ClusterID string `json:"clusterId,omitempty"`
	// Provider of the cluster: talos. Default: talos.
	// +kubebuilder:default=talos
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == 'talos'",message="the only provider of clusters is talos: write talos, or leave provider out"
	Provider string `json:"provider,omitempty"`
	// Environment of the cluster. Example: prod.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Environment string `json:"environment,omitempty"`
	// Data centre of the cluster, for reports. Example: oslo-dc1.
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
	// Work order of the cluster in the ticketing system. Example: CHG0031337.
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
	// Prefix of the pods. It must not overlap serviceCIDR or the network of the
	// machines. Each node gets a /24 of it (IPv6: /64), and one more is needed while a machine is
	// replaced. Default: 10.244.0.0/16, for 255 nodes.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write a prefix, for example 10.244.0.0/16"
	PodCIDR string `json:"podCIDR,omitempty"`
	// Prefix of the Services. It must not overlap podCIDR or the network of the
	// machines. Kubernetes before 1.34 accepts at most a /12 (IPv6: /108). Default: 10.96.0.0/12.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",message="write a prefix, for example 10.96.0.0/12"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() <= (cidr(self).ip().family() == 4 ? 28 : 124)",message="Services need at least 16 addresses, because the cluster's DNS has the tenth: write a prefix of at most /28 (IPv6: /124), for example 10.96.0.0/12"
	// +kubebuilder:validation:XValidation:rule="!isCIDR(self) || cidr(self).ip().family() == 4 || cidr(self).prefixLength() >= 64",message="Kubernetes has no Services in an IPv6 prefix that is larger than /64: write a prefix of /108 to /124, for example fd00:20::/112"
	ServiceCIDR string `json:"serviceCIDR,omitempty"`
	// DNS domain of the Services. Default: cluster.local.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$')",message="write a DNS name of lower case letters, digits, - and dots, for example cluster.local"
	DNSDomain string `json:"dnsDomain,omitempty"`
	// Network plugin that Talos installs: flannel, or none for one of spec.addons, such as
	// Cilium. Nodes are not Ready before a plugin runs on them. It is chosen when the
	// cluster is created. Default: flannel. Example: none.
	// +optional
	CNI CNI `json:"cni,omitempty"`
}

// CNI is the network plugin that Talos installs, as cluster.network.cni.name of its machine
// configuration.
// +kubebuilder:validation:Enum=flannel;none
type CNI string

// The network plugins.
const (
	CNIFlannel CNI = "flannel"
	CNINone    CNI = "none"
)

// ClusterAddon names manifests that are applied to the workload API.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMap) != has(self.url)",message="write one of configMap and url, and not both"
type ClusterAddon struct {
	// Name of the add-on in the status. Example: cilium.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="write lower case letters, digits and -, for example metrics-server"
	Name string `json:"name"`
	// ConfigMap in the namespace of the cluster. Each key is a file of manifests in YAML. They are
	// applied in the alphabetical order of the keys, Namespaces and CustomResourceDefinitions
	// first. Example: cilium.
	// +optional
	ConfigMap ObjectName `json:"configMap,omitempty"`
	// URL of a file of manifests in YAML, or of an OCI artifact with such files, as flux push artifact and oras push
	// make it: oci://REGISTRY/REPOSITORY:TAG or @DIGEST. It is read once: write the URL of another version to have that
	// applied. The platform team allows its host. Examples: oci://ghcr.io/org/tools:1.2.3,
	// https://github.com/kubernetes-sigs/metrics-server/releases/download/v0.8.0/components.yaml.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="self.startsWith('oci://') || isURL(self) && url(self).getScheme() == 'https' && url(self).getHost() != ''",message="write a URL that begins with https:// or oci://"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('oci://') || self.matches('^oci://[a-zA-Z0-9.:-]+/[a-z0-9._/-]+(:[a-zA-Z0-9_.-]+|(:[a-zA-Z0-9_.-]+)?@sha256:[0-9a-f]{64})$')",message="write the registry, the repository, and a tag or a digest, for example oci://ghcr.io/org/tools:1.2.3"
	URL string `json:"url,omitempty"`
}

// TalosOptions are options of Talos Linux.
type TalosOptions struct {
	// Talos version. Default: the default version of the stack when the cluster is
	// created. Example: 1.13.9.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^v?1[.][0-9]{1,3}[.][0-9]{1,2}$')",message="write a full Talos version such as 1.13.9"
	Version string `json:"version,omitempty"`
	// Schematic ID of the Talos Image Factory, which selects the system extensions and the arguments of the kernel.
	// Default: the schematic with qemu-guest-agent.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9a-f]{64}$')",message="write the 64 hex digits that the image factory gave for the schematic"
	Schematic string `json:"schematic,omitempty"`
	// Disk that Talos is installed to. Default: /dev/vda.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	InstallDisk string `json:"installDisk,omitempty"`
	// Patches of the machine configurations. Machines are replaced for what Talos applies
	// to a new node only, such as the encryption of its disk.
	// +optional
	Patches *ConfigPatches `json:"patches,omitempty"`
	// How a changed configuration that needs a reboot is applied. NoReboot reports it
	// in the condition ConfigCurrent, Staged applies it at the next boot, and Reboot
	// reboots one node after the other. Default: NoReboot.
	// +optional
	ConfigChanges ConfigChanges `json:"configChanges,omitempty"`
	// Rotates the certificate authorities of the Talos API and of Kubernetes once for
	// each new value. Existing talosconfigs and kubeconfigs stop working: read the
	// Secrets in status.secrets again. The value at the creation of the cluster starts
	// no rotation. A value that is set during a rotation starts the next rotation
	// afterwards. Example: 2026-11.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RotateAuthorities string `json:"rotateAuthorities,omitempty"`
	// Type of the key that signs the tokens of service accounts: ECDSA (P-256) or RSA (4096
	// bits). RSA takes a second of CPU for each new cluster, and is for clouds that accept these
	// tokens (workload identity federation) with RS256 only. It is chosen when the cluster is created.
	// Default: ECDSA.
	// +optional
	ServiceAccountKey ServiceAccountKeyType `json:"serviceAccountKey,omitempty"`
}

// ServiceAccountKeyType is the type of the key that signs the tokens of service accounts.
// +kubebuilder:validation:Enum=ECDSA;RSA
type ServiceAccountKeyType string

// The types of keys.
const (
	ServiceAccountKeyECDSA ServiceAccountKeyType = "ECDSA"
	ServiceAccountKeyRSA   ServiceAccountKeyType = "RSA"
)

// ConfigPatches names ConfigMaps in the namespace of the cluster. Each key of a
// ConfigMap is a machine configuration patch in the format of talosctl patch. The
// patches are applied in the order all, controlPlane or workers, pool, and within a
// ConfigMap in the alphabetical order of the keys.
type ConfigPatches struct {
	// ConfigMaps with patches for every node. Example: [ntp-servers].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	All []ObjectName `json:"all,omitempty"`
	// ConfigMaps with patches for control plane nodes.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ControlPlane []ObjectName `json:"controlPlane,omitempty"`
	// ConfigMaps with patches for the workers of all pools.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Workers []ObjectName `json:"workers,omitempty"`
}

// ObjectName is the name of an object.
// +kubebuilder:validation:MinLength=1
// +kubebuilder:validation:MaxLength=253
type ObjectName string

// ConfigChanges is how a changed configuration that needs a reboot is applied.
// +kubebuilder:validation:Enum=NoReboot;Staged;Reboot
type ConfigChanges string

// ConfigNoReboot reports the change, ConfigStaged applies it at the node's next boot,
// and ConfigReboot reboots one node after the other.
const (
	ConfigNoReboot ConfigChanges = "NoReboot"
	ConfigStaged   ConfigChanges = "Staged"
	ConfigReboot   ConfigChanges = "Reboot"
)

// UpgradeOptions configures upgrades.
type UpgradeOptions struct {
	// Stops the upgrade of further nodes, and the replacement of further machines, while
	// true. Those that have begun finish. Setting it to false also retries failed nodes.
	// Default: false.
	// +optional
	Paused bool `json:"paused,omitempty"`
}

// ApprovalPolicy selects what needs approval.
// +kubebuilder:validation:Enum=creation;growth
type ApprovalPolicy string

// ApprovalCreation requires approval for the creation of the cluster. ApprovalGrowth
// also requires it for more machines, another pool or another template.
const (
	ApprovalCreation ApprovalPolicy = "creation"
	ApprovalGrowth   ApprovalPolicy = "growth"
)

// ApprovalOptions requires the approval of a ticketing system.
type ApprovalOptions struct {
	// What needs approval: creation (the first machines of the cluster) or growth (also
	// more machines, another pool, or another template).
	Policy ApprovalPolicy `json:"policy"`
}

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ProviderType is the kind of hypervisor.
// +kubebuilder:validation:Enum=kubevirt;proxmox
type ProviderType string

// The hypervisors that the stack knows.
const (
	ProviderKubeVirt ProviderType = "kubevirt"
	ProviderProxmox  ProviderType = "proxmox"
)

// ProviderPhase is the phase of a MachineProvider.
// +kubebuilder:validation:Enum=Pending;Ready;Failed;Offline
type ProviderPhase string

// Phases of a MachineProvider. Failed needs a change that the condition Ready names.
// The hypervisor of an Offline MachineProvider does not answer.
const (
	ProviderPending ProviderPhase = "Pending"
	ProviderReady   ProviderPhase = "Ready"
	ProviderFailed  ProviderPhase = "Failed"
	ProviderOffline ProviderPhase = "Offline"
)

// MachineProvider is a hypervisor on which Machines are created.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:resource:path=machineproviders,scope=Cluster,shortName=mp,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.type`
// +kubebuilder:printcolumn:name="Default",type=boolean,JSONPath=`.spec.default`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Machines",type=integer,JSONPath=`.status.machineCount`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.spec.endpoint.url`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MachineProvider struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineProviderSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status MachineProviderStatus `json:"status,omitempty,omitzero"`
}

// MachineProviderList is a list of MachineProviders.
//
// +kubebuilder:object:root=true
type MachineProviderList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineProvider `json:"items"`
}

// MachineProviderSpec says how to connect to the hypervisor, and has defaults for its
// Machines.
//
// +kubebuilder:validation:XValidation:rule="self.type == oldSelf.type",message="type cannot be changed: create another MachineProvider"
// +kubebuilder:validation:XValidation:rule="self.type != 'proxmox' || (has(self.endpoint) && has(self.endpoint.url) && has(self.credentialsRef))",message="type proxmox needs endpoint.url, for example https://pve1:8006, and credentialsRef"
// +kubebuilder:validation:XValidation:rule="self.type == 'proxmox' || !has(self.proxmox)",message="the block proxmox is only read for type proxmox: remove it"
// +kubebuilder:validation:XValidation:rule="self.type == 'kubevirt' || !has(self.kubevirt)",message="the block kubevirt is only read for type kubevirt: remove it"
type MachineProviderSpec struct {
	// Type of the hypervisor: kubevirt or proxmox.
	Type ProviderType `json:"type"`
	// Whether Machines without providerRef are created on this MachineProvider. Default:
	// false.
	// +optional
	Default bool `json:"default,omitempty"`
	// Readable name, for people who list MachineProviders. Default: metadata.name.
	// Example: Oslo, hall 2.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	DisplayName string `json:"displayName,omitempty"`
	// Region of the provider, for reports. Example: norway-east.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Region string `json:"region,omitempty"`
	// Availability zones of the provider, for reports. Example: [az1, az2].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Zones []string `json:"zones,omitempty"`
	// Endpoint of the hypervisor's API. Default: KubeVirt in this cluster.
	// +optional
	Endpoint *ProviderEndpoint `json:"endpoint,omitempty"`
	// Secret with the credentials. For proxmox its keys are tokenID and
	// tokenSecret, or username and password; for kubevirt in another cluster
	// kubeconfig; ca.crt may hold the authority of the endpoint.
	// +optional
	CredentialsRef *SecretReference `json:"credentialsRef,omitempty"`
	// Namespaces whose Machines may use this MachineProvider. A change does not affect
	// existing Machines. Default: all.
	// +optional
	AllowedNamespaces *AllowedNamespaces `json:"allowedNamespaces,omitempty"`
	// Whether another installation of the stack uses the same hypervisor. Then this
	// installation reports no orphans, because it cannot distinguish them from the
	// machines of the other installation. Default: false.
	// +optional
	Shared bool `json:"shared,omitempty"`
	// Defaults for Machines.
	// +optional
	Defaults *ProviderDefaults `json:"defaults,omitempty"`
	// +optional
	KubeVirt *KubeVirtOptions `json:"kubevirt,omitempty"`
	// +optional
	Proxmox *ProxmoxOptions `json:"proxmox,omitempty"`
}

// AllowedNamespaces are namespaces by name, and by their labels. A namespace is allowed by
// either; with neither, none is.
type AllowedNamespaces struct {
	// Namespaces by name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=1024
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	List []string `json:"list,omitempty"`
	// Namespaces by their labels.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn', 'Exists', 'DoesNotExist'] && (e.operator in ['In', 'NotIn']) == (has(e.values) && e.values.size() > 0))",message="each of matchExpressions has the operator In or NotIn with values, or Exists or DoesNotExist without"
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ProviderEndpoint is the address of an API.
type ProviderEndpoint struct {
	// For example https://pve1.example.com:8006. The chart's network policies let the stack connect
	// to another port if networkPolicy.proxmox.ports or networkPolicy.kubevirt.ports lists it.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule="isURL(self) && url(self).getScheme() == 'https'",message="write an https URL, for example https://pve1.example.com:8006"
	URL string `json:"url,omitempty"`
	// Authority that the endpoint's certificate is checked against, in PEM. Absent
	// means ca.crt of the credentials, or else the system's authorities.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	CABundle string `json:"caBundle,omitempty"`
	// Trusts any certificate. An attacker between this cluster and the endpoint can
	// then read the credentials.
	// +optional
	InsecureSkipVerify bool `json:"insecureSkipVerify,omitempty"`
	// Timeout of a call in seconds. Default: 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Namespace of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// ProviderDefaults are the defaults for machines that do not set these fields.
type ProviderDefaults struct {
	// StorageClass for kubevirt, storage for proxmox.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`
	// Bridge of the interfaces. Default: br0 for kubevirt and
	// vmbr0 for proxmox.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9._-]+$')",message="write the name of a bridge such as vmbr0: letters, digits, dots, dashes and underscores"
	Bridge string `json:"bridge,omitempty"`
	// Host that machines run on. Absent leaves the choice to the provider.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodeName string `json:"nodeName,omitempty"`
}

// KubeVirtOptions are options of a KubeVirt cluster.
type KubeVirtOptions struct {
	// CPU model that guests see. Default: host-model.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CPUModel string `json:"cpuModel,omitempty"`
}

// ProxmoxOptions are options of a Proxmox VE cluster.
//
// +kubebuilder:validation:XValidation:rule="!has(self.vmidStart) || !has(self.vmidEnd) || self.vmidStart <= self.vmidEnd",message="vmidStart comes after vmidEnd: exchange the two"
type ProxmoxOptions struct {
	// First VMID to use. Default: 10000.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999999999
	VMIDStart int32 `json:"vmidStart,omitempty"`
	// Last VMID to use. Default: 99999.
	// +optional
	// +kubebuilder:validation:Minimum=100
	// +kubebuilder:validation:Maximum=999999999
	VMIDEnd int32 `json:"vmidEnd,omitempty"`
	// Resource pool of the virtual machines. Default: none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Pool string `json:"pool,omitempty"`
	// CPU type of the guests. Default: x86-64-v2-AES.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	CPUType string `json:"cpuType,omitempty"`
	// Whether a machine that is cloned from a template shares the disk of the template.
	// Default: false.
	// +optional
	LinkedClone bool `json:"linkedClone,omitempty"`
	// Snippets that Machines may name in cloudInit.userData, because a snippet may hold
	// data of another team. Default: none. Example: [local:snippets/base.yaml].
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z][A-Za-z0-9._-]*:snippets/[A-Za-z0-9][A-Za-z0-9._-]*$`
	AllowedSnippets []string `json:"allowedSnippets,omitempty"`
}

// MachineProviderStatus is the observed state of the hypervisor.
type MachineProviderStatus struct {
	// +optional
	Phase ProviderPhase `json:"phase,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Version of the hypervisor.
	// +optional
	Version string `json:"version,omitempty"`
	// Hypervisor that has the virtual machines of the Machines. Absent until it was inspected, and where it
	// does not identify itself.
	// +optional
	Hypervisor *HypervisorIdentity `json:"hypervisor,omitempty"`
	// Hypervisor that the endpoint has led to since, although Machines have virtual machines on the other
	// one. While it is present, nothing is created, changed or deleted on either.
	// +optional
	OtherHypervisor *HypervisorIdentity `json:"otherHypervisor,omitempty"`
	// Number of Machines that use this MachineProvider.
	// +optional
	MachineCount int32 `json:"machineCount,omitempty"`
	// +optional
	Capacity *ProviderCapacity `json:"capacity,omitempty"`
	// Hosts of the provider, by name.
	// +optional
	// +listType=map
	// +listMapKey=name
	Nodes []ProviderNode `json:"nodes,omitempty"`
	// Virtual machines of the stack at the provider whose Machine does not exist, at most 100.
	// +optional
	// +listType=map
	// +listMapKey=id
	Orphans []Orphan `json:"orphans,omitempty"`
	// Number of orphans that two checks have found.
	// +optional
	OrphanCount int32 `json:"orphanCount,omitempty"`
	// When the next reconcile is due.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the provider, by type. Ready sums the others up, and its message says what to
	// do.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// HypervisorIdentity distinguishes a hypervisor from all others.
type HypervisorIdentity struct {
	// For proxmox the SHA-256 fingerprint of the authority of its cluster, /etc/pve/pve-root-ca.pem; for
	// kubevirt the UID of the namespace kube-system.
	ID string `json:"id"`
	// Endpoint at which the hypervisor was last inspected. Absent for KubeVirt in this cluster.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
}

// ProviderCapacity is the sum over all hosts that are up.
type ProviderCapacity struct {
	// CPUs of the hosts.
	CPU resource.Quantity `json:"cpu"`
	// Memory of the hosts.
	Memory resource.Quantity `json:"memory"`
	// Memory that is available for more machines.
	// +optional
	MemoryAvailable resource.Quantity `json:"memoryAvailable,omitempty,omitzero"`
}

// ProviderNode is one host of a hypervisor.
type ProviderNode struct {
	// Name of the host.
	Name string `json:"name"`
	// Whether the host accepts machines.
	Ready bool `json:"ready"`
	// CPUs of the host.
	// +optional
	CPU resource.Quantity `json:"cpu,omitempty,omitzero"`
	// Memory of the host.
	// +optional
	Memory resource.Quantity `json:"memory,omitempty,omitzero"`
	// CPUs that are busy, as the hypervisor measures it. Absent where it does not.
	// A change of less than a twentieth of the host is not written.
	// +optional
	CPUUsed *resource.Quantity `json:"cpuUsed,omitempty"`
	// Memory that is in use, in the same way.
	// +optional
	MemoryUsed *resource.Quantity `json:"memoryUsed,omitempty"`
}

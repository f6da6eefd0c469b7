package v1alpha1

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachinePhase is the phase of a Machine.
// +kubebuilder:validation:Enum=Pending;Creating;Running;Stopped;Failed;Deleting
type MachinePhase string

// Phases of a Machine. Pending waits for something else, for example its network;
// Creating creates the disks and the virtual machine. A change of the spec ends
// Failed.
const (
	MachinePending  MachinePhase = "Pending"
	MachineCreating MachinePhase = "Creating"
	MachineRunning  MachinePhase = "Running"
	MachineStopped  MachinePhase = "Stopped"
	MachineFailed   MachinePhase = "Failed"
	MachineDeleting MachinePhase = "Deleting"
)

// Machine is a virtual machine on the hypervisor that its MachineProvider names.
// Fields that cannot be changed in place can be changed until the virtual machine
// exists, so that a user can correct a mistake.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:resource:path=machines,scope=Namespaced,shortName=ma,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.ipAddresses[0]`
// +kubebuilder:printcolumn:name="Template",type=string,JSONPath=`.spec.template`
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=`.status.provider`
// +kubebuilder:printcolumn:name="Host",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="metadata.name becomes the name of the virtual machine and its host name: use at most 63 characters"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provider) || (has(self.spec.providerRef) == has(oldSelf.spec.providerRef) && (!has(self.spec.providerRef) || self.spec.providerRef == oldSelf.spec.providerRef))",message="providerRef cannot be changed any more: a machine does not move between hypervisors; delete it and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provider) || (!has(oldSelf.status.vmName) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason in ['NetworkConfigurationNotFound', 'NetworkNamespaceNotFound', 'NetworkNamespaceAmbiguous', 'NoNetworkNamespace'])) || (has(self.spec.networks) == has(oldSelf.spec.networks) && (!has(self.spec.networks) || self.spec.networks == oldSelf.spec.networks))",message="networks cannot be changed any more: delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.provider) || (!has(oldSelf.status.vmName) && has(oldSelf.status.conditions) && (oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason in ['NetworkConfigurationNotFound', 'NetworkNamespaceNotFound', 'NetworkNamespaceAmbiguous', 'NoNetworkNamespace']) || (oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason == 'ProviderUnavailable') && !oldSelf.status.conditions.exists(c, c.type == 'NetworkReady' && c.reason != 'NetworkFailed')))) || (has(self.spec.networkNamespaceName) == has(oldSelf.spec.networkNamespaceName) && (!has(self.spec.networkNamespaceName) || self.spec.networkNamespaceName == oldSelf.spec.networkNamespaceName))",message="networkNamespaceName cannot be changed any more: delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (!has(oldSelf.status.disks) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason in ['StorageClassNotFound', 'InsufficientResources', 'TooManyDisks'])) || !has(oldSelf.spec.disks) || oldSelf.spec.disks.all(o, (has(oldSelf.status.disks) && !(o.name in oldSelf.status.disks)) || (has(self.spec.disks) && self.spec.disks.exists(d, d.name == o.name)))",message="a disk cannot be removed once it exists, because its data would be lost: keep every disk of status.disks, or delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && (c.reason == 'DiskCannotGrow' || (c.reason == 'InsufficientResources' && !has(oldSelf.status.disks))))) || !has(oldSelf.spec.disks) || !has(self.spec.disks) || self.spec.disks.all(d, !has(d.size) || (has(oldSelf.status.disks) && !(d.name in oldSelf.status.disks)) || !oldSelf.spec.disks.exists(o, o.name == d.name && has(o.size) && quantity(o.size).isGreaterThan(quantity(d.size))))",message="a disk cannot shrink: write its old size or a larger one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (!has(oldSelf.status.disks) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.reason in ['StorageClassNotFound', 'InsufficientResources', 'TooManyDisks'])) || !has(oldSelf.spec.disks) || !has(self.spec.disks) || self.spec.disks.all(d, (has(oldSelf.status.disks) && !(d.name in oldSelf.status.disks)) || oldSelf.spec.disks.all(o, o.name != d.name || (has(o.storageClass) == has(d.storageClass) && (!has(o.storageClass) || o.storageClass == d.storageClass) && has(o.accessMode) == has(d.accessMode) && (!has(o.accessMode) || o.accessMode == d.accessMode) && has(o.volumeMode) == has(d.volumeMode) && (!has(o.volumeMode) || o.volumeMode == d.volumeMode))))",message="storageClass, accessMode and volumeMode of a disk cannot be changed once it exists: add another disk, or delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(self.spec.cloudInit) == has(oldSelf.spec.cloudInit) && (!has(self.spec.cloudInit) || self.spec.cloudInit == oldSelf.spec.cloudInit))",message="cloudInit cannot be changed any more: a guest reads it at its first start only; delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(self.spec.domain) == has(oldSelf.spec.domain) && (!has(self.spec.domain) || self.spec.domain == oldSelf.spec.domain))",message="domain cannot be changed any more: the guest is installed for the hardware that it has; delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(self.spec.bootOrder) == has(oldSelf.spec.bootOrder) && (!has(self.spec.bootOrder) || self.spec.bootOrder == oldSelf.spec.bootOrder))",message="bootOrder cannot be changed any more: list disk before cdrom and network, and an empty disk is passed over; delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(self.spec.nodeName) == has(oldSelf.spec.nodeName) && (!has(self.spec.nodeName) || self.spec.nodeName == oldSelf.spec.nodeName))",message="nodeName cannot be changed any more: a machine does not move between hosts; delete the machine and create a new one"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.vmName) || (has(self.spec.os) == has(oldSelf.spec.os) && (!has(self.spec.os) || self.spec.os == oldSelf.spec.os))",message="os cannot be changed any more: the disks are filled; delete the machine and create a new one"
type Machine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec MachineSpec `json:"spec"`
	// +kubebuilder:default={"observedGeneration":-1}
	Status MachineStatus `json:"status,omitempty,omitzero"`
}

// MachineList is a list of Machines.
//
// +kubebuilder:object:root=true
type MachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Machine `json:"items"`
}

// MachineSpec is the desired state of a machine. Its fields override those of the
// template.
//
// +kubebuilder:validation:XValidation:rule="has(self.template) || (has(self.resources) && has(self.resources.cpu) && has(self.resources.memory) && has(self.disks))",message="give template (small, medium, large or a MachineClass), or else resources.cpu, resources.memory and disks"
// +kubebuilder:validation:XValidation:rule="!has(self.disks) || self.disks.all(d, has(d.size) || (has(self.template) && (d.name == 'root' || !(self.template in ['small', 'medium', 'large']))))",message="every disk needs a size, for example 20Gi; only a disk of the template, such as root, may leave it out"
// +kubebuilder:validation:XValidation:rule="!has(self.networks) || !has(self.networkNamespaceName)",message="networkNamespaceName is for machines without networks: leave it out, the NetworkConfigurations in networks name theirs"
type MachineSpec struct {
	// Size to start from: small (1 core, 2Gi, 20Gi disk), medium (2 cores, 4Gi,
	// 40Gi disk), large (4 cores, 8Gi, 80Gi disk) or the name of a MachineClass
	// (kubectl get machineclasses). Example: medium.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == '' || self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="write small, medium, large or the name of a MachineClass: lower case letters, digits and -"
	Template string `json:"template,omitempty"`
	// MachineProvider that creates the machine. Default: the only MachineProvider, or
	// the one with spec.default.
	// +optional
	ProviderRef *ProviderReference `json:"providerRef,omitempty"`
	// +optional
	Resources *MachineResources `json:"resources,omitempty"`
	// Disks of the machine. They are merged by name with those of the template.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Disks []MachineDisk `json:"disks,omitempty"`
	// Network interfaces. Default: one interface, eth0, in the network that
	// networkNamespaceName names.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Networks []MachineNetwork `json:"networks,omitempty"`
	// NetworkNamespace of a machine without networks. Default: the only
	// NetworkNamespace of the namespace.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	NetworkNamespaceName string `json:"networkNamespaceName,omitempty"`
	// Devices to boot from, in order. Example: [disk, network].
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, b == a))",message="name every device once"
	BootOrder []BootDevice `json:"bootOrder,omitempty"`
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`
	// +optional
	Domain *MachineDomain `json:"domain,omitempty"`
	// Operating system to boot. Default: empty disks.
	// +optional
	OS *MachineOS `json:"os,omitempty"`
	// Desired power state: Running or Stopped. Default: Running.
	// +optional
	// +kubebuilder:default=Running
	PowerState PowerState `json:"powerState,omitempty"`
	// Restarts the machine once for each new value. Example: 2026-11-24T10:00:00Z.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	RestartToken string `json:"restartToken,omitempty"`
	// Host of the hypervisor to run on. Default: the MachineProvider chooses.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	NodeName string `json:"nodeName,omitempty"`
	// Refuses every deletion of the Machine while true: set it to false before you delete.
	// A deletion that has already begun waits. Default: false. Example: true.
	// +optional
	Protected bool `json:"protected,omitempty"`
}

// PowerState is the desired power state of a machine.
// +kubebuilder:validation:Enum=Running;Stopped
type PowerState string

// The two power states.
const (
	PowerRunning PowerState = "Running"
	PowerStopped PowerState = "Stopped"
)

// ProviderReference names a MachineProvider.
type ProviderReference struct {
	// Name of a MachineProvider. Example: kubevirt.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MachineResources override those of the template, field by field.
type MachineResources struct {
	// +optional
	CPU *MachineCPU `json:"cpu,omitempty"`
	// +optional
	Memory *MachineMemory `json:"memory,omitempty"`
}

// MachineCPU is the processor. The number of CPUs that the guest sees is the
// product of the three.
type MachineCPU struct {
	// Cores of each socket.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=512
	Cores int32 `json:"cores,omitempty"`
	// Threads of each core.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Threads int32 `json:"threads,omitempty"`
	// Number of CPU sockets. The machine has sockets × cores × threads CPUs. Default: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Sockets int32 `json:"sockets,omitempty"`
}

// MachineMemory is the memory that the guest sees.
type MachineMemory struct {
	// Amount of memory. Example: 4Gi.
	Size Size `json:"size"`
}

// Size is an amount of bytes, for example 20Gi. It has no exponent: to read
// 1e-999999999 takes hours. A size below 1Mi has lost its unit.
//
// +kubebuilder:validation:MaxLength=24
// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9.]+([kMGTPE]|[KMGTPE]i)?$') && isQuantity(self) && !quantity(self).isLessThan(quantity('1Mi')) && quantity(self).isLessThan(quantity('1Ei'))",message="write a size with its unit, at least 1Mi and below 1Ei, for example 20Gi"
type Size string

var (
	units    = []string{"", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	tooLarge = resource.MustParse("1Ei")
)

// Quantity is the size as a number whose bytes fit into an int64. The API server
// rejects every other text.
func (s Size) Quantity() (resource.Quantity, error) {
	if unit := strings.TrimLeft(string(s), "0123456789."); !slices.Contains(units, unit) {
		return resource.Quantity{}, fmt.Errorf("size %q has no unit that is known: write one such as 20Gi", s)
	}
	q, err := resource.ParseQuantity(string(s))
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("parse size %q: %w", s, err)
	}
	if q.Cmp(tooLarge) >= 0 {
		return resource.Quantity{}, fmt.Errorf("size %q is too large: write one below 1Ei", s)
	}
	return q, nil
}

// MachineDisk is a disk. It overrides the disk of the template that has the same name,
// field by field.
type MachineDisk struct {
	// Name of the disk, unique in the machine. The disk named root is the one that the machine
	// boots from.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only, for example data"
	// +kubebuilder:validation:XValidation:rule="!(self in ['cloudinitdisk', 'cdrom', 'cloudinit'])",message="the stack keeps that name for itself: choose another"
	Name string `json:"name"`
	// Size of the disk. Default: the size in the template. Example: 20Gi.
	// +optional
	Size Size `json:"size,omitempty"`
	// StorageClass on KubeVirt, storage on Proxmox VE. Absent or default selects the
	// default of the MachineProvider, or else the default StorageClass.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	StorageClass string `json:"storageClass,omitempty"`
	// Access mode of the disk. Proxmox VE supports ReadWriteOnce only. Default:
	// ReadWriteOnce.
	// +optional
	AccessMode DiskAccessMode `json:"accessMode,omitempty"`
	// Volume mode of the disk. On Proxmox VE the storage determines it. Default:
	// Filesystem.
	// +optional
	VolumeMode DiskVolumeMode `json:"volumeMode,omitempty"`
}

// DiskAccessMode is how many hosts may use a disk at the same time.
// +kubebuilder:validation:Enum=ReadWriteOnce;ReadWriteMany;ReadOnlyMany
type DiskAccessMode string

// DiskVolumeMode is how a disk is stored: in a filesystem, or as a block device.
// +kubebuilder:validation:Enum=Filesystem;Block
type DiskVolumeMode string

// BootDevice is a kind of device to boot from.
// +kubebuilder:validation:Enum=disk;network;cdrom
type BootDevice string

// The devices to boot from.
const (
	BootDisk    BootDevice = "disk"
	BootNetwork BootDevice = "network"
	BootCDROM   BootDevice = "cdrom"
)

// MachineNetwork is a network interface.
type MachineNetwork struct {
	// Name of the interface, for example eth0.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="use lower case letters, digits and - only, for example eth0"
	Name string `json:"name"`
	// NetworkConfiguration of the interface, in the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NetworkName string `json:"networkName"`
	// Model of the network card. Default: virtio.
	// +optional
	Model NICModel `json:"model,omitempty"`
	// MAC address of the interface. Default: derived from the UID of the Machine.
	// +optional
	MACAddress MACAddress `json:"macAddress,omitempty"`
}

// NICModel is the network card that the guest sees.
// +kubebuilder:validation:Enum=virtio;e1000;rtl8139
type NICModel string

// CloudInit is the guest's first configuration.
//
// +kubebuilder:validation:XValidation:rule="has(self.userData) || has(self.networkData) || has(self.secretRef)",message="give userData, networkData or secretRef, or leave cloudInit out"
type CloudInit struct {
	// User data, for example a #cloud-config document. secretRef overrides it.
	// +optional
	// +kubebuilder:validation:MaxLength=524288
	UserData string `json:"userData,omitempty"`
	// Network configuration of cloud-init, version 1 or 2. Default: the allocated
	// addresses if they are static, and otherwise DHCP.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	NetworkData string `json:"networkData,omitempty"`
	// Secret, in the same namespace, that holds the user data. It needs the label
	// vitistack.io/cloud-init=true.
	// +optional
	SecretRef *CloudInitSecretReference `json:"secretRef,omitempty"`
}

// CloudInitSecretReference is a key of a Secret.
type CloudInitSecretReference struct {
	// Name of the Secret, in the namespace of the Machine.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key of the Secret that holds the user data. Default: userdata.
	// +kubebuilder:default=userdata
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// MachineOS is the operating system to boot.
//
// +kubebuilder:validation:XValidation:rule="!has(self.imageID) || !has(self.isoUri)",message="give imageID for a disk image or isoUri for an installer, not both"
type MachineOS struct {
	// Family of the operating system. Example: linux.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Family string `json:"family,omitempty"`
	// Distribution of the operating system. Example: talos.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Distribution string `json:"distribution,omitempty"`
	// Version of the operating system. Examples: 24.04, 1.13.3.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version,omitempty"`
	// Architecture of the operating system. Example: amd64.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Architecture string `json:"architecture,omitempty"`
	// Disk image that is copied to the disk root, or to the first disk if no disk has
	// that name: a URL, or on Proxmox VE the VMID or name of a template. Example:
	// https://images.example.com/ubuntu-24.04.qcow2.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ImageID string `json:"imageID,omitempty"`
	// Installer image in the CD drive: a URL on KubeVirt, a volume on Proxmox VE.
	// Example: local:iso/talos.iso.
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	ISOURI string `json:"isoUri,omitempty"`
}

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MachineClass is a size of machines, which the platform team creates. spec.template of a Machine, and
// template of a pool of a KubernetesCluster, name it beside the built-in small, medium and large.
//
// A virtual machine keeps the size that it was created with: status.template of its Machine holds a copy.
// So a MachineClass can be deleted while machines use it, and one that is created again under the same
// name counts for new virtual machines only.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=machineclasses,scope=Cluster,shortName=mcl,categories={vitistack,viti}
// +kubebuilder:printcolumn:name="CPU",type=integer,JSONPath=`.spec.resources.cpu.cores`,description="cores of each socket"
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resources.memory.size`
// +kubebuilder:printcolumn:name="Disk",type=string,JSONPath=`.spec.disks[?(@.name=="root")].size`,description="size of the disk root"
// +kubebuilder:printcolumn:name="Sockets",type=integer,JSONPath=`.spec.resources.cpu.sockets`,priority=1
// +kubebuilder:printcolumn:name="Threads",type=integer,JSONPath=`.spec.resources.cpu.threads`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="!(self.metadata.name in ['small', 'medium', 'large'])",message="small, medium and large are built in: choose another name"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && self.metadata.name.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?$')",message="metadata.name is written into template of machines and pools: use at most 63 lower case letters, digits and -, for example gpu-xl"
type MachineClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a MachineClass cannot be changed: create another MachineClass and name it in template"
	Spec MachineClassSpec `json:"spec"`
}

// MachineClassList is a list of MachineClasses.
//
// +kubebuilder:object:root=true
type MachineClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineClass `json:"items"`
}

// MachineClassSpec is a size. Its fields are those of a Machine, which overrides them field by field.
//
// +kubebuilder:validation:XValidation:rule="has(self.resources.cpu) && has(self.resources.cpu.cores)",message="resources.cpu.cores is missing: write a number of cores, for example 8"
// +kubebuilder:validation:XValidation:rule="has(self.resources.memory)",message="resources.memory.size is missing: write an amount of memory, for example 32Gi"
// +kubebuilder:validation:XValidation:rule="self.disks.exists(d, d.name == 'root')",message="the disk root is missing, from which machines boot: write {name: root, size: 100Gi} into disks"
// +kubebuilder:validation:XValidation:rule="self.disks.all(d, has(d.size))",message="every disk needs a size, for example 100Gi"
type MachineClassSpec struct {
	// CPU and memory. Default of cpu.sockets and cpu.threads: 1.
	// Example: {cpu: {cores: 8}, memory: {size: 32Gi}}.
	Resources MachineResources `json:"resources"`
	// Disks, with a size each. The disk root is required. Default of storageClass: the default of the
	// MachineProvider. Example: [{name: root, size: 100Gi}].
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Disks []MachineDisk `json:"disks"`
}

// RootDisk is the name of the disk that every MachineClass has. The machine boots from it.
const RootDisk = "root"

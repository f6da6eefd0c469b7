package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineStatus is the observed state of a machine.
type MachineStatus struct {
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// metadata.generation from which this status was computed.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MachineProvider of the machine.
	// +optional
	Provider string `json:"provider,omitempty"`
	// ID of the virtual machine at its provider. Example: proxmox://pve1/10000.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// Template whose size the virtual machine has. The machine keeps it while spec.template
	// names no size that exists, and if its MachineClass is deleted.
	// +optional
	Template *MachineTemplate `json:"template,omitempty"`
	// Name of the virtual machine.
	// +optional
	VMName string `json:"vmName,omitempty"`
	// Name of the running instance of the virtual machine.
	// +optional
	VMIName string `json:"vmiName,omitempty"`
	// Allocated addresses, in the order of the interfaces.
	// +optional
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`
	// Names of the disks that the virtual machine has. A disk of the spec that is not
	// among them does not exist yet: it can be changed and removed.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Disks []string `json:"disks,omitempty"`
	// Host that runs the virtual machine.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Last value of spec.restartToken that restarted the machine.
	// +optional
	RestartToken string `json:"restartToken,omitempty"`
	// Task in progress at the provider.
	// +optional
	Task *ProviderTask `json:"task,omitempty"`
	// When this status last changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// resourceVersion of the Machine from which this status was computed.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Number of consecutive failed attempts since the last change of the spec. The delay
	// between two attempts doubles with each failure, up to one minute.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// When the next reconcile is due if no event arrives earlier; after a failure, the
	// time of the next attempt.
	// +optional
	NextCheckTime *metav1.Time `json:"nextCheckTime,omitempty"`
	// Conditions of the machine, by type. Ready sums the others up, and its message says what to
	// do.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineTemplate is the template of a virtual machine, with a copy of its MachineClass.
type MachineTemplate struct {
	// Value of spec.template.
	Name string `json:"name"`
	// Spec of the MachineClass. It is absent for small, medium and large.
	// +optional
	MachineClass *MachineClassSpec `json:"machineClass,omitempty"`
}

// Classes returns the MachineClass that the template has a copy of, and none for a built-in template.
func (t *MachineTemplate) Classes() []MachineClass {
	if t.MachineClass == nil {
		return nil
	}
	return []MachineClass{{ObjectMeta: metav1.ObjectMeta{Name: t.Name}, Spec: *t.MachineClass}}
}

// ProviderTask is work that a provider does in the background.
type ProviderTask struct {
	// ID of the task at the provider.
	ID string `json:"id"`
	// What the task does: create, clone, start, stop, resize or delete.
	Action string `json:"action"`
}

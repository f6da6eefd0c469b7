package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MachineStatus is the machine as it is.
type MachineStatus struct {
	// +optional
	Phase MachinePhase `json:"phase,omitempty"`
	// Generation of the spec that this status answers.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MachineProvider that makes the machine.
	// +optional
	Provider string `json:"provider,omitempty"`
	// Name of the machine at its provider, for example proxmox://pve1/10000.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// Name of the virtual machine.
	// +optional
	VMName string `json:"vmName,omitempty"`
	// Name of the running instance of the virtual machine.
	// +optional
	VMIName string `json:"vmiName,omitempty"`
	// Addresses that layer 2 gave, in the order of the interfaces.
	// +optional
	// +listType=atomic
	IPAddresses []string `json:"ipAddresses,omitempty"`
	// Host that runs the virtual machine.
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// Last value of spec.restartToken that was obeyed.
	// +optional
	RestartToken string `json:"restartToken,omitempty"`
	// What the provider is doing at the moment, to be looked up again.
	// +optional
	Task *ProviderTask `json:"task,omitempty"`
	// When this status last changed.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`
	// resourceVersion of the Machine that this status was decided on.
	// +optional
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Number of failed attempts in a row since the spec last changed. The time between two attempts doubles with each of them,
	// up to a minute.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// When to look again at something that tells nobody when it is done, and after a failure when the next attempt is.
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

// ProviderTask is work that a provider does in the background.
type ProviderTask struct {
	// Name of the task at the provider.
	ID string `json:"id"`
	// What the task does: create, clone, start, stop, resize or delete.
	Action string `json:"action"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Orphan is something that the stack made at a backend for an object that does not exist.
type Orphan struct {
	// Where the backend has it. Example: pve1/10001.
	ID string `json:"id"`
	// Name at the backend.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the object that it was made for.
	UID string `json:"uid"`
	// When a check first found it.
	FirstSeen metav1.Time `json:"firstSeen"`
	// Whether a later check has found it again. Until then its object may just be on its way.
	// +optional
	Confirmed bool `json:"confirmed,omitempty"`
}

package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConfigMapOrphans is the ConfigMap in the stack's namespace that holds an OrphanReport, as JSON,
// of each backend that no object stands for. Its keys are the backends.
const ConfigMapOrphans = "orphans"

// The keys of the ConfigMap orphans.
const (
	OrphansInKea    = "kea"
	OrphansInNetBox = "netbox"
	OrphansInLeases = "leases"
)

// OrphanReport is what the checks for orphans at a backend have shown.
type OrphanReport struct {
	// At most 100.
	Orphans []Orphan `json:"orphans,omitempty"`
	// Names those that two checks have found, and says how to remove them.
	Message string `json:"message,omitempty"`
}

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

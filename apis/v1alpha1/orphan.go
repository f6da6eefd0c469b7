package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConfigMapOrphans is the ConfigMap in the stack's namespace that holds an OrphanReport, as JSON,
// of each backend without an object of its own (Kea, NetBox, Leases). Its keys are the backends.
const ConfigMapOrphans = "orphans"

// The keys of the ConfigMap orphans.
const (
	OrphansInKea    = "kea"
	OrphansInNetBox = "netbox"
	OrphansInLeases = "leases"
)

// OrphanReport is the result of the checks for orphans at a backend.
type OrphanReport struct {
	// Orphans at the backend, at most 100.
	Orphans []Orphan `json:"orphans,omitempty"`
	// Names the orphans that two checks have found, and says how to remove them.
	Message string `json:"message,omitempty"`
}

// Orphan is a resource at a backend that the stack created for an object that does not
// exist.
type Orphan struct {
	// ID at the backend. Example: pve1/10001.
	ID string `json:"id"`
	// Name at the backend.
	// +optional
	Name string `json:"name,omitempty"`
	// UID of the object for which it was created.
	UID string `json:"uid"`
	// When a check first found it.
	FirstSeen metav1.Time `json:"firstSeen"`
	// Whether a second check has found it again. Until then its object may be about to be
	// created.
	// +optional
	Confirmed bool `json:"confirmed,omitempty"`
}

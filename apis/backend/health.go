package backend

import (
	"strings"
	"time"
)

// Health is whether a server of a backend does its work.
type Health string

// The values of Health. Of a backend with several servers, degraded says that some of them do not work.
const (
	// Healthy is a server that answers.
	Healthy  Health = "healthy"
	Degraded Health = "degraded"
	// Unhealthy is a server that answers and cannot be used: it refuses the credentials, or is another program.
	Unhealthy Health = "unhealthy"
	// Unreachable is a server that does not answer: it refuses, is not found, or hangs.
	Unreachable Health = "unreachable"
)

// outages are the reasons of conditions for which the backend itself is the cause, with its health. No spec that a requester
// can write leads to one of them.
var outages = map[string]Health{
	"KeaUnavailable":      Unreachable,
	"KeaUnauthorized":     Unhealthy,
	"KeaUntrusted":        Unhealthy,
	"KeaNotAllowed":       Unhealthy,
	"KeaUnexpectedAnswer": Unhealthy,
	"KeaUnsupported":      Unhealthy,
	"KeaNotPersisted":     Unhealthy,

	"SourceUnavailable":      Unreachable,
	"SourceUnauthorized":     Unhealthy,
	"SourceUntrusted":        Unhealthy,
	"SourceNotAllowed":       Unhealthy,
	"SourceNotFound":         Unhealthy,
	"SourceUnexpectedAnswer": Unhealthy,

	"ProviderUnavailable":  Unreachable,
	"Unreachable":          Unreachable,
	"CredentialsInvalid":   Unhealthy,
	"EndpointUntrusted":    Unhealthy,
	"KubeVirtNotInstalled": Unhealthy,

	"ClusterUnreachable": Unreachable,
}

// OutageOf returns the health of a backend that an object's reason shows, and false for a reason that says nothing about the
// backend, such as one that a requester resolves.
func OutageOf(reason string) (Health, bool) {
	h, ok := outages[reason]
	return h, ok
}

// OutageReasons returns every reason for which OutageOf returns true, in no order.
func OutageReasons() (all []string) {
	for reason := range outages {
		all = append(all, reason)
	}
	return all
}

// ConfigMapBackends is the ConfigMap in the stack's namespace that has a Report, as JSON, of each server of a backend. Its keys are
// those of ReportKey.
const ConfigMapBackends = "backends"

// Report is what the functions have last seen of one server of a backend.
type Report struct {
	Health Health `json:"health"`
	// Reason and Message say why the server is not healthy.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Since is when Health last changed.
	Since time.Time `json:"since"`
	// LastSeen is when the server last answered. It is written at most once a minute while the server is healthy, and is zero
	// for a server that has never answered.
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// ReportKey returns the key of a server's Report. kind is the name of a Kind. instance is the role of one server of several, or the
// name of a MachineProvider, and is empty for the only server of a kind.
func ReportKey(kind, instance string) string {
	if instance == "" {
		return kind
	}
	return kind + "." + instance
}

// ParseReportKey returns the kind and the instance in a key.
func ParseReportKey(key string) (kind, instance string) {
	kind, instance, _ = strings.Cut(key, ".")
	return kind, instance
}

package events

import "embed"

// Schemas has a JSON Schema for the data of each type with data of its own, in
// schemas/<type>.json. Incoming events are validated against it before they
// enter the Broker.
//
//go:embed schemas/*.json
var Schemas embed.FS

// Examples has a complete event in structured mode for each schema, in
// examples/<type>.json.
//
//go:embed examples/*.json
var Examples embed.FS

// NewData returns an empty value of the Go type of a type's data, and false for
// types without data of their own.
func NewData(eventType string) (any, bool) {
	switch eventType {
	case TypeNetworkRequested:
		return new(NetworkRequested), true
	case TypeNetworkProvisioned:
		return new(NetworkProvisioned), true
	case TypeNetworkFailed:
		return new(NetworkFailed), true
	case TypeNetworkReleased:
		return new(NetworkReleased), true
	case TypeWorkorderRequested:
		return new(WorkorderRequested), true
	case TypeWorkorderApproved:
		return new(WorkorderApproved), true
	case TypeWorkorderRejected:
		return new(WorkorderRejected), true
	case TypeMachineCreated:
		return new(MachineCreated), true
	case TypeMachineDeleted:
		return new(MachineDeleted), true
	case TypeClusterUpdated:
		return new(ClusterUpdated), true
	case TypeOperatorStatus:
		return new(OperatorStatus), true
	case TypeNetworkConfigured:
		return new(NetworkConfigured), true
	default:
		return nil, false
	}
}

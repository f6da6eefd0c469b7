// Package events is the vocabulary of the pipeline and the runtime of its
// functions: which CloudEvents there are, what they carry, and how a function
// receives one and answers.
package events

import "time"

// Types of the events that the Kubernetes API server's changes become, and of
// those that ask to look at an object again. All that matters of most is in the
// attributes: see Ref. For kinds that have nothing to hide, the data of a change is
// the object as it was then: see Carried.
const (
	TypeRefAdd    = "dev.knative.apiserver.ref.add"
	TypeRefUpdate = "dev.knative.apiserver.ref.update"
	TypeRefDelete = "dev.knative.apiserver.ref.delete"
	TypeAdd       = "dev.knative.apiserver.resource.add"
	TypeUpdate    = "dev.knative.apiserver.resource.update"
	TypeDelete    = "dev.knative.apiserver.resource.delete"
	// TypeResync comes from the function resync for each object that is not
	// settled.
	TypeResync = "io.vitistack.resync"
	// TypeResyncRequested comes from the gateway and asks the function resync for a
	// round, because an object is due.
	TypeResyncRequested = "io.vitistack.resync.requested"
	// TypePing comes from the PingSource and asks the function resync for a full round.
	TypePing = "dev.knative.sources.ping"
)

// Types of the conversation with an external IPAM about a network segment.
const (
	TypeNetworkRequested   = "io.vitistack.network.requested"
	TypeNetworkProvisioned = "io.vitistack.network.provisioned"
	TypeNetworkFailed      = "io.vitistack.network.failed"
	TypeNetworkReleased    = "io.vitistack.network.released"
)

// Types of the conversation with a ticketing system about a cluster.
const (
	TypeWorkorderRequested = "io.vitistack.workorder.requested"
	TypeWorkorderApproved  = "io.vitistack.workorder.approved"
	TypeWorkorderRejected  = "io.vitistack.workorder.rejected"
)

// Types of the domain events that the gateway announces.
const (
	TypeMachineCreated    = "infrastructure.machine.created"
	TypeMachineDeleted    = "infrastructure.machine.deleted"
	TypeClusterUpdated    = "infrastructure.cluster.updated"
	TypeOperatorStatus    = "infrastructure.operator.status"
	TypeNetworkConfigured = "infrastructure.network.configured"
)

// Object is the identity of a Kubernetes object. Its UID tells it from an
// earlier object of the same name.
type Object struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// NetworkRequested asks an external IPAM for a segment. The same request, known
// by its UID, may come again; the answer then has to be the same segment.
type NetworkRequested struct {
	Object
	// Provider is the name that the NetworkNamespace selected the IPAM by.
	Provider             string            `json:"provider"`
	DatacenterIdentifier string            `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier string            `json:"supervisorIdentifier,omitempty"`
	Parameters           map[string]string `json:"parameters,omitempty"`
}

// NetworkProvisioned is an external IPAM's answer: the segment is there.
type NetworkProvisioned struct {
	// UID is the one of the request.
	UID string `json:"uid"`
	// Provider, where it is given, has to be the one of the request.
	Provider string `json:"provider,omitempty"`
	// ID is the name of the segment at the IPAM.
	ID           string `json:"id,omitempty"`
	IPv4Prefix   string `json:"ipv4Prefix,omitempty"`
	IPv4Gateway  string `json:"ipv4Gateway,omitempty"`
	IPv4EgressIP string `json:"ipv4EgressIp,omitempty"`
	IPv6Prefix   string `json:"ipv6Prefix,omitempty"`
	IPv6Gateway  string `json:"ipv6Gateway,omitempty"`
	IPv6EgressIP string `json:"ipv6EgressIp,omitempty"`
	// VLANID is from 0, meaning untagged, to 4094.
	VLANID int32    `json:"vlanId,omitempty"`
	DNS    []string `json:"dns,omitempty"`
}

// NetworkFailed is an external IPAM's answer: the segment cannot be had.
type NetworkFailed struct {
	// UID is the one of the request.
	UID string `json:"uid"`
	// Provider, where it is given, has to be the one of the request.
	Provider string `json:"provider,omitempty"`
	// Reason is one word in CamelCase, for example NoFreePrefix.
	Reason string `json:"reason"`
	// Message says what to change.
	Message string `json:"message"`
}

// NetworkReleased tells an external IPAM that nobody uses the segment any more.
type NetworkReleased struct {
	Object
	Provider string `json:"provider"`
	// ID is the one that the IPAM gave.
	ID         string `json:"id,omitempty"`
	IPv4Prefix string `json:"ipv4Prefix,omitempty"`
	IPv6Prefix string `json:"ipv6Prefix,omitempty"`
}

// WorkorderRequested asks a ticketing system whether a cluster may be made, or
// changed, as described.
type WorkorderRequested struct {
	Object
	// Workorder is the work order that the cluster names.
	Workorder string `json:"workorder"`
	// Generation is the generation of the cluster that is to be approved.
	Generation  int64  `json:"generation"`
	ClusterID   string `json:"clusterId,omitempty"`
	Environment string `json:"environment,omitempty"`
	Project     string `json:"project,omitempty"`
	Workspace   string `json:"workspace,omitempty"`
	// Version is the Kubernetes version.
	Version       string `json:"version"`
	ControlPlanes int32  `json:"controlPlanes"`
	Workers       int32  `json:"workers"`
}

// WorkorderApproved is a ticketing system's answer: go ahead.
type WorkorderApproved struct {
	// UID and Generation are those of the request.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// By is who decided.
	By      string `json:"by"`
	Comment string `json:"comment,omitempty"`
}

// WorkorderRejected is a ticketing system's answer: don't.
type WorkorderRejected struct {
	// UID and Generation are those of the request.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// By is who decided.
	By string `json:"by"`
	// Reason is shown to the owner of the cluster.
	Reason string `json:"reason"`
}

// MachineCreated announces a machine that runs for the first time.
type MachineCreated struct {
	Object
	Cluster     string    `json:"cluster,omitempty"`
	Provider    string    `json:"provider,omitempty"`
	Template    string    `json:"template,omitempty"`
	NodeName    string    `json:"nodeName,omitempty"`
	IPAddresses []string  `json:"ipAddresses,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// MachineDeleted announces that a machine is gone.
type MachineDeleted struct {
	Object
	Cluster string            `json:"cluster,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// ClusterUpdated announces what has changed in a cluster's specification or
// phase.
type ClusterUpdated struct {
	Object
	Changes []Change `json:"changes"`
}

// Change is one field that has another value than before. From is absent where
// the field is new, To where it is gone.
type Change struct {
	// Path is a JSON pointer, for example /spec/topology/workers/0/replicas.
	Path string `json:"path"`
	From any    `json:"from,omitempty"`
	To   any    `json:"to,omitempty"`
}

// OperatorStatus announces that a layer's health has changed.
type OperatorStatus struct {
	// Operator is proxmox, talos, kea or kubevirt.
	Operator string `json:"operator"`
	// Status is healthy, degraded, unhealthy or unreachable.
	Status   string `json:"status"`
	Previous string `json:"previous,omitempty"`
	Message  string `json:"message,omitempty"`
}

// NetworkConfigured announces that every interface of a machine has its
// addresses.
type NetworkConfigured struct {
	Object
	NetworkNamespace string             `json:"networkNamespace,omitempty"`
	Interfaces       []NetworkInterface `json:"interfaces"`
}

// NetworkInterface is one configured interface.
type NetworkInterface struct {
	Name       string   `json:"name"`
	MACAddress string   `json:"macAddress"`
	Addresses  []string `json:"addresses"`
}

// Package events defines the CloudEvents of the stack, and the runtime in which functions
// receive and answer them.
package events

import "time"

// Types of events about changes in the Kubernetes API, and of requests for a reconcile.
// Their attributes name the object: see Ref. For kinds without secrets, the data of a
// change is the object at that time: see ObjectFrom.
const (
	TypeRefAdd    = "dev.knative.apiserver.ref.add"
	TypeRefUpdate = "dev.knative.apiserver.ref.update"
	TypeRefDelete = "dev.knative.apiserver.ref.delete"
	TypeAdd       = "dev.knative.apiserver.resource.add"
	TypeUpdate    = "dev.knative.apiserver.resource.update"
	TypeDelete    = "dev.knative.apiserver.resource.delete"
	// TypeResync comes from the function resync for each object that needs a
	// reconcile.
	TypeResync = "io.vitistack.resync"
	// SourceNodeEvents is the source of the TypeResync that the gateway sends for a KubernetesCluster because one of its
	// nodes has reported a change.
	SourceNodeEvents = "/gateway/nodeevents"
	// TypeResyncRequested comes from the gateway and requests that the function resync
	// reconciles what is due. Its data is ResyncRequested.
	TypeResyncRequested = "io.vitistack.resync.requested"
	// TypeResyncContinued comes from the function resync and requests the next slice of a
	// round that it runs.
	TypeResyncContinued = "io.vitistack.resync.continued"
	// TypePing comes from the PingSource and requests a full round of the function resync.
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

// IsRequest reports whether functions send events of a type to external systems.
func IsRequest(eventType string) bool {
	return eventType == TypeNetworkRequested || eventType == TypeNetworkReleased || eventType == TypeWorkorderRequested
}

// IsAnswer reports whether external systems send events of a type, which the gateway signs.
func IsAnswer(eventType string) bool {
	return eventType == TypeNetworkProvisioned || eventType == TypeNetworkFailed || eventType == TypeWorkorderApproved || eventType == TypeWorkorderRejected
}

// Types of the domain events that the gateway announces.
const (
	TypeMachineCreated    = "infrastructure.machine.created"
	TypeMachineDeleted    = "infrastructure.machine.deleted"
	TypeClusterUpdated    = "infrastructure.cluster.updated"
	TypeOperatorStatus    = "infrastructure.operator.status"
	TypeNetworkConfigured = "infrastructure.network.configured"
)

// Types are all types of the events of the stack.
var Types = []string{
	TypeRefAdd, TypeRefUpdate, TypeRefDelete, TypeAdd, TypeUpdate, TypeDelete, TypeResync, TypeResyncRequested, TypeResyncContinued, TypePing,
	TypeNetworkRequested, TypeNetworkProvisioned, TypeNetworkFailed, TypeNetworkReleased, TypeWorkorderRequested, TypeWorkorderApproved, TypeWorkorderRejected,
	TypeMachineCreated, TypeMachineDeleted, TypeClusterUpdated, TypeOperatorStatus, TypeNetworkConfigured,
}

// ResyncRequested names the objects that are due. Without objects they are too many to name, and resync
// reads all that exist.
type ResyncRequested struct {
	Objects []DueObject `json:"objects,omitempty"`
}

// DueObject is an object that the gateway has found due. Namespace is empty for cluster-scoped objects.
type DueObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Object identifies a Kubernetes object. Its UID distinguishes it from an earlier object of
// the same name.
type Object struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// NetworkRequested requests a segment from an external IPAM. A request with the same UID may
// arrive again, and has to be answered with the same segment.
type NetworkRequested struct {
	Object
	// Provider is the name of the IPAM in spec.networkProvisioning.provider.
	Provider             string            `json:"provider"`
	DatacenterIdentifier string            `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier string            `json:"supervisorIdentifier,omitempty"`
	Parameters           map[string]string `json:"parameters,omitempty"`
}

// NetworkProvisioned is the answer of an external IPAM that has provisioned a segment.
type NetworkProvisioned struct {
	// UID is that of the request.
	UID string `json:"uid"`
	// Provider is optional, and has to be that of the request.
	Provider string `json:"provider,omitempty"`
	// ID identifies the segment at the IPAM.
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

// NetworkFailed is the answer of an external IPAM that cannot provision a segment.
type NetworkFailed struct {
	// UID is that of the request.
	UID string `json:"uid"`
	// Provider is optional, and has to be that of the request.
	Provider string `json:"provider,omitempty"`
	// Reason is one word in CamelCase, for example NoFreePrefix.
	Reason string `json:"reason"`
	// Message says what to change.
	Message string `json:"message"`
}

// NetworkReleased informs an external IPAM that a segment is unused. UID and Provider identify the segment: the rest
// is empty for a network that no longer exists.
type NetworkReleased struct {
	Object
	Provider string `json:"provider"`
	// ID identifies the segment at the IPAM.
	ID         string `json:"id,omitempty"`
	IPv4Prefix string `json:"ipv4Prefix,omitempty"`
	IPv6Prefix string `json:"ipv6Prefix,omitempty"`
}

// WorkorderRequested requests the approval of a ticketing system for the creation or change
// of a cluster.
type WorkorderRequested struct {
	Object
	// Workorder is spec.data.workorder of the cluster.
	Workorder string `json:"workorder"`
	// Generation is the generation of the cluster that needs approval.
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

// WorkorderApproved is the approval of a ticketing system.
type WorkorderApproved struct {
	// UID and Generation are those of the request.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// By names the person or system that decided.
	By      string `json:"by"`
	Comment string `json:"comment,omitempty"`
}

// WorkorderRejected is the rejection by a ticketing system.
type WorkorderRejected struct {
	// UID and Generation are those of the request.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// By names the person or system that decided.
	By string `json:"by"`
	// Reason is shown to the owner of the cluster.
	Reason string `json:"reason"`
}

// MachineCreated says that a machine runs for the first time.
type MachineCreated struct {
	Object
	Cluster     string    `json:"cluster,omitempty"`
	Provider    string    `json:"provider,omitempty"`
	Template    string    `json:"template,omitempty"`
	NodeName    string    `json:"nodeName,omitempty"`
	IPAddresses []string  `json:"ipAddresses,omitempty"`
	CreatedAt   time.Time `json:"createdAt"`
}

// MachineDeleted says that a machine is deleted.
type MachineDeleted struct {
	Object
	Cluster string            `json:"cluster,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// ClusterUpdated lists changes of a cluster's spec or phase.
type ClusterUpdated struct {
	Object
	Changes []Change `json:"changes"`
}

// Change is the change of one field. From is absent for a new field, To for a removed one.
type Change struct {
	// Path is a JSON pointer, for example /spec/topology/workers/0/replicas.
	Path string `json:"path"`
	From any    `json:"from,omitempty"`
	To   any    `json:"to,omitempty"`
}

// OperatorStatus says that the health of a layer has changed.
type OperatorStatus struct {
	// Operator is proxmox, talos, kea or kubevirt.
	Operator string `json:"operator"`
	// Status is healthy, degraded, unhealthy or unreachable.
	Status   string `json:"status"`
	Previous string `json:"previous,omitempty"`
	Message  string `json:"message,omitempty"`
}

// NetworkConfigured says that every interface of a machine has its addresses.
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

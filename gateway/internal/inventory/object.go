// Package inventory holds the current state of the stack. It converts Kubernetes objects (convert*.go) into facts (object.go), facts
// into items of the API (items*.go), and items into immutable snapshots whose responses are encoded in advance.
package inventory

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/vitistack/stack/apis/cause"
	"github.com/vitistack/stack/apis/cluster/template"
)

// Kind is a kind of Kubernetes object that the gateway knows.
type Kind string

// The kinds, in the order of the layers.
const (
	KindNetwork       Kind = "NetworkNamespace"
	KindConfiguration Kind = "NetworkConfiguration"
	KindAllocation    Kind = "IPAllocation"
	KindMachine       Kind = "Machine"
	KindProvider      Kind = "MachineProvider"
	KindCluster       Kind = "KubernetesCluster"
	KindBackup        Kind = "EtcdBackup"
	KindTemplate      Kind = "ClusterTemplate"
	KindNode          Kind = "Node"
	KindVM            Kind = "VirtualMachine"
	KindVMI           Kind = "VirtualMachineInstance"
	KindFunction      Kind = "Service"
	KindReport        Kind = "ConfigMap"
	// KindBackends is the ConfigMap backends.
	KindBackends Kind = "ConfigMap of backends"
	// KindLease are the Leases of heartbeats and of resync.
	KindLease Kind = "Lease"
)

// Kinds are all kinds, in the order of the layers.
var Kinds = []Kind{
	KindNetwork, KindConfiguration, KindAllocation, KindMachine, KindProvider, KindCluster, KindBackup, KindTemplate,
	KindNode, KindVM, KindVMI, KindFunction, KindReport, KindBackends, KindLease,
}

// Key is the namespace and name of an object. Namespace is empty for cluster-scoped kinds.
type Key struct {
	Namespace, Name string
}

// Object is what the gateway keeps of a Kubernetes object. It is immutable.
type Object struct {
	Kind       Kind
	APIVersion string
	Key
	UID             string
	ResourceVersion string
	Generation      int64
	Deleting        bool
	Created         time.Time
	// Updated is the last write of the object, including its status.
	Updated     time.Time
	Labels      map[string]string
	Annotations map[string]string
	Readiness   Readiness
	// Reconcile is when the object is due. It is nil for kinds that no function reconciles.
	Reconcile *Reconcile
	// Facts are specific to the kind: *Network, *Address, *Allocation, *Machine,
	// *Provider, *Cluster, *Backup, *Template, *Node, *VM, *Instance, *Function, *Report, *Servers or *Lease.
	Facts any
	// Spec and Status are the object's as JSON, without secrets.
	Spec, Status json.RawMessage
}

// Readiness is the condition Ready of an object.
type Readiness struct {
	Ready   bool
	Reason  string
	Message string
	// Since is the last transition of the condition.
	Since time.Time
	// Warnings are the other conditions that need attention, and a pause by annotation.
	Warnings []cause.Warning
	// TemplateAdvice is the advice about the ClusterTemplate of a cluster, by reason. Other reasons have that of package cause.
	TemplateAdvice map[string]cause.Advice
}

// Paused returns the Warning about the annotation vitistack.io/paused, or nil for an object without it.
func (r *Readiness) Paused() *cause.Warning {
	if n := slices.IndexFunc(r.Warnings, func(w cause.Warning) bool { return w.Type == cause.WarningPaused }); n >= 0 {
		return &r.Warnings[n]
	}
	return nil
}

// Network is a NetworkNamespace.
type Network struct {
	Phase       string
	Provider    string
	Allocation  string
	IPv4Prefix  string
	IPv4Gateway string
	IPv6Prefix  string
	IPv6Gateway string
	VLAN        int32
	Datacenter  string
	Counted     bool
	Total       int64
	Allocated   int64
	Free        int64
}

// Address is a NetworkConfiguration.
type Address struct {
	Phase      string
	Network    string
	Machine    string
	Cluster    string
	Interfaces []Interface
}

// Interface is one interface of a NetworkConfiguration.
type Interface struct {
	Name      string   `json:"name"`
	MAC       string   `json:"macAddress,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Method    string   `json:"method,omitempty"`
	Ready     bool     `json:"ready"`
	// Reserved reports whether a DHCP server holds a reservation.
	Reserved bool `json:"reserved,omitempty"`
}

// Allocation is an IPAllocation.
type Allocation struct {
	Phase   string
	Network string
	Address string
	Family  string
	Holder  string
	// Cluster is the KubernetesCluster that the address was requested for, as its virtual address.
	Cluster   string
	Interface string
	Requested string
	Expires   time.Time
}

// Machine is a Machine. CPUs and the sizes in bytes are those of its template unless its spec overrides them.
type Machine struct {
	Phase    string
	Provider string
	Template string
	Host     string
	VM       string
	Cluster  string
	Role     string
	Pool     string
	Power    string
	Network  string
	CPUs     int64
	Memory   int64
	Volumes  []Volume
	// StorageReady reports whether every volume exists.
	StorageReady bool
	// VMFailed reports whether the hypervisor reports that the virtual machine has failed.
	VMFailed  bool
	Addresses []string
}

// Volume is one disk of a machine.
type Volume struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Provider is a MachineProvider.
type Provider struct {
	Phase string
	// Local reports whether it creates machines on the nodes of this cluster.
	Local    bool
	Type     string
	Version  string
	Default  bool
	Endpoint string
	Machines int32
	CPUs     int64
	Memory   int64
	Free     int64
	Hosts    []ProviderHost
	Orphans  Orphans
}

// ProviderHost is one host of a MachineProvider.
type ProviderHost struct {
	Name   string
	Ready  bool
	CPUs   int64
	Memory int64
	Used   Usage
}

// Usage is the measured usage of a host. Nil means that it is not measured.
type Usage struct {
	MilliCPUs, Memory *int64
}

// Cluster is a KubernetesCluster.
type Cluster struct {
	Phase        string
	ClusterID    string
	Provider     string
	Environment  string
	Datacenter   string
	Project      string
	Region       string
	Workorder    string
	Zone         string
	Workspace    string
	Network      string
	Version      string
	TalosVersion string
	Endpoint     string
	ControlPlane string
	Workers      string
	PodCIDR      string
	ServiceCIDR  string
	DNSName      string
	Wanted       int
	Ready        int
	Total        int
	Pools        []Pool
	// Template is the ClusterTemplate that it names, or empty. Member is then what the rollout of that sees of it.
	Template string
	Member   template.Member
	// Bootstrapped reports whether its workload API has answered once.
	Bootstrapped bool
	// UnreachableNodes are the nodes that bootstrap-talos cannot reach, by the names of their Machines.
	UnreachableNodes []string
	// NodeAddresses are the addresses of its nodes.
	NodeAddresses []string
}

// Pool is one worker pool of a cluster.
type Pool struct {
	Name  string `json:"name"`
	Total int32  `json:"total"`
	Ready int32  `json:"ready"`
}

// Backup is an EtcdBackup.
type Backup struct {
	Phase     string
	Cluster   string
	Schedule  string
	Suspended bool
	// Storage is where the snapshots go.
	Storage   string
	Retention int32
	// Snapshots counts the snapshots that exist. Size is that of the newest one.
	Snapshots int32
	Size      string
	// Next is when the next snapshot is due. It is zero if none is.
	Next time.Time
	// LastSuccess is when the newest snapshot was due. It is zero if there is none.
	LastSuccess time.Time
}

// Node is a node of this Kubernetes cluster.
type Node struct {
	// Host reports whether KubeVirt runs virtual machines on it.
	Host          bool
	Ready         bool
	Unschedulable bool
	ControlPlane  bool
	Version       string
	MilliCPUs     int64
	Memory        int64
	MilliCPUsFree int64
	MemoryFree    int64
}

// VM is a VirtualMachine of KubeVirt.
type VM struct {
	Phase   string
	Machine string
	Cluster string
	CPUs    int64
	Memory  int64
}

// Instance is a VirtualMachineInstance of KubeVirt.
type Instance struct {
	Phase     string
	Host      string
	CPUs      int64
	Memory    int64
	Addresses []string
}

// Function is a Knative Service of the stack.
type Function struct {
	Ready bool
	URL   string
}

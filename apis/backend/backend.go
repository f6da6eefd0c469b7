// Package backend lists the kinds of backends: hypervisors, providers of networks, allocators
// of addresses, and Talos. It holds data for everything that names them: metrics, the REST API,
// settings and the status page. It imports only the API types and the standard library.
package backend

import (
	"slices"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Layer is the layer of the stack that uses a backend.
type Layer string

// Layers from the bottom to the top.
const (
	LayerNetwork Layer = "network"
	LayerAddress Layer = "address"
	LayerMachine Layer = "machine"
	LayerCluster Layer = "cluster"
)

// Roles that own a backend and resolve its problems.
const (
	OwnerNetworkTeam  = "network team"
	OwnerPlatformTeam = "platform team"
)

// Kind is a kind of backend.
type Kind struct {
	// Name is what a spec, the REST API, events and settings call the backend.
	Name string
	// Title is the name of the product.
	Title string
	Layer Layer
	// Owner is the role that resolves problems of the backend.
	Owner string
	// Function is the Knative Service that uses the backend.
	Function string
	// MetricsPrefix starts the names of the function's metrics about the backend. It is empty
	// if they have none of their own.
	MetricsPrefix string
	// Operator describes the backend as an operator in the REST API. Nil leaves it out.
	Operator *Operator
	// OrphanReport is the key of the ConfigMap orphans that reports orphans at the
	// backend. It is empty if a MachineProvider reports them, or nothing does.
	OrphanReport string
	// InCluster is whether virtual machines are objects of Kubernetes, so that a Machine has a
	// VirtualMachine and PersistentVolumeClaims.
	InCluster bool
	// UnmeasuredHint says what to install if the backend does not report what its hosts use.
	UnmeasuredHint string
}

// Operator describes a backend as an operator in the REST API.
type Operator struct {
	// Capabilities are what the stack does with the backend, unless its endpoint lists its own.
	Capabilities []string
	// Namespace and SyncInterval are the defaults of the settings for the endpoint of a
	// separate operator: operators.<name>.namespace and operators.<name>.syncInterval.
	Namespace    string
	SyncInterval time.Duration
}

// Names of backends that no API type declares as a constant.
const (
	External = "external"
	Kea      = "kea"
	Talos    = "talos"
)

// machineCapabilities are what the stack does with every hypervisor.
var machineCapabilities = []string{"machine.create", "machine.delete", "machine.power", "machine.resize"}

// kinds has an entry for each kind, in the order in which the REST API lists operators.
var kinds = []Kind{
	{
		Name: string(v1alpha1.ProviderProxmox), Title: "Proxmox VE", Layer: LayerMachine, Owner: OwnerPlatformTeam, Function: "create-vm", MetricsPrefix: "proxmox_operator",
		Operator: &Operator{Capabilities: machineCapabilities, Namespace: "default", SyncInterval: 60 * time.Second},
	},
	{
		Name: Talos, Title: "Talos Linux", Layer: LayerCluster, Owner: OwnerPlatformTeam, Function: "bootstrap-talos",
		Operator: &Operator{
			Capabilities: []string{"cluster.create", "cluster.delete", "cluster.scale", "cluster.upgrade"}, Namespace: "default", SyncInterval: 60 * time.Second,
		},
	},
	{
		Name: Kea, Title: "ISC Kea", Layer: LayerAddress, Owner: OwnerNetworkTeam, Function: "kea-reserve", MetricsPrefix: "kea_operator", OrphanReport: v1alpha1.OrphansInKea,
		Operator: &Operator{Capabilities: []string{"address.reserve", "address.release"}, Namespace: "default", SyncInterval: 30 * time.Second},
	},
	{
		Name: string(v1alpha1.ProviderKubeVirt), Title: "KubeVirt", Layer: LayerMachine, Owner: OwnerPlatformTeam, Function: "create-vm", MetricsPrefix: "kubevirt_operator",
		Operator:  &Operator{Capabilities: machineCapabilities, Namespace: "kubevirt", SyncInterval: 45 * time.Second},
		InCluster: true, UnmeasuredHint: "What the nodes use is not measured: install metrics-server in their cluster.",
	},
	{Name: v1alpha2.ProviderManual, Title: "Manual", Layer: LayerNetwork, Owner: OwnerNetworkTeam, Function: "provision-network"},
	{Name: v1alpha2.ProviderNAM, Title: "NAM", Layer: LayerNetwork, Owner: OwnerNetworkTeam, Function: "provision-network"},
	{Name: v1alpha2.ProviderNetBox, Title: "NetBox", Layer: LayerNetwork, Owner: OwnerNetworkTeam, Function: "provision-network", OrphanReport: v1alpha1.OrphansInNetBox},
	{Name: External, Title: "External IPAM", Layer: LayerNetwork, Owner: OwnerNetworkTeam, Function: "provision-network"},
	{Name: string(v1alpha2.AllocationStatic), Title: "Static addresses", Layer: LayerAddress, Owner: OwnerNetworkTeam, Function: "allocate-ip"},
}

// All returns every kind, in the order in which the REST API lists operators.
func All() []Kind { return slices.Clone(kinds) }

// In returns the kinds of a layer, in the order of All.
func In(layer Layer) []Kind {
	return slices.DeleteFunc(All(), func(k Kind) bool { return k.Layer != layer })
}

// Operators returns the kinds that the REST API lists as operators, in its order.
func Operators() []Kind {
	return slices.DeleteFunc(All(), func(k Kind) bool { return k.Operator == nil })
}

// Find returns the kind with a name, and whether there is one.
func Find(name string) (Kind, bool) {
	i := slices.IndexFunc(kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return kinds[i], true
}

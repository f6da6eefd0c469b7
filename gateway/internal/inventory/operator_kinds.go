package inventory

import "github.com/vitistack/stack/apis/v1alpha1"

// The operators, as the API names them.
const (
	OperatorProxmox  = "proxmox"
	OperatorTalos    = "talos"
	OperatorKea      = "kea"
	OperatorKubeVirt = "kubevirt"
)

// operatorKind is what the gateway knows of an operator. A new kind needs an entry in operatorKinds, a configuration key in
// config.operatorDefaults, and words in page/words.js.
type operatorKind struct {
	name string
	// function is the Knative Service that does the operator's work.
	function string
	// capabilities are what the operator does. The operator's own endpoint may report others.
	capabilities []string
	// observe derives the operator's health from the inventory, and reports whether the operator is used.
	observe func(*Operator, *Snapshot) bool
}

// machineCapabilities are the capabilities of every hypervisor.
var machineCapabilities = []string{"machine.create", "machine.delete", "machine.power", "machine.resize"}

// operatorKinds are all operators, in the order in which they are listed.
var operatorKinds = []operatorKind{
	{OperatorProxmox, "create-vm", machineCapabilities, (*Operator).observeProviders},
	{OperatorTalos, "bootstrap-talos", []string{"cluster.create", "cluster.delete", "cluster.scale", "cluster.upgrade"}, (*Operator).observeClusters},
	{OperatorKea, "kea-reserve", []string{"address.reserve", "address.release"}, (*Operator).observeReservations},
	{OperatorKubeVirt, "create-vm", machineCapabilities, (*Operator).observeProviders},
}

// Operators are the names of all operators, in the order in which they are listed.
var Operators = operatorNames()

func operatorNames() (names []string) {
	for _, k := range operatorKinds {
		names = append(names, k.name)
	}
	return names
}

// OrphanBackends are the backends that functions check for orphans, in the order in which they are listed.
var OrphanBackends = []string{
	OperatorProxmox, OperatorKubeVirt, v1alpha1.OrphansInKea, v1alpha1.OrphansInNetBox, v1alpha1.OrphansInLeases,
}

// Uses are the operators that a cluster depends on.
type Uses struct {
	Proxmox  bool `json:"proxmox"`
	Talos    bool `json:"talos"`
	Kea      bool `json:"kea"`
	KubeVirt bool `json:"kubeVirt"`
}

// Names returns the names of the operators in use.
func (u Uses) Names() []string {
	names := []string{}
	for _, o := range []struct {
		name string
		used bool
	}{{OperatorProxmox, u.Proxmox}, {OperatorTalos, u.Talos}, {OperatorKea, u.Kea}, {OperatorKubeVirt, u.KubeVirt}} {
		if o.used {
			names = append(names, o.name)
		}
	}
	return names
}

// setHypervisor marks the operator of a machine's provider as used. Other types of provider are no operators.
func (u *Uses) setHypervisor(operator string) {
	switch operator {
	case OperatorProxmox:
		u.Proxmox = true
	case OperatorKubeVirt:
		u.KubeVirt = true
	}
}

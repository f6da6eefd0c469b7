package preview

import (
	"slices"

	machineplan "github.com/vitistack/stack/apis/machine/plan"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// World is what exists, in all namespaces that the documents name.
type World struct {
	Networks  []v1alpha2.NetworkNamespace
	Providers []v1alpha1.MachineProvider
	Machines  []v1alpha1.Machine
	Classes   []v1alpha1.MachineClass
	// NamespaceLabels returns the labels of a namespace, or an error if they cannot be read.
	NamespaceLabels func(namespace string) (map[string]string, error)
	// DefaultTalos is the Talos version of clusters that name none.
	DefaultTalos string
}

// ChooseProvider returns the MachineProvider that create-vm would choose for a machine.
func (w World) ChooseProvider(ref *v1alpha1.ProviderReference, namespace string) (*v1alpha1.MachineProvider, error) {
	return machineplan.ChooseProvider(ref, namespace, w.Providers, func() (map[string]string, error) { return w.NamespaceLabels(namespace) })
}

// ChooseNetwork returns the network of a name, or the only one of the namespace.
func (w World) ChooseNetwork(namespace, name string) (*v1alpha2.NetworkNamespace, error) {
	var candidates []v1alpha2.NetworkNamespace
	for _, nn := range w.Networks {
		if nn.Namespace == namespace {
			candidates = append(candidates, nn)
		}
	}
	return networkplan.Choose(namespace, name, candidates)
}

// AddNew adds the networks, MachineProviders and MachineClasses that documents create.
func (w *World) AddNew(documents []Document) {
	for _, d := range documents {
		w.add(d)
	}
}

// add adds a network, MachineProvider or MachineClass that a document creates.
func (w *World) add(d Document) {
	if d.Before != nil {
		return
	}
	switch d.Object.GetKind() {
	case "NetworkNamespace":
		nn := v1alpha2.NetworkNamespace{}
		if decode(d.Object, &nn) == nil {
			w.Networks = append(slices.Clone(w.Networks), nn)
		}
	case "MachineProvider":
		p := v1alpha1.MachineProvider{}
		if decode(d.Object, &p) == nil {
			w.Providers = append(slices.Clone(w.Providers), p)
		}
	case "MachineClass":
		c := v1alpha1.MachineClass{}
		if decode(d.Object, &c) == nil && len(d.Refusals) == 0 {
			w.Classes = append(slices.Clone(w.Classes), c)
		}
	}
}

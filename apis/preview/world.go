package preview

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/cluster/addons"
	machineplan "github.com/vitistack/stack/apis/machine/plan"
	networkplan "github.com/vitistack/stack/apis/network/plan"
	segmentplan "github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// World is what exists, in all namespaces that the documents name. Networks, NetworkConfigurations and IPAllocations
// are those of all namespaces, unless Unread says that they are not.
type World struct {
	Networks       []v1alpha2.NetworkNamespace
	Pools          []v1alpha1.NetworkPool
	Configurations []v1alpha1.NetworkConfiguration
	Allocations    []v1alpha2.IPAllocation
	Providers      []v1alpha1.MachineProvider
	Machines       []v1alpha1.Machine
	Classes        []v1alpha1.MachineClass
	Templates      []v1alpha1.ClusterTemplate
	// Clusters are those of all namespaces that name a ClusterTemplate of the documents.
	Clusters []v1alpha1.KubernetesCluster
	// NamespaceLabels returns the labels of a namespace, or an error if they cannot be read.
	NamespaceLabels func(namespace string) (map[string]string, error)
	// DefaultTalos is the Talos version of clusters that name none.
	DefaultTalos string
	// ConfigMap returns the data of a ConfigMap, and whether it exists. It is nil if that is not known.
	ConfigMap func(namespace, name string) (data map[string]string, exists bool, err error)
	// Settings are those of the functions, or nil if they are not known.
	Settings *Settings
	Unread   Unread
}

// Settings are settings of functions that decide about objects.
type Settings struct {
	// OptionalPools is whether a namespace that may use no NetworkPool may have any network.
	OptionalPools bool
	Datacenters   segmentplan.Datacenters
	// ImageHosts are the hosts from which images may come, or nil if they are not known.
	ImageHosts machineplan.HostRules
	// AddonHosts are the hosts from which manifests of add-ons may come, or nil if they are not known.
	AddonHosts addons.HostRules
}

// Unread says what of the world cannot be read. What it decides is not checked, and notes say so.
type Unread struct {
	// OtherNetworks are the networks of namespaces that no document names, with their users.
	OtherNetworks bool
	Pools         bool
	// Clusters are the clusters of ClusterTemplates.
	Clusters bool
}

func (w World) labelsOf(namespace string) func() (map[string]string, error) {
	return func() (map[string]string, error) { return w.NamespaceLabels(namespace) }
}

// ChooseProvider returns the MachineProvider that create-vm would choose for a machine.
func (w World) ChooseProvider(ref *v1alpha1.ProviderReference, namespace string) (*v1alpha1.MachineProvider, error) {
	return machineplan.ChooseProvider(ref, namespace, w.Providers, w.labelsOf(namespace))
}

// ChooseNetwork returns the network of a name, or the only one of the namespace.
func (w World) ChooseNetwork(namespace, name string) (*v1alpha2.NetworkNamespace, error) {
	var candidates []v1alpha2.NetworkNamespace
	for _, nn := range w.Networks {
		if nn.Namespace == namespace {
			candidates = append(candidates, nn)
		}
	}
	return networkplan.ChooseNetwork(namespace, name, candidates)
}

// findNetwork returns a network by its namespace and name, or nil.
func (w World) findNetwork(namespace, name string) *v1alpha2.NetworkNamespace {
	i := slices.IndexFunc(w.Networks, func(nn v1alpha2.NetworkNamespace) bool { return nn.Namespace == namespace && nn.Name == name })
	if i < 0 {
		return nil
	}
	return &w.Networks[i]
}

// reservations returns the IPAllocations that users have created. Those of NetworkConfigurations are counted there.
func (w World) reservations() []v1alpha2.IPAllocation {
	return slices.DeleteFunc(slices.Clone(w.Allocations), func(a v1alpha2.IPAllocation) bool { return a.Spec.NetworkConfigurationName != "" })
}

// Apply adds the networks, NetworkPools, MachineProviders, MachineClasses and ClusterTemplates that documents create, and
// changes the networks, NetworkPools and ClusterTemplates that they change.
func (w *World) Apply(documents []Document) {
	w.Networks, w.Pools = slices.Clone(w.Networks), slices.Clone(w.Pools)
	w.Providers, w.Classes, w.Templates = slices.Clone(w.Providers), slices.Clone(w.Classes), slices.Clone(w.Templates)
	for _, d := range documents {
		w.apply(d)
	}
}

func (w *World) apply(d Document) {
	after := cmp.Or(d.After, d.Object)
	switch d.Object.GetKind() {
	case "NetworkNamespace":
		nn := v1alpha2.NetworkNamespace{}
		if decode(after, &nn) == nil {
			w.setNetwork(nn, d)
		}
	case "NetworkPool":
		pool := v1alpha1.NetworkPool{}
		if decode(after, &pool) == nil && len(d.Refusals) == 0 {
			w.Pools = append(slices.DeleteFunc(w.Pools, func(p v1alpha1.NetworkPool) bool { return p.Name == pool.Name }), pool)
		}
	case "ClusterTemplate":
		ct := v1alpha1.ClusterTemplate{}
		if decode(after, &ct) == nil && len(d.Refusals) == 0 {
			w.Templates = append(slices.DeleteFunc(w.Templates, func(t v1alpha1.ClusterTemplate) bool { return t.Name == ct.Name }), ct)
		}
	case "MachineProvider":
		p := v1alpha1.MachineProvider{}
		if d.Before == nil && decode(d.Object, &p) == nil {
			w.Providers = append(w.Providers, p)
		}
	case "MachineClass":
		c := v1alpha1.MachineClass{}
		if d.Before == nil && decode(d.Object, &c) == nil && len(d.Refusals) == 0 {
			w.Classes = append(w.Classes, c)
		}
	}
}

// setNetwork adds a new network, which is younger than all others, or changes one that exists.
func (w *World) setNetwork(nn v1alpha2.NetworkNamespace, d Document) {
	if existing := w.findNetwork(nn.Namespace, nn.Name); existing != nil && d.Before != nil {
		*existing = nn
		return
	}
	nn.UID, nn.CreationTimestamp = types.UID(fmt.Sprintf("new-%04d", d.Index)), metav1.Time{}
	for i := range w.Networks {
		if other := w.Networks[i].CreationTimestamp; !other.Before(&nn.CreationTimestamp) {
			nn.CreationTimestamp = metav1.NewTime(other.Add(time.Second))
		}
	}
	w.Networks = append(w.Networks, nn)
}

package preview

import (
	"encoding/json"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Existing is what a preview takes into account beside the snapshot.
type Existing struct {
	Classes   []v1alpha1.MachineClass
	Pools     []v1alpha1.NetworkPool
	Templates []v1alpha1.ClusterTemplate
	// Clusters are those of the ClusterTemplates that the documents change. The snapshot does not say who owns their fields.
	Clusters []v1alpha1.KubernetesCluster
	// NamespaceLabels returns the labels of a namespace.
	NamespaceLabels func(namespace string) (map[string]string, error)
	// Settings are those of the functions, and DefaultTalos is the Talos version of clusters that name none.
	Settings     shared.Settings
	DefaultTalos string
}

// worldOf returns what a snapshot has in the namespaces of documents and of the clusters of their ClusterTemplates, and the networks of all namespaces if documents
// have a network. A caller that is limited to namespaces sees no other networks, and not what MachineProviders report
// of their hosts.
func worldOf(documents []shared.Document, now *inventory.Snapshot, existing Existing, limited bool) (shared.World, error) {
	w := shared.World{
		DefaultTalos: existing.DefaultTalos, NamespaceLabels: existing.NamespaceLabels, Classes: existing.Classes, Pools: existing.Pools,
		Settings: &existing.Settings, Templates: existing.Templates, Clusters: existing.Clusters, Unread: shared.Unread{OtherNetworks: limited},
	}
	for _, i := range now.Collection(inventory.TopicProviders).Items {
		p := v1alpha1.MachineProvider{}
		if err := typed(i.Object, &p.ObjectMeta, &p.Spec, &p.Status); err != nil {
			return w, err
		}
		if limited {
			p.Status = v1alpha1.MachineProviderStatus{}
		}
		w.Providers = append(w.Providers, p)
	}
	var namespaces []string
	for _, d := range documents {
		if name := d.Object.GetNamespace(); name != "" && !slices.Contains(namespaces, name) {
			namespaces = append(namespaces, name)
		}
	}
	for i := range existing.Clusters {
		if name := existing.Clusters[i].Namespace; !slices.Contains(namespaces, name) {
			namespaces = append(namespaces, name)
		}
	}
	for _, namespace := range namespaces {
		for _, i := range now.Collection(inventory.TopicMachines).InNamespace(namespace) {
			m := v1alpha1.Machine{}
			if err := typed(i.Object, &m.ObjectMeta, &m.Spec, &m.Status); err != nil {
				return w, err
			}
			w.Machines = append(w.Machines, m)
		}
	}
	return w, addNetworks(&w, documents, namespaces, now)
}

// addNetworks adds the networks of namespaces to a world. If documents have a network, it adds those of all
// namespaces that the caller may see, with the objects that have addresses in them.
func addNetworks(w *shared.World, documents []shared.Document, namespaces []string, now *inventory.Snapshot) error {
	hasNetwork := slices.ContainsFunc(documents, func(d shared.Document) bool { return d.Object.GetKind() == string(inventory.KindNetwork) })
	of := func(topic inventory.Topic) (items []*inventory.Item) {
		if hasNetwork && !w.Unread.OtherNetworks {
			return now.Collection(topic).Items
		}
		for _, namespace := range namespaces {
			items = append(items, now.Collection(topic).InNamespace(namespace)...)
		}
		return items
	}
	for _, i := range of(inventory.TopicNetworks) {
		nn := v1alpha2.NetworkNamespace{}
		if err := typed(i.Object, &nn.ObjectMeta, &nn.Spec, &nn.Status); err != nil {
			return err
		}
		w.Networks = append(w.Networks, nn)
	}
	if !hasNetwork {
		return nil
	}
	for _, i := range of(inventory.TopicAddresses) {
		nc := v1alpha1.NetworkConfiguration{}
		if err := typed(i.Object, &nc.ObjectMeta, &nc.Spec, &nc.Status); err != nil {
			return err
		}
		w.Configurations = append(w.Configurations, nc)
	}
	for _, i := range of(inventory.TopicAllocations) {
		if i.Object.Kind != inventory.KindAllocation {
			continue
		}
		a := v1alpha2.IPAllocation{}
		if err := typed(i.Object, &a.ObjectMeta, &a.Spec, &a.Status); err != nil {
			return err
		}
		w.Allocations = append(w.Allocations, a)
	}
	return nil
}

// typed decodes an object of a snapshot.
func typed(o *inventory.Object, meta *metav1.ObjectMeta, spec, status any) error {
	meta.Namespace, meta.Name, meta.Labels, meta.Annotations = o.Namespace, o.Name, o.Labels, o.Annotations
	meta.UID, meta.Generation, meta.CreationTimestamp = types.UID(o.UID), o.Generation, metav1.NewTime(o.Created)
	if o.Deleting {
		meta.DeletionTimestamp = &metav1.Time{Time: o.Updated}
	}
	for raw, into := range map[*json.RawMessage]any{&o.Spec: spec, &o.Status: status} {
		if err := json.Unmarshal(*raw, into); err != nil {
			return fmt.Errorf("decode %s %s/%s: %w", o.Kind, o.Namespace, o.Name, err)
		}
	}
	return nil
}

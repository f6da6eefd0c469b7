package preview

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/apis/versions"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// errNoLabels is for MachineProviders that choose namespaces by their labels. The gateway has no right to read these.
var errNoLabels = errors.New("the labels of the namespace decide which MachineProvider it may use, and a preview does not read them: " +
	"name one in spec.providerRef, or use kubectl viti plan")

// worldOf returns what a snapshot has in the namespaces of documents.
func worldOf(documents []shared.Document, now *inventory.Snapshot, limited bool) (shared.World, error) {
	w := shared.World{DefaultTalos: versions.DefaultTalos, NamespaceLabels: func(string) (map[string]string, error) { return nil, errNoLabels }}
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
	for _, namespace := range namespaces {
		for _, i := range now.Collection(inventory.TopicNetworks).InNamespace(namespace) {
			nn := v1alpha2.NetworkNamespace{}
			if err := typed(i.Object, &nn.ObjectMeta, &nn.Spec, &nn.Status); err != nil {
				return w, err
			}
			w.Networks = append(w.Networks, nn)
		}
		for _, i := range now.Collection(inventory.TopicMachines).InNamespace(namespace) {
			m := v1alpha1.Machine{}
			if err := typed(i.Object, &m.ObjectMeta, &m.Spec, &m.Status); err != nil {
				return w, err
			}
			w.Machines = append(w.Machines, m)
		}
	}
	return w, nil
}

// typed decodes an object of a snapshot.
func typed(o *inventory.Object, meta *metav1.ObjectMeta, spec, status any) error {
	meta.Namespace, meta.Name, meta.Labels, meta.Annotations = o.Namespace, o.Name, o.Labels, o.Annotations
	meta.CreationTimestamp = metav1.NewTime(o.Created)
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

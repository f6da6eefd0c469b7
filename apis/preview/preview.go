// Package preview says what the stack would do if a manifest was applied: what it refuses, what it waits
// for, which fields change, and what happens to machines. It decides by the checks of the functions
// themselves, writes nothing, and has no client, clock or log.
package preview

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// Document is one object of a manifest.
type Document struct {
	// Index is the position in the manifest, from 1.
	Index  int
	Object *unstructured.Unstructured
	// Before is the object that exists, or nil for a new one, and After the object as it would be stored.
	Before, After *unstructured.Unstructured
	// Refusals are the errors that the API server has, or that its schema gives.
	Refusals []Finding
	// Checked is whether the API server has checked the change. Otherwise, package changes says which
	// changes it refuses.
	Checked bool
	// Note says what limits the comparison, or is empty.
	Note string
}

// Preview is what applying a manifest would do.
type Preview struct {
	// Valid reports whether there are no errors, and Changed whether anything would change.
	Valid   bool `json:"valid"`
	Changed bool `json:"changed"`
	// Errors are what the API server or a function refuses, and Warnings what an object would wait for.
	Errors    []Finding `json:"errors"`
	Warnings  []Finding `json:"warnings"`
	Documents []Result  `json:"documents"`
}

// Action is what happens to an object.
type Action string

// Actions on an object.
const (
	ActionCreate Action = "create"
	ActionChange Action = "change"
	ActionNone   Action = "none"
)

// Result is what applying one document would do.
type Result struct {
	Document  int    `json:"document"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Action    Action `json:"action"`
	// Changes are the fields that change, and Steps what happens to machines, in this order.
	Changes []Change `json:"changes"`
	Steps   []Step   `json:"steps"`
	Note    string   `json:"note,omitempty"`
}

// Step is something that happens to machines.
type Step struct {
	Action string `json:"action"`
	// Machines are in the order in which it happens to them, and AtOnce how many at the same time.
	Machines []string `json:"machines"`
	AtOnce   int      `json:"atOnce"`
	Detail   string   `json:"detail"`
}

// maker collects a preview. demand is what the documents so far take of networks and MachineProviders.
type maker struct {
	*Preview
	world  World
	demand demand
	// of is the document that is looked at, with its result and what is not checked of it.
	of        Document
	result    Result
	unchecked []string
	// clusters are what a change of a ClusterTemplate does to its clusters.
	clusters []Document
}

// clusterPreview adds what happens to clusters and their machines.
type clusterPreview struct{ *maker }

// networkPreview adds what happens to networks and their addresses.
type networkPreview struct{ *maker }

// Make returns what applying documents in their order would do. Networks, NetworkPools, MachineProviders and
// MachineClasses that they create or change count for the others. A ClusterTemplate that changes is followed by the clusters
// that follow it.
func Make(documents []Document, world World) *Preview {
	m := &maker{Preview: &Preview{Errors: []Finding{}, Warnings: []Finding{}, Documents: []Result{}}, world: world, demand: newDemand()}
	m.world.Apply(documents)
	for _, d := range documents {
		m.document(d)
	}
	m.Valid = len(m.Errors) == 0
	return m.Preview
}

func (m *maker) document(d Document) {
	o := d.Object
	m.of, m.unchecked, m.clusters = d, nil, nil
	m.result = Result{Document: d.Index, Kind: o.GetKind(), Name: o.GetName(), Namespace: o.GetNamespace(), Action: ActionCreate, Changes: []Change{}, Steps: []Step{}}
	others := len(m.Errors)
	for _, f := range d.Refusals {
		m.Errors = append(m.Errors, m.finding(f.Pointer, f.Reason, f.Detail))
	}
	if d.Before != nil {
		m.result.Changes = m.changes()
		m.result.Action = ActionChange
		if len(m.result.Changes) == 0 {
			m.result.Action = ActionNone
		}
	}
	if m.result.Action != ActionNone {
		m.Changed = true
		m.consequences()
	}
	if refusals := m.Errors[others:]; len(refusals) > 0 {
		m.result.Steps = []Step{} // nothing happens until the manifest is corrected
		m.markRefused(refusals)
	}
	m.result.Note = m.note()
	m.Documents = append(m.Documents, m.result)
	for _, c := range m.clusters {
		m.document(c)
	}
}

// consequences adds what the functions say of the object, and what happens to machines.
func (m *maker) consequences() {
	after := cmp.Or(m.of.After, m.of.Object)
	switch m.result.Kind {
	case "KubernetesCluster":
		kc := &v1alpha1.KubernetesCluster{}
		if m.decode(after, kc) {
			clusterPreview{m}.templatedCluster(kc)
		}
	case "ClusterTemplate":
		clusterPreview{m}.clusterTemplate(after)
	case "Machine":
		machine := &v1alpha1.Machine{}
		if m.decode(after, machine) {
			m.machine(machine)
		}
	case "NetworkNamespace":
		if m.decode(after, &v1alpha2.NetworkNamespace{}) {
			if nn := m.world.findNetwork(m.result.Namespace, m.result.Name); nn != nil {
				networkPreview{m}.networkNamespace(nn)
			}
		}
	case "NetworkConfiguration":
		nc := &v1alpha1.NetworkConfiguration{}
		if m.decode(after, nc) && m.of.Before == nil {
			networkPreview{m}.configuration(nc)
		}
	case "IPAllocation":
		a := &v1alpha2.IPAllocation{}
		if m.decode(after, a) && m.of.Before == nil {
			networkPreview{m}.allocation(a)
		}
	}
}

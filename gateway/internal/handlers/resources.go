package handlers

import (
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/backend"

	"github.com/gofiber/fiber/v2"

	"github.com/vitistack/stack/gateway/internal/httpbody"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/listing"
	"github.com/vitistack/stack/gateway/internal/problem"
	"github.com/vitistack/stack/gateway/internal/response"
)

// resource is a cluster, a machine, a volume of a machine, or a network, in one model.
type resource struct {
	item *inventory.Item
	// volume is the index of a machine's volume, or -1 for the item itself.
	volume int
}

// resourceJSON is a resource in the API. Status is in the words of the API; StatusDetail is the status of the object.
type resourceJSON struct {
	ID           string           `json:"id"`
	Type         string           `json:"type"`
	Name         string           `json:"name"`
	Namespace    string           `json:"namespace"`
	Operator     string           `json:"operator"`
	Status       string           `json:"status"`
	Metadata     resourceMetadata `json:"metadata"`
	Spec         json.RawMessage  `json:"spec"`
	StatusDetail json.RawMessage  `json:"statusDetail"`
}

type resourceMetadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	CreatedAt   time.Time         `json:"createdAt"`
	UpdatedAt   time.Time         `json:"updatedAt"`
}

// The types of resources, in the order in which they are listed.
const (
	typeCluster = "cluster"
	typeMachine = "machine"
	typeNetwork = "network"
	typeStorage = "storage"
)

var resourceVocabulary = listing.Vocabulary{
	Attributes: []string{"id", "type", "name", "namespace", "operator", "status", "createdAt", "updatedAt"},
	Fields:     []string{"id", "type", "name", "namespace", "operator", "status", "metadata", "spec", "statusDetail"},
	Compare:    inventory.CompareAttribute,
	Check:      inventory.CheckAttribute,
	Values: map[string][]string{
		"type":     {typeCluster, typeMachine, typeNetwork, typeStorage},
		"status":   inventory.Statuses(inventory.TopicMachines),
		"operator": append([]string{""}, inventory.Operators...),
	},
}

func (r resource) kind() string {
	switch {
	case r.volume >= 0:
		return typeStorage
	case r.item.Topic == inventory.TopicClusters:
		return typeCluster
	case r.item.Topic == inventory.TopicMachines:
		return typeMachine
	default:
		return typeNetwork
	}
}

func (r resource) id() string {
	if r.volume < 0 {
		return r.item.ID
	}
	return r.item.ID + ".disk." + r.disk().Name
}

func (r resource) name() string {
	if r.volume < 0 {
		return r.item.Name
	}
	return r.item.Name + "-" + r.disk().Name
}

func (r resource) machine() *inventory.Machine { return r.item.Object.Facts.(*inventory.Machine) }

func (r resource) disk() inventory.Volume { return r.machine().Volumes[r.volume] }

// operator returns the operator that manages the resource, or nothing.
func (r resource) operator() string {
	switch r.kind() {
	case typeCluster:
		return backend.Talos
	case typeNetwork:
		if r.item.Attribute("allocation") == "dhcp" {
			return backend.Kea
		}
		return ""
	default:
		return r.item.Attribute("operator")
	}
}

// status returns one of pending, running, failed and unknown.
func (r resource) status() string {
	switch {
	case r.volume >= 0 && r.machine().StorageReady:
		return inventory.StatusRunning
	case r.volume >= 0:
		return inventory.StatusPending
	case r.item.Status == inventory.StatusActive:
		return inventory.StatusRunning
	case r.item.Status == inventory.StatusInactive && r.item.Deleting:
		return inventory.StatusUnknown
	case r.item.Status == inventory.StatusInactive:
		return inventory.StatusPending
	default:
		return r.item.Status
	}
}

// Attribute returns the value of an attribute of the list.
func (r resource) Attribute(name string) string {
	switch name {
	case "id":
		return r.id()
	case "type":
		return r.kind()
	case "name":
		return r.name()
	case "operator":
		return r.operator()
	case "status":
		return r.status()
	case "updatedAt":
		name = "lastUpdated"
	}
	return r.item.Attribute(name)
}

// Mentions reports whether a text in lower case occurs in the resource.
func (r resource) Mentions(text string) bool {
	if r.volume >= 0 {
		return r.item.Mentions(text) || strings.Contains(r.name(), text)
	}
	return r.item.Mentions(text) || inventory.TextIn(r.item.Object.Spec, text) || inventory.TextIn(r.item.Object.Status, text)
}

// Place is the position of the resource in the list. Volumes are in the order of their machines.
func (r resource) Place() []string {
	return []string{r.kind(), r.item.Namespace, r.item.Name, fmt.Sprintf("%s.%03d", r.item.ID, r.volume+1)}
}

// Listed returns the resource as JSON.
func (r resource) Listed() []byte {
	o := r.item.Object
	out := resourceJSON{
		ID: r.id(), Type: r.kind(), Name: r.name(), Namespace: r.item.Namespace, Operator: r.operator(), Status: r.status(),
		Metadata: resourceMetadata{Labels: o.Labels, Annotations: o.Annotations, CreatedAt: r.item.Created, UpdatedAt: r.item.Updated},
		Spec:     o.Spec, StatusDetail: o.Status,
	}
	if r.volume >= 0 {
		out.Metadata.Labels, out.Metadata.Annotations = map[string]string{"vitistack.io/machine": r.item.Name}, nil
		out.Spec, _ = json.Marshal(r.disk())
		out.StatusDetail = json.RawMessage(`{}`)
	}
	if out.Metadata.Labels == nil {
		out.Metadata.Labels = map[string]string{}
	}
	if out.Metadata.Annotations == nil {
		out.Metadata.Annotations = map[string]string{}
	}
	encoded, err := json.Marshal(out)
	if err != nil {
		return []byte(`{}`)
	}
	return encoded
}

// resourcesOf returns all resources of a snapshot in the order of their places.
func resourcesOf(s *inventory.Snapshot) iter.Seq[listing.Entry] {
	return func(yield func(listing.Entry) bool) {
		for _, topic := range []inventory.Topic{inventory.TopicClusters, inventory.TopicMachines, inventory.TopicNetworks} {
			for _, i := range s.Collection(topic).Items {
				if !yield(resource{i, -1}) {
					return
				}
			}
		}
		for _, i := range s.Collection(inventory.TopicMachines).Items {
			for n := range i.Object.Facts.(*inventory.Machine).Volumes {
				if !yield(resource{i, n}) {
					return
				}
			}
		}
	}
}

// ListResources serves all resources of the stack.
func (h *Inventory) ListResources(c *fiber.Ctx) error {
	s, err := h.snapshot()
	if err != nil {
		return err
	}
	return h.sendList(c, list{field: "resources", vocabulary: resourceVocabulary, tag: s.ETag() + "-resources", entries: resourcesOf(s),
		resources: rightsOn(inventory.TopicClusters, inventory.TopicMachines, inventory.TopicNetworks)})
}

// ShowResource serves one resource.
func (h *Inventory) ShowResource(c *fiber.Ctx) error {
	s, err := h.snapshot()
	if err != nil {
		return err
	}
	id := identifierOf(c)
	var found []resource
	for _, topic := range []inventory.Topic{inventory.TopicClusters, inventory.TopicMachines, inventory.TopicNetworks} {
		r, ok := findResource(s.Collection(topic), id)
		if !ok {
			continue
		}
		visible, err := h.Access.VisibilityOf(c, "get", []string{r.item.Namespace}, rightsOn(topic))
		if err != nil {
			return err
		}
		if visible.Includes(r.item.Namespace) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return problem.New(http.StatusNotFound, "there is no resource with this id: /api/v1/resources lists them; namespace/name is an id too")
	case 1:
		return response.Send(c, s.ETag()+"-"+found[0].id(), fiber.MIMEApplicationJSON, httpbody.Body{Plain: found[0].Listed()})
	}
	var ids []string
	for _, r := range found {
		ids = append(ids, fmt.Sprintf("%s for the %s", r.id(), r.kind()))
	}
	return problem.New(http.StatusConflict, "%d resources are called %s: write %s", len(found), id, strings.Join(ids, ", or "))
}

// findResource finds a resource by its identifier, or by namespace/name. Both may end with .disk. and the name of a volume.
func findResource(all *inventory.Collection, id string) (resource, bool) {
	owner, disk, isVolume := strings.Cut(id, ".disk.")
	i := all.Find(owner)
	if namespace, name, ok := strings.Cut(owner, "/"); ok && i == nil {
		i = all.FindNamed(namespace, name)
	}
	if i == nil || isVolume && all.Topic != inventory.TopicMachines {
		return resource{}, false
	}
	r := resource{i, -1}
	if !isVolume {
		return r, true
	}
	for n, v := range r.machine().Volumes {
		if v.Name == disk {
			return resource{i, n}, true
		}
	}
	return resource{}, false
}

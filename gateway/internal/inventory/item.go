package inventory

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/cause"
)

// Topic is a collection of items: a list of the REST API and a topic of the
// stream.
type Topic string

// The topics, in the order of the layers.
const (
	TopicNetworks    Topic = "networks"
	TopicAddresses   Topic = "addresses"
	TopicAllocations Topic = "allocations"
	TopicMachines    Topic = "machines"
	TopicProviders   Topic = "providers"
	TopicHosts       Topic = "hosts"
	TopicVMs         Topic = "vms"
	TopicClusters    Topic = "clusters"
	TopicBackups     Topic = "backups"
	TopicTemplates   Topic = "clustertemplates"
	TopicOperators   Topic = "operators"
)

// Topics are all topics, in the order of the layers.
var Topics = []Topic{
	TopicNetworks, TopicAddresses, TopicAllocations, TopicMachines, TopicProviders,
	TopicHosts, TopicVMs, TopicClusters, TopicTemplates, TopicBackups, TopicOperators,
}

// Status of an item in the API.
const (
	StatusPending = "pending"
	StatusRunning = "running"
	StatusFailed  = "failed"
	StatusUnknown = "unknown"
)

// Status of a cluster.
const (
	StatusActive   = "active"
	StatusInactive = "inactive"
)

// Item is one entry of a topic. It is immutable.
type Item struct {
	Topic     Topic
	ID        string
	Namespace string
	Name      string
	Status    string
	Phase     string
	Deleting  bool
	Readiness Readiness
	Created   time.Time
	Updated   time.Time
	// Object is the Kubernetes object of the item, or nil if it has none.
	Object *Object
	// JSON is the item in the stream, and in its list unless List is set.
	JSON []byte
	// List is the item in its list.
	List []byte

	facts attributed
}

// attributed gives the attributes that queries filter and sort by.
type attributed interface {
	// attribute returns the value of a name that Attributes lists for the topic.
	attribute(name string) string
}

// Attributes are the names that queries on a topic can filter and sort by, beside CommonAttributes.
var Attributes = map[Topic][]string{
	TopicNetworks:    {"provider", "allocation", "datacenter", "vlan", "free", "allocated"},
	TopicAddresses:   {"network", "machine", "cluster"},
	TopicAllocations: {"network", "holder", "address", "family", "method"},
	TopicMachines:    {"cluster", "role", "pool", "provider", "operator", "template", "host", "address", "cpus", "memoryBytes", "diskBytes"},
	TopicProviders:   {"type", "version", "machines", "cpus", "memoryBytes", "memoryFreeBytes", "hosts"},
	TopicHosts:       {"provider", "type", "vms"},
	TopicVMs:         {"host", "machine", "cluster", "cpus", "memoryBytes"},
	TopicClusters:    {"type", "version", "environment", "datacenter", "project", "region", "workorder", "zone", "workspace", "network", "nodes", "nodesReady", "machines", "clusterTemplate", "wave", "rollout"},
	TopicTemplates:   {"version", "talosVersion", "wave", "clusters", "waitingClusters"},
	TopicBackups:     {"cluster", "schedule", "snapshots", "lastSuccess"},
	TopicOperators:   {"version"},
}

// CommonAttributes are the names that queries on every topic can filter and sort by.
var CommonAttributes = []string{"id", "name", "namespace", "status", "phase", "reason", "createdAt", "lastUpdated"}

// Attribute returns the value of an attribute, or nothing. CompareAttribute orders values.
func (i *Item) Attribute(name string) string {
	switch name {
	case "id":
		return i.ID
	case "name":
		return i.Name
	case "namespace":
		return i.Namespace
	case "status":
		return i.Status
	case "phase":
		return i.Phase
	case "reason":
		return i.Readiness.Reason
	case "createdAt":
		return i.Created.Format(time.RFC3339)
	case "lastUpdated":
		return i.Updated.Format(time.RFC3339)
	}
	if i.facts == nil {
		return ""
	}
	return i.facts.attribute(name)
}

// Values returns all values of an attribute that may have several, which are the addresses of a Machine, and nothing of others.
func (i *Item) Values(name string) []string {
	if f, ok := i.facts.(*machineFacts); ok && name == "address" {
		return f.Addresses
	}
	return nil
}

// Mentions reports whether one of the item's values or attributes contains text, which has to be in lower case.
func (i *Item) Mentions(text string) bool {
	if contains(i.Name, text) || contains(i.Namespace, text) || TextIn(i.JSON, text) {
		return true
	}
	for _, name := range Attributes[i.Topic] {
		if contains(i.Attribute(name), text) {
			return true
		}
	}
	return false
}

func contains(s, lower string) bool {
	return len(s) >= len(lower) && strings.Contains(strings.ToLower(s), lower)
}

// Listed returns the item as JSON in its list.
func (i *Item) Listed() []byte {
	if i.List != nil {
		return i.List
	}
	return i.JSON
}

// head is what the JSON of all items begins with.
type head struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace,omitempty"`
	Status    string `json:"status"`
	Phase     string `json:"phase"`
	Ready     bool   `json:"ready"`
	// Reason and Message are those of the condition Ready.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Turn and Remedy are absent if they follow from the reason alone.
	Turn   cause.Role `json:"turn,omitempty"`
	Remedy string     `json:"remedy,omitempty"`
	// Since is the last transition of the condition Ready.
	Since time.Time `json:"since,omitzero"`
	// Warnings are the other conditions that need attention, and a pause by annotation.
	Warnings []cause.Warning `json:"warnings,omitempty"`
	Deleting bool            `json:"deleting,omitempty"`
}

// tail is what the JSON of all items ends with.
type tail struct {
	CreatedAt   time.Time `json:"createdAt,omitzero"`
	LastUpdated time.Time `json:"lastUpdated,omitzero"`
}

// itemOf returns an item of an object, without its JSON.
func itemOf(topic Topic, o *Object, status, phase string, facts attributed) *Item {
	return &Item{
		Topic: topic, ID: o.UID, Namespace: o.Namespace, Name: o.Name,
		Status: status, Phase: phase, Deleting: o.Deleting, Readiness: o.Readiness,
		Created: o.Created, Updated: o.Updated, Object: o, facts: facts,
	}
}

func (i *Item) head() head {
	advice := i.Readiness.TemplateAdvice[i.Readiness.Reason]
	return head{
		ID: i.ID, Name: i.Name, Namespace: i.Namespace, Status: i.Status, Phase: i.Phase,
		Ready: i.Readiness.Ready, Reason: i.Readiness.Reason, Message: i.Readiness.Message, Since: i.Readiness.Since,
		Turn: advice.Owner, Remedy: advice.Remedy, Warnings: i.Readiness.Warnings, Deleting: i.Deleting,
	}
}

func (i *Item) tail() tail { return tail{CreatedAt: i.Created, LastUpdated: i.Updated} }

// encode encodes a struct of this package, which cannot fail.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("encode item: " + err.Error())
	}
	return b
}

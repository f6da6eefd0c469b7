package inventory

import (
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// The operators, as the API names them.
const (
	OperatorProxmox  = "proxmox"
	OperatorTalos    = "talos"
	OperatorKea      = "kea"
	OperatorKubeVirt = "kubevirt"
)

// Operators are all operators, in the order in which they are listed.
var Operators = []string{OperatorProxmox, OperatorTalos, OperatorKea, OperatorKubeVirt}

// Health of an operator.
const (
	Healthy     = "healthy"
	Degraded    = "degraded"
	Unhealthy   = "unhealthy"
	Unreachable = "unreachable"
)

// Probe is what an operator's own endpoint answered. Endpoint is where it was
// asked.
type Probe struct {
	Endpoint     string
	Status       string
	Version      string
	Message      string
	Capabilities []string
	Seen         time.Time
}

// Operator is an operator as the stack's resources and its own endpoint show it.
type Operator struct {
	Name    string
	Version string
	Status  string
	// Message says in words what is wrong.
	Message  string
	LastSeen time.Time
	Total    int
	Healthy  int
	Failed   int
	// Orphans are what the stack made there for objects that do not exist.
	Orphans int
	// Capabilities are what the operator does.
	Capabilities []string
	Endpoint     string
}

func (o *Operator) attribute(name string) string {
	if name == "version" {
		return o.Version
	}
	return ""
}

// functionOf is the Knative Service that does an operator's work.
var functionOf = map[string]string{
	OperatorProxmox: "create-vm", OperatorKubeVirt: "create-vm", OperatorKea: "kea-reserve", OperatorTalos: "bootstrap-talos",
}

// capabilitiesOf are what an operator does where it does not say so itself.
var capabilitiesOf = map[string][]string{
	OperatorProxmox:  {"machine.create", "machine.delete", "machine.power", "machine.resize"},
	OperatorKubeVirt: {"machine.create", "machine.delete", "machine.power", "machine.resize"},
	OperatorKea:      {"address.reserve", "address.release"},
	OperatorTalos:    {"cluster.create", "cluster.delete", "cluster.scale", "cluster.upgrade"},
}

// operators reads the operators that are in use out of a snapshot, the Knative
// Services, and what their endpoints have answered. One that is not in use, and
// has no endpoint, is left out.
func operators(s *Snapshot, functions []*Object, probes map[string]Probe) []*Operator {
	var all []*Operator
	for _, name := range Operators {
		o := &Operator{Name: name, Status: Healthy, Capabilities: capabilitiesOf[name], Orphans: s.Orphans(name)}
		used := o.observe(s)
		if p, ok := probes[name]; ok {
			used = true
			o.heed(p)
		}
		if !used {
			continue
		}
		for _, f := range functions {
			if f.Name == functionOf[name] && f.Story.Reason+f.Story.Message != "" && !f.Story.Ready {
				o.worsen(Degraded, "function "+f.Name+" is not ready: "+firstOf(f.Story.Message, f.Story.Reason))
			}
		}
		all = append(all, o)
	}
	return all
}

// observe reads the operator's resources, and tells whether it has any.
func (o *Operator) observe(s *Snapshot) bool {
	switch o.Name {
	case OperatorProxmox, OperatorKubeVirt:
		return o.observeProviders(s.Collection(TopicProviders).Items)
	case OperatorTalos:
		return o.observeClusters(s.Collection(TopicClusters).Items)
	default:
		return o.observeReservations(s.Collection(TopicNetworks).Items, s.Collection(TopicAddresses).Items)
	}
}

// observeProviders heeds the MachineProviders of the operator's type.
func (o *Operator) observeProviders(items []*Item) bool {
	var offline []string
	for _, i := range items {
		f := i.Object.Facts.(*Provider)
		if f.Type != o.Name {
			continue
		}
		o.Total++
		o.Version = firstOf(f.Version, o.Version)
		o.see(i.Updated)
		switch v1alpha1.ProviderPhase(f.Phase) {
		case v1alpha1.ProviderReady, v1alpha1.ProviderPending:
			o.Healthy++
		case v1alpha1.ProviderOffline:
			o.Failed++
			offline = append(offline, i.Name)
		default:
			o.Failed++
		}
	}
	switch {
	case o.Failed == 0:
	case o.Healthy > 0:
		o.worsen(Degraded, "some MachineProviders do not work")
	case len(offline) == o.Failed:
		o.worsen(Unreachable, "MachineProvider "+strings.Join(offline, ", ")+" does not answer")
	default:
		o.worsen(Unhealthy, "no MachineProvider works")
	}
	return o.Total > 0
}

// observeClusters heeds the clusters, and whether their nodes can be reached.
func (o *Operator) observeClusters(items []*Item) bool {
	unreachable := 0
	for _, i := range items {
		f := i.Object.Facts.(*Cluster)
		o.Total++
		o.see(i.Updated)
		if compareVersions(f.TalosVersion, o.Version) > 0 {
			o.Version = f.TalosVersion
		}
		unreachable += f.Unreachable
		switch i.Status {
		case StatusActive:
			o.Healthy++
		case StatusFailed:
			o.Failed++
		}
	}
	switch {
	case o.Total > 0 && o.Failed == o.Total:
		o.worsen(Unhealthy, "every cluster has failed")
	case o.Failed > 0:
		o.worsen(Degraded, "some clusters have failed")
	case unreachable > 0:
		o.worsen(Degraded, "some nodes cannot be reached")
	}
	return o.Total > 0
}

// observeReservations heeds the networks that a DHCP server serves, and the
// configurations of interfaces in them.
func (o *Operator) observeReservations(networks, addresses []*Item) bool {
	served := map[Key]bool{}
	for _, i := range networks {
		if i.Object.Facts.(*Network).Allocation == "dhcp" {
			served[Key{i.Namespace, i.Name}] = true
			served[Key{i.Namespace, ""}] = true
		}
	}
	for _, i := range addresses {
		f := i.Object.Facts.(*Address)
		if !served[Key{i.Namespace, f.Network}] {
			continue
		}
		o.Total++
		switch {
		case i.Story.Ready:
			o.Healthy++
			o.see(i.Updated)
		case i.Status == StatusFailed, unanswered(i.Story.Reason):
			o.Failed++
		}
	}
	switch {
	case o.Failed > 0 && o.Healthy == 0:
		o.worsen(Unreachable, "the DHCP server takes no reservation")
	case o.Failed > 0:
		o.worsen(Degraded, "some reservations fail")
	}
	return len(served) > 0
}

// unanswered tells whether a reason says that a backend cannot be reached.
func unanswered(reason string) bool {
	return slices.ContainsFunc([]string{"Unreachable", "Unavailable", "NotReachable", "Offline"}, func(word string) bool {
		return strings.Contains(reason, word)
	})
}

// heed takes over what the operator's own endpoint has answered.
func (o *Operator) heed(p Probe) {
	o.Endpoint = p.Endpoint
	o.Version = firstOf(p.Version, o.Version)
	if len(p.Capabilities) > 0 {
		o.Capabilities = p.Capabilities
	}
	o.see(p.Seen)
	if p.Status != Healthy {
		o.worsen(p.Status, p.Message)
	}
}

func (o *Operator) see(t time.Time) {
	if t.After(o.LastSeen) {
		o.LastSeen = t
	}
}

// worsen lowers the status, and never raises it.
func (o *Operator) worsen(status, message string) {
	rank := []string{Healthy, Degraded, Unhealthy, Unreachable}
	if slices.Index(rank, status) > slices.Index(rank, o.Status) {
		o.Status, o.Message = status, message
	}
}

// OperatorModel is the operator status model of the API.
type OperatorModel struct {
	Operator     string            `json:"operator"`
	Version      string            `json:"version"`
	Status       string            `json:"status"`
	LastSeen     time.Time         `json:"lastSeen"`
	Resources    OperatorResources `json:"resources"`
	Capabilities []string          `json:"capabilities"`
	Endpoints    OperatorEndpoints `json:"endpoints"`
}

// OperatorResources counts what an operator looks after.
type OperatorResources struct {
	Total   int `json:"total"`
	Healthy int `json:"healthy"`
	Failed  int `json:"failed"`
	Orphans int `json:"orphans,omitempty"`
}

// OperatorEndpoints are an operator's own addresses, or empty.
type OperatorEndpoints struct {
	API     string `json:"api"`
	Metrics string `json:"metrics"`
	Health  string `json:"health"`
}

func (o *Operator) model() OperatorModel {
	m := OperatorModel{
		Operator: o.Name, Version: o.Version, Status: o.Status, LastSeen: o.LastSeen,
		Resources:    OperatorResources{Total: o.Total, Healthy: o.Healthy, Failed: o.Failed, Orphans: o.Orphans},
		Capabilities: o.Capabilities,
	}
	if o.Endpoint != "" {
		base := strings.TrimSuffix(o.Endpoint, "/")
		m.Endpoints = OperatorEndpoints{API: base, Metrics: base + "/metrics", Health: base + "/healthz"}
	}
	return m
}

// operatorJSON is an operator in the stream.
type operatorJSON struct {
	head
	Version      string            `json:"version"`
	LastSeen     time.Time         `json:"lastSeen"`
	Resources    OperatorResources `json:"resources"`
	Capabilities []string          `json:"capabilities"`
	Endpoints    OperatorEndpoints `json:"endpoints"`
}

// operatorChanges compares the operators with the items that there are.
func operatorChanges(last *Collection, now []*Operator) map[string]*Item {
	changes := map[string]*Item{}
	for _, i := range last.Items {
		changes[i.ID] = nil
	}
	for _, o := range now {
		i := &Item{
			Topic: TopicOperators, ID: o.Name, Name: o.Name, Status: o.Status, Phase: o.Status,
			Story: Story{Ready: o.Status == Healthy, Message: o.Message}, Updated: o.LastSeen, facts: o,
		}
		if !i.Story.Ready {
			i.Story.Reason = strings.ToUpper(o.Status[:1]) + o.Status[1:]
		}
		if old := last.Find(o.Name); old != nil && old.Status == i.Status {
			i.Story.Since = old.Story.Since
		} else {
			i.Story.Since = o.LastSeen
		}
		m := o.model()
		i.List = encode(m)
		i.JSON = encode(operatorJSON{
			head: i.head(), Version: m.Version, LastSeen: m.LastSeen, Resources: m.Resources,
			Capabilities: m.Capabilities, Endpoints: m.Endpoints,
		})
		changes[o.Name] = i
	}
	return changes
}

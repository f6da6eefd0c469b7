package inventory

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Health of an operator.
const (
	Healthy     = "healthy"
	Degraded    = "degraded"
	Unhealthy   = "unhealthy"
	Unreachable = "unreachable"
)

// Probe is the response of an operator's own endpoint.
type Probe struct {
	Endpoint     string
	Status       string
	Version      string
	Message      string
	Capabilities []string
	Seen         time.Time
}

// Operator is the health of an operator, derived from the stack's resources and from its own endpoint.
type Operator struct {
	Name    string
	Version string
	Status  string
	// Message says what is wrong.
	Message  string
	LastSeen time.Time
	Total    int
	Healthy  int
	Failed   int
	// Orphans counts what the stack created there for objects that do not exist.
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

// operators returns the operators that are in use, according to the collections of a snapshot, the Knative Services, and the
// responses of the operators' endpoints.
func operators(s *Snapshot, functions []*Object, probes map[string]Probe) []*Operator {
	var all []*Operator
	for _, kind := range backend.Operators() {
		o := &Operator{Name: kind.Name, Status: Healthy, Capabilities: kind.Operator.Capabilities, Orphans: s.Orphans(kind.Name)}
		used := o.observe(s, kind.Layer)
		if p, ok := probes[kind.Name]; ok {
			used = true
			o.mergeProbe(p)
		}
		if !used {
			continue
		}
		for _, f := range functions {
			if f.Name == kind.Function && f.Readiness.Reason+f.Readiness.Message != "" && !f.Readiness.Ready {
				o.mergeStatus(Degraded, "function "+f.Name+" is not ready: "+cmp.Or(f.Readiness.Message, f.Readiness.Reason))
			}
		}
		all = append(all, o)
	}
	return all
}

// observeProviders derives the health of a hypervisor from its MachineProviders.
func (o *Operator) observeProviders(s *Snapshot) bool {
	var offline []string
	for _, i := range s.Collection(TopicProviders).Items {
		f := i.Object.Facts.(*Provider)
		if f.Type != o.Name {
			continue
		}
		o.Total++
		o.Version = cmp.Or(f.Version, o.Version)
		o.mergeLastSeen(i.Updated)
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
		o.mergeStatus(Degraded, "some MachineProviders do not work")
	case len(offline) == o.Failed:
		o.mergeStatus(Unreachable, "MachineProvider "+strings.Join(offline, ", ")+" does not answer")
	default:
		o.mergeStatus(Unhealthy, "no MachineProvider works")
	}
	return o.Total > 0
}

// observeClusters derives the health of Talos from the clusters and the reachability of their nodes.
func (o *Operator) observeClusters(s *Snapshot) bool {
	unreachable := 0
	for _, i := range s.Collection(TopicClusters).Items {
		f := i.Object.Facts.(*Cluster)
		o.Total++
		o.mergeLastSeen(i.Updated)
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
		o.mergeStatus(Unhealthy, "every cluster has failed")
	case o.Failed > 0:
		o.mergeStatus(Degraded, "some clusters have failed")
	case unreachable > 0:
		o.mergeStatus(Degraded, "some nodes cannot be reached")
	}
	return o.Total > 0
}

// observeReservations derives the health of Kea from the NetworkConfigurations in networks with DHCP.
func (o *Operator) observeReservations(s *Snapshot) bool {
	served := map[Key]bool{}
	for _, i := range s.Collection(TopicNetworks).Items {
		if i.Object.Facts.(*Network).Allocation == "dhcp" {
			served[Key{i.Namespace, i.Name}] = true
			served[Key{i.Namespace, ""}] = true
		}
	}
	for _, i := range s.Collection(TopicAddresses).Items {
		f := i.Object.Facts.(*Address)
		if !served[Key{i.Namespace, f.Network}] {
			continue
		}
		o.Total++
		switch {
		case i.Readiness.Ready:
			o.Healthy++
			o.mergeLastSeen(i.Updated)
		case i.Status == StatusFailed, isUnreachable(i.Readiness.Reason):
			o.Failed++
		}
	}
	switch {
	case o.Failed > 0 && o.Healthy == 0:
		o.mergeStatus(Unreachable, "the DHCP server takes no reservation")
	case o.Failed > 0:
		o.mergeStatus(Degraded, "some reservations fail")
	}
	return len(served) > 0
}

// isUnreachable reports whether a reason says that a backend cannot be reached.
func isUnreachable(reason string) bool {
	return slices.ContainsFunc([]string{"Unreachable", "Unavailable", "NotReachable", "Offline"}, func(word string) bool {
		return strings.Contains(reason, word)
	})
}

// mergeProbe merges the response of the operator's own endpoint.
func (o *Operator) mergeProbe(p Probe) {
	o.Endpoint = p.Endpoint
	o.Version = cmp.Or(p.Version, o.Version)
	if len(p.Capabilities) > 0 {
		o.Capabilities = p.Capabilities
	}
	o.mergeLastSeen(p.Seen)
	if p.Status != Healthy {
		o.mergeStatus(p.Status, p.Message)
	}
}

func (o *Operator) mergeLastSeen(t time.Time) {
	if t.After(o.LastSeen) {
		o.LastSeen = t
	}
}

// mergeStatus keeps the worse of two statuses.
func (o *Operator) mergeStatus(status, message string) {
	rank := []string{Healthy, Degraded, Unhealthy, Unreachable}
	if slices.Index(rank, status) > slices.Index(rank, o.Status) {
		o.Status, o.Message = status, message
	}
}

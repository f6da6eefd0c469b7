package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Health of an operator.
const (
	Healthy     = string(backend.Healthy)
	Degraded    = string(backend.Degraded)
	Unhealthy   = string(backend.Unhealthy)
	Unreachable = string(backend.Unreachable)
)

// phaseOffline is the phase of a MachineProvider whose hypervisor does not answer.
const phaseOffline = string(v1alpha1.ProviderOffline)

// Probe is the response of an operator's own endpoint.
type Probe struct {
	Endpoint     string
	Status       string
	Version      string
	Message      string
	Capabilities []string
	Seen         time.Time
}

// Operator is the health of an operator. Its sources are the reports of the functions about its servers, the probes of nodes, the
// objects whose reason is an outage of the backend, and the operator's own endpoint. No other failure of an object counts, so that
// a mistake of a requester changes the health of no operator.
type Operator struct {
	Name    string
	Version string
	Status  string
	// Message says what is wrong.
	Message string
	// LastSeen is when the backend last answered. Since is when Status changed, or zero if no source says so.
	LastSeen time.Time
	Since    time.Time
	Total    int
	Healthy  int
	// Failed counts the resources that fail because of the backend.
	Failed int
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

// operators returns the operators that are in use, according to the collections of a snapshot, the reachability of clusters by UID, the
// Knative Services, and the responses of the operators' endpoints.
func operators(s *Snapshot, reachability map[string]NodeReachability, functions []*Object, probes map[string]Probe) []*Operator {
	var all []*Operator
	for _, kind := range backend.Operators() {
		o := &Operator{Name: kind.Name, Status: Healthy, Capabilities: kind.Operator.Capabilities, Orphans: s.Orphans(kind.Name)}
		used := o.observe(s, reachability, kind.Layer)
		if p, ok := probes[kind.Name]; ok {
			used = true
			o.mergeProbe(p)
		}
		if !used {
			continue
		}
		for _, f := range functions {
			if f.Name == kind.Function && f.Readiness.Reason+f.Readiness.Message != "" && !f.Readiness.Ready {
				o.mergeStatus(Degraded, "function "+f.Name+" is not ready: "+cmp.Or(f.Readiness.Message, f.Readiness.Reason), f.Readiness.Since)
			}
		}
		all = append(all, o)
	}
	return all
}

// observe derives the health of an operator from the inventory and the reachability of clusters, by the layer of its backend. It reports whether the operator is
// used.
func (o *Operator) observe(s *Snapshot, reachability map[string]NodeReachability, layer backend.Layer) bool {
	switch layer {
	case backend.LayerMachine:
		return o.observeProviders(s)
	case backend.LayerCluster:
		return o.observeClusters(s, reachability)
	default:
		return o.observeReservations(s)
	}
}

// observeProviders derives the health of a hypervisor from its MachineProviders:
//
//	phase Failed    unhealthy
//	with a report   what the report says
//	phase Offline   unreachable
//	otherwise       healthy
func (o *Operator) observeProviders(s *Snapshot) bool {
	reports := map[string]Server{}
	for _, server := range s.serversOfKind(o.Name) {
		reports[server.Name] = server
	}
	var servers []Server
	for _, i := range s.Collection(TopicProviders).Items {
		f := i.Object.Facts.(*Provider)
		if f.Type != o.Name {
			continue
		}
		o.Version = cmp.Or(f.Version, o.Version)
		server, reported := reports[i.Name]
		if !reported {
			server = Server{Status: backend.Healthy, Since: i.Readiness.Since, LastSeen: i.Updated}
			if f.Phase == phaseOffline {
				server = Server{Status: backend.Unreachable, Since: i.Readiness.Since, Message: i.Readiness.Message}
			}
		}
		if v1alpha1.ProviderPhase(f.Phase) == v1alpha1.ProviderFailed {
			server.Status, server.Message, server.Since = backend.Unhealthy, i.Readiness.Message, i.Readiness.Since
		}
		server.Name = i.Name
		servers = append(servers, server)
	}
	o.Total = len(servers)
	for _, server := range servers {
		if server.Status == backend.Healthy {
			o.Healthy++
		} else {
			o.Failed++
		}
	}
	o.mergeServers("MachineProvider", servers)
	return o.Total > 0
}

// observeClusters derives the health of Talos from the probes of nodes, and from the clusters that bootstrap-talos cannot reach. A
// cluster counts once it has been bootstrapped and while one of its Machines runs: a hypervisor that is down, and a requester who
// stops machines, say nothing about Talos.
func (o *Operator) observeClusters(s *Snapshot, reachability map[string]NodeReachability) bool {
	hasSilent := false
	for _, i := range s.Collection(TopicClusters).Items {
		f, r := i.Object.Facts.(*Cluster), reachability[i.Object.UID]
		o.countCluster(i, f, r)
		hasSilent = hasSilent || mayBeSilent(i, f, r)
	}
	if hasSilent {
		o.mergeSilence(s, reachability)
	}
	return o.Total > 0
}

// mergeSilence merges how many clusters and nodes do not answer. It reads all Machines, so it is for a snapshot in which one does not.
func (o *Operator) mergeSilence(s *Snapshot, reachability map[string]NodeReachability) {
	running := runningNodesOf(s)
	var silent []string
	var since time.Time
	counted, silentNodes := 0, 0
	for _, i := range s.Collection(TopicClusters).Items {
		f, r, nodes := i.Object.Facts.(*Cluster), reachability[i.Object.UID], running[Key{i.Namespace, i.Name}]
		if !f.Bootstrapped || i.Deleting || len(nodes) == 0 {
			continue
		}
		counted++
		isSilent, n, began := silenceOf(i, f, r, nodes)
		if isSilent {
			silent = append(silent, i.Namespace+"/"+i.Name)
		}
		silentNodes, since = silentNodes+n, later(since, began)
	}
	o.Failed = len(silent)
	switch {
	case len(silent) > 0 && len(silent) == counted:
		o.mergeStatus(Unreachable, "no node of any cluster answers", since)
	case len(silent) > 0:
		o.mergeStatus(Degraded, "some clusters do not answer: "+joinNames(silent), since)
	case silentNodes > 0:
		o.mergeStatus(Degraded, "some nodes do not answer", since)
	}
}

// countCluster counts a cluster, and merges its version and when its nodes last answered.
func (o *Operator) countCluster(i *Item, f *Cluster, r NodeReachability) {
	o.Total++
	if compareVersions(f.TalosVersion, o.Version) > 0 {
		o.Version = f.TalosVersion
	}
	o.mergeLastSeen(r.LastSeen)
	if i.Status != StatusActive || !i.Readiness.Ready {
		return
	}
	o.Healthy++
	if r.LastSeen.IsZero() {
		o.mergeLastSeen(i.Readiness.Since)
	}
}

// runningNodesOf returns the names of the Machines that run, by their cluster.
func runningNodesOf(s *Snapshot) map[Key]map[string]bool {
	running := map[Key]map[string]bool{}
	for _, i := range s.Collection(TopicMachines).Items {
		if i.Status != StatusRunning {
			continue
		}
		cluster := Key{i.Namespace, i.Attribute("cluster")}
		if running[cluster] == nil {
			running[cluster] = map[string]bool{}
		}
		running[cluster][i.Name] = true
	}
	return running
}

// mayBeSilent reports whether silenceOf can return anything for a cluster, whichever of its Machines run.
func mayBeSilent(i *Item, f *Cluster, r NodeReachability) bool {
	return r.Silent > 0 || isOutage(i.Readiness.Reason) || len(f.UnreachableNodes) > 0
}

// silenceOf returns whether a cluster does not answer at all, how many of its nodes do not answer otherwise, and since when. running are
// the nodes whose Machine runs. Without any probe, because the gateway has no route to the nodes, the status of the cluster decides.
func silenceOf(i *Item, f *Cluster, r NodeReachability, running map[string]bool) (all bool, nodes int, since time.Time) {
	switch {
	case r.isSilent():
		return true, 0, r.Since
	case isOutage(i.Readiness.Reason) && r.Answering == 0:
		return true, 0, i.Readiness.Since
	case !r.LastSeen.IsZero():
		if r.Silent > 0 {
			since = r.Since
		}
		return false, r.Silent, since
	}
	for _, name := range f.UnreachableNodes {
		if running[name] {
			nodes, since = nodes+1, i.Readiness.Since
		}
	}
	return false, nodes, since
}

// observeReservations derives the health of Kea from the reports about its servers. Reservations in networks with DHCP count if Kea is
// why they fail: without any report in all cases, and with one if Kea answers and still makes none.
func (o *Operator) observeReservations(s *Snapshot) bool {
	served := map[Key]bool{}
	for _, i := range s.Collection(TopicNetworks).Items {
		if i.Object.Facts.(*Network).Allocation == "dhcp" {
			served[Key{i.Namespace, i.Name}] = true
			served[Key{i.Namespace, ""}] = true
		}
	}
	servers := s.serversOfKind(o.Name)
	worst, since := backend.Healthy, time.Time{}
	for _, i := range s.Collection(TopicAddresses).Items {
		f := i.Object.Facts.(*Address)
		if !served[Key{i.Namespace, f.Network}] {
			continue
		}
		o.Total++
		if i.Readiness.Ready {
			o.Healthy++
			if len(servers) == 0 {
				o.mergeLastSeen(i.Updated)
			}
			continue
		}
		health, outage := backend.OutageOf(i.Readiness.Reason)
		if !outage {
			continue
		}
		o.Failed++
		if len(servers) == 0 || health != backend.Unreachable {
			worst, since = worse(worst, health), later(since, i.Readiness.Since)
		}
	}
	o.mergeServers("the Kea server", servers)
	switch {
	case worst == backend.Healthy:
	case o.Healthy > 0:
		o.mergeStatus(Degraded, "some reservations fail", since)
	default:
		o.mergeStatus(string(worst), "the DHCP server takes no reservation", since)
	}
	return len(served) > 0 || len(servers) > 0
}

// mergeServers merges the servers of a backend: all have to fail for the worst of their statuses, otherwise the backend is degraded.
// what names one server in messages.
func (o *Operator) mergeServers(what string, servers []Server) {
	worst, failed := backend.Healthy, []string{}
	var since, healthySince time.Time
	message := ""
	for _, server := range servers {
		o.mergeLastSeen(server.LastSeen)
		if server.Status == backend.Healthy {
			healthySince = later(healthySince, server.Since)
			continue
		}
		worst, since = worse(worst, server.Status), later(since, server.Since)
		failed = append(failed, server.Name)
		message = cmp.Or(message, server.Message)
	}
	if len(failed) == 0 {
		o.Since = healthySince
		return
	}
	status, verb := string(worst), "does not answer"
	if worst != backend.Unreachable {
		verb = "cannot be used"
	}
	if len(failed) < len(servers) {
		status = Degraded
	}
	o.mergeStatus(status, strings.TrimSuffix(fmt.Sprintf("%s %s %s: %s", what, joinNames(failed), verb, message), ": "), since)
}

// isOutage reports whether a reason says that the backend is the cause.
func isOutage(reason string) bool {
	_, ok := backend.OutageOf(reason)
	return ok
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
		o.mergeStatus(p.Status, p.Message, time.Time{})
	}
}

func (o *Operator) mergeLastSeen(t time.Time) { o.LastSeen = later(o.LastSeen, t) }

// mergeStatus keeps the worse of two statuses, with its message and with the time at which it began.
func (o *Operator) mergeStatus(status, message string, since time.Time) {
	if worse(backend.Health(o.Status), backend.Health(status)) != backend.Health(o.Status) {
		o.Status, o.Message, o.Since = status, message, since
	}
}

// worse returns the worse of two, and the first if they are equal.
func worse(a, b backend.Health) backend.Health {
	order := []backend.Health{backend.Healthy, backend.Degraded, backend.Unhealthy, backend.Unreachable}
	if slices.Index(order, b) > slices.Index(order, a) {
		return b
	}
	return a
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// joinNames joins the first names of a list and counts the others.
func joinNames(names []string) string {
	const named = 3
	if len(names) <= named {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:named], ", "), len(names)-named)
}

// Package heartbeat finds out whether events flow. The event of a PingSource goes through the Broker to the gateway, which then renews a
// Lease; both ApiServerSources report that change through the Broker, and the gateway renews a Lease for each. Resync renews its own.
// All replicas watch these Leases, so that each knows what another has received.
package heartbeat

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/robfig/cron/v3"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/inventory"
)

// Leases in the stack's namespace. knative/gateway.yaml has the first three, and the function resync creates the last.
const (
	leaseBroker    = "heartbeat-broker"
	leaseSource    = "heartbeat-vitistack"
	leaseResources = "heartbeat-vitistack-resources"
	leaseResync    = "resync"
)

const (
	// checkInterval is the time between two checks of all heartbeats.
	checkInterval = time.Second
	// writeInterval is the shortest time between two renewals of a Lease, however many events arrive.
	writeInterval = time.Second
	// owner is the role that resolves problems of what events flow through.
	owner = "platform team"
	// observer identifies this package for Store.SetDependencies.
	observer = "heartbeat"
)

// Watcher records heartbeats and decides what works. Its methods are safe for concurrent use.
type Watcher struct {
	Store *inventory.Store
	// Namespace is the stack's.
	Namespace string
	// Heartbeats is the schedule of PingSource heartbeat, Rounds that of PingSource resync. Without one nothing is expected of it.
	Heartbeats, Rounds cron.Schedule
	// Renew writes the time into a Lease.
	Renew func(ctx context.Context, namespace, name string, now time.Time) error

	mu sync.Mutex
	// received are the times of the heartbeats that this process has received, by Lease. They count also if the Lease cannot be written.
	received map[string]time.Time
	last     []inventory.Dependency
	// broker is the status of the Broker, and flowing the time since which it has been healthy.
	broker  string
	flowing time.Time
}

// LeaseOf returns the Lease that an event renews, and false if the event is no heartbeat of this installation.
func (w *Watcher) LeaseOf(e event.Event) (string, bool) {
	if e.Type() == events.TypePing {
		return leaseBroker, e.Source() == "/apis/v1/namespaces/"+w.Namespace+"/pingsources/heartbeat"
	}
	ref, err := events.RefOf(e)
	if err != nil || !events.IsChange(e.Type()) || ref.Kind != string(inventory.KindLease) || ref.Namespace != w.Namespace || ref.Name != leaseBroker {
		return "", false
	}
	if strings.HasPrefix(e.Type(), "dev.knative.apiserver.resource.") {
		return leaseResources, true
	}
	return leaseSource, true
}

// Record records a heartbeat, and renews its Lease unless that has just been done.
func (w *Watcher) Record(ctx context.Context, lease string, now time.Time) error {
	w.mu.Lock()
	recent := now.Sub(w.received[lease]) < writeInterval
	if w.received == nil {
		w.received = map[string]time.Time{}
	}
	w.received[lease] = now
	w.mu.Unlock()
	if recent {
		return nil
	}
	return w.Renew(ctx, w.Namespace, lease, now)
}

// Run checks all heartbeats until ctx ends.
func (w *Watcher) Run(ctx context.Context) {
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	started := time.Now()
	for {
		w.Store.SetDependencies(observer, w.check(started, time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// Last returns the dependencies of the last check, with the exact times of their heartbeats.
func (w *Watcher) Last() []inventory.Dependency {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// check decides the status of each dependency. started is when this process began to observe. What comes through the Broker is unknown
// while the Broker is silent, and expected again from the Broker's recovery on.
func (w *Watcher) check(started, now time.Time) (all []inventory.Dependency) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := w.lastSeen()
	add := func(d dependency, schedule cron.Schedule, expected time.Time) string {
		status := decide(schedule, seen[d.lease], expected, now)
		if d.lease != leaseBroker && w.broker == inventory.Unhealthy && status == inventory.Unhealthy {
			status = inventory.Unknown
		}
		all = append(all, d.report(status, seen[d.lease], w.Namespace, now))
		return status
	}
	expected := started
	if w.Heartbeats != nil {
		status := add(broker, w.Heartbeats, started)
		if status != w.broker && status == inventory.Healthy {
			w.flowing = now
		}
		w.broker = status
		if w.flowing.After(started) {
			expected = w.flowing
		}
		add(source, w.Heartbeats, expected)
		add(resources, w.Heartbeats, expected)
	}
	if w.Rounds != nil {
		add(resync, w.Rounds, expected)
	}
	w.last = all
	return all
}

// lastSeen returns when the heartbeat of each Lease last arrived, at this replica or another.
func (w *Watcher) lastSeen() map[string]time.Time {
	seen := map[string]time.Time{}
	for lease, at := range w.received {
		seen[lease] = at.UTC()
	}
	for _, o := range w.Store.Objects(inventory.KindLease) {
		if renewed := o.Facts.(*inventory.Lease).Renewed; renewed.After(seen[o.Name]) {
			seen[o.Name] = renewed
		}
	}
	return seen
}

// dependency is what one Lease shows.
type dependency struct {
	kind, name, lease string
	// reason and problem describe the silence. problem is a format for the namespace.
	reason, problem string
}

var (
	broker = dependency{
		inventory.DependencyBroker, "", leaseBroker, "BrokerSilent",
		"No event of PingSource heartbeat has come through Broker vitistack for three intervals, so changes start no function. " +
			`Run "kubectl -n %[1]s get broker,trigger,pingsource": repair what is not Ready. If all are Ready, restart the Deployments of the Broker's class in Knative's namespace.`,
	}
	source = dependency{
		inventory.DependencyEventSource, "vitistack", leaseSource, "EventSourceSilent", fmt.Sprintf(sourceProblem, "vitistack"),
	}
	resources = dependency{
		inventory.DependencyEventSource, "vitistack-resources", leaseResources, "EventSourceSilent", fmt.Sprintf(sourceProblem, "vitistack-resources"),
	}
	resync = dependency{
		inventory.DependencyResync, "", leaseResync, "ResyncSilent",
		"The function resync has not worked on a full round for three intervals of PingSource resync, so lost events stay lost. " +
			`Run "kubectl -n %[1]s get ksvc,trigger,pingsource resync", repair what is not Ready, and read the log of resync.`,
	}
)

// sourceProblem is the problem of an ApiServerSource.
const sourceProblem = "No change of Lease heartbeat-broker has come from ApiServerSource %[1]s for three intervals, so changes are noticed late, by resync. " +
	`Run "kubectl -n %%[1]s describe apiserversource %[1]s", and read the log of its pod. ` +
	"With eventSource.namespaceSelector, give namespace %%[1]s a label that it selects."

// report describes the dependency with a status at a time.
func (d dependency) report(status string, seen time.Time, namespace string, now time.Time) inventory.Dependency {
	r := inventory.Dependency{Kind: d.kind, Name: d.name, Owner: owner, Status: status, Since: now.UTC(), LastSeen: seen}
	if status == inventory.Unhealthy {
		r.Reason, r.Message = d.reason, fmt.Sprintf(d.problem, namespace)
	}
	return r
}

package health

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/vitistack/stack/apis/backend"
	"github.com/vitistack/stack/gateway/internal/inventory"
	"github.com/vitistack/stack/gateway/internal/response"
)

// Status of the gateway, of a dependency, and of all operators.
const (
	healthy   = "healthy"
	degraded  = "degraded"
	unhealthy = "unhealthy"
)

// report holds the responses of all health routes at one moment.
type report struct {
	overall, operators, backends, dependencies, database, cache response.Encoded
}

type overallJSON struct {
	Status    string     `json:"status"`
	Timestamp time.Time  `json:"timestamp"`
	Checks    checksJSON `json:"checks"`
}

type checksJSON struct {
	Database  string            `json:"database"`
	Cache     string            `json:"cache"`
	Operators map[string]string `json:"operators"`
	// Backends are the backends of the network layer that the installation has, which are no operators.
	Backends map[string]string `json:"backends,omitempty"`
	// Broker, EventSource and Resync are what events flow through, if heartbeats are expected.
	Broker      string `json:"broker,omitempty"`
	EventSource string `json:"eventSource,omitempty"`
	Resync      string `json:"resync,omitempty"`
}

type dependencyJSON struct {
	Status    string    `json:"status"`
	Mode      string    `json:"mode"`
	Message   string    `json:"message,omitempty"`
	Timestamp time.Time `json:"timestamp"`
}

type operatorsJSON struct {
	Status    string                  `json:"status"`
	Timestamp time.Time               `json:"timestamp"`
	Operators map[string]operatorJSON `json:"operators"`
}

type operatorJSON struct {
	Configured bool   `json:"configured"`
	Status     string `json:"status,omitempty"`
	Message    string `json:"message,omitempty"`
}

type dependenciesJSON struct {
	Status       string                 `json:"status"`
	Timestamp    time.Time              `json:"timestamp"`
	Dependencies []inventory.Dependency `json:"dependencies"`
}

type backendsJSON struct {
	Status    string             `json:"status"`
	Timestamp time.Time          `json:"timestamp"`
	Backends  []inventory.Server `json:"backends"`
}

// observation is what a report is encoded from.
type observation struct {
	ready           bool
	database, cache Dependency
	// operators are those in use.
	operators    []*inventory.Item
	servers      []inventory.Server
	dependencies []inventory.Dependency
}

// newReport encodes the health of the gateway. Anonymous callers may read it, so it has no message of a
// backend, which names its address.
func newReport(o observation, now time.Time) *report {
	all := operatorsJSON{Status: healthy, Timestamp: now, Operators: map[string]operatorJSON{}}
	checks := map[string]string{}
	down := 0
	for _, name := range inventory.Operators {
		all.Operators[name] = operatorJSON{}
	}
	for _, i := range o.operators {
		all.Operators[i.ID] = operatorJSON{Configured: true, Status: i.Status, Message: withoutDetail(i.Readiness.Message)}
		checks[i.ID] = operatorCheck(i.Status)
		if checks[i.ID] != healthy {
			down++
		}
		if i.Status != inventory.Healthy {
			all.Status = degraded
		}
	}
	if down > 0 {
		all.Status = unhealthy
	}
	backends, networks := newBackends(o.servers, now)
	flow := worstOf(o.dependencies)
	less := all.Status != healthy || backends.Status != healthy || flow[inventory.DependencyEventSource] == unhealthy || flow[inventory.DependencyResync] == unhealthy
	overall := overallJSON{
		Status:    overallStatus(o.ready && flow[inventory.DependencyBroker] != unhealthy, o.database.Err, o.cache.Err, less, down > 0 && down == len(o.operators)),
		Timestamp: now,
		Checks: checksJSON{
			Database: statusOf(o.database.Err), Cache: statusOf(o.cache.Err), Operators: checks, Backends: networks,
			Broker: flow[inventory.DependencyBroker], EventSource: flow[inventory.DependencyEventSource], Resync: flow[inventory.DependencyResync],
		},
	}
	parts := dependenciesJSON{Status: healthy, Timestamp: now, Dependencies: append([]inventory.Dependency{}, o.dependencies...)}
	if slices.ContainsFunc(o.dependencies, func(d inventory.Dependency) bool { return d.Status == unhealthy }) {
		parts.Status = unhealthy
	}
	return &report{
		overall: encode(overall.Status, overall), operators: encode(all.Status, all), backends: encode(backends.Status, backends), dependencies: encode(parts.Status, parts),
		database: o.database.encode(now), cache: o.cache.encode(now),
	}
}

// worstOf returns the worst status of each kind of dependency.
func worstOf(dependencies []inventory.Dependency) map[string]string {
	order := []string{healthy, inventory.Unknown, unhealthy}
	worst := map[string]string{}
	for _, d := range dependencies {
		if before, known := worst[d.Kind]; !known || slices.Index(order, d.Status) > slices.Index(order, before) {
			worst[d.Kind] = d.Status
		}
	}
	return worst
}

// newBackends returns the health of all backends, and of the backends of the network layer by name. A backend with some working servers
// makes the status degraded, and a backend without one makes it unhealthy.
func newBackends(servers []inventory.Server, now time.Time) (all backendsJSON, networks map[string]string) {
	all, networks = backendsJSON{Status: healthy, Timestamp: now, Backends: []inventory.Server{}}, map[string]string{}
	works := map[string]bool{}
	for _, server := range servers {
		server.Message = ""
		all.Backends = append(all.Backends, server)
		works[server.Backend] = works[server.Backend] || server.Status == backend.Healthy || server.Status == backend.Degraded
		if server.Status != backend.Healthy {
			all.Status = degraded
		}
		if kind, _ := backend.Find(server.Backend); kind.Layer == backend.LayerNetwork {
			networks[server.Backend] = string(server.Status)
		}
	}
	if slices.Contains(slices.Collect(maps.Values(works)), false) {
		all.Status = unhealthy
	}
	return all, networks
}

// withoutDetail returns what a message says before its first colon.
func withoutDetail(message string) string {
	short, _, _ := strings.Cut(message, ": ")
	return short
}

// encode encodes a response, with status 503 if the gateway, the operators or a dependency are unhealthy.
func encode(status string, v any) response.Encoded {
	if status == unhealthy {
		return response.Encode(http.StatusServiceUnavailable, v)
	}
	return response.Encode(http.StatusOK, v)
}

// operatorCheck returns an operator's status in the words of /health, where a degraded operator counts as healthy.
func operatorCheck(status string) string {
	if status == inventory.Degraded {
		return healthy
	}
	return status
}

// overallStatus returns unhealthy if the gateway cannot serve or no events flow, and degraded if it serves with less than it is configured for.
func overallStatus(works bool, database, cache error, operatorDown, allOperatorsDown bool) string {
	switch {
	case !works, database != nil, allOperatorsDown:
		return unhealthy
	case cache != nil, operatorDown:
		return degraded
	default:
		return healthy
	}
}

func statusOf(err error) string {
	if err != nil {
		return unhealthy
	}
	return healthy
}

// encode encodes the state of a dependency. Anonymous callers may read it, so it has no text of the error, which names addresses and users; the
// log has it.
func (d Dependency) encode(now time.Time) response.Encoded {
	out := dependencyJSON{Status: statusOf(d.Err), Mode: d.Mode, Timestamp: now}
	if d.Err != nil {
		out.Message = "it cannot be used: the log of the gateway says why"
	}
	return encode(out.Status, out)
}

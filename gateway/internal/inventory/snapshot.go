package inventory

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vitistack/stack/gateway/internal/httpbody"
)

// Snapshot is the inventory at one moment. It is immutable.
type Snapshot struct {
	Epoch   string
	Version uint64
	Time    time.Time

	collections    map[Topic]*Collection
	functions      []functionJSON
	orphans        []orphansJSON
	orphanCounts   map[string]int
	servers        []Server
	backups        []BackupState
	dependencies   []Dependency
	summary        []byte
	infrastructure httpbody.Body
}

// Collection returns the items of a topic.
func (s *Snapshot) Collection(topic Topic) *Collection { return s.collections[topic] }

// Summary returns the counts of all topics as JSON.
func (s *Snapshot) Summary() []byte { return s.summary }

// Infrastructure returns the body of GET /infrastructure.
func (s *Snapshot) Infrastructure() httpbody.Body { return s.infrastructure }

// ETag returns the strong entity tag of a response that depends on the whole snapshot.
func (s *Snapshot) ETag() string { return s.Epoch + "-" + strconv.FormatUint(s.Version, 10) }

// functionJSON is the readiness of a function's Knative Service. A Service without conditions counts as ready.
type functionJSON struct {
	Name    string    `json:"name"`
	Ready   bool      `json:"ready"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// functionsOf returns the functions in the order of their names.
func functionsOf(objects []*Object) []functionJSON {
	all := make([]functionJSON, 0, len(objects))
	for _, o := range objects {
		f := functionJSON{Name: o.Name, Ready: o.Readiness.Ready || o.Readiness.Reason+o.Readiness.Message == "", Since: o.Readiness.Since}
		if !f.Ready {
			f.Reason, f.Message = o.Readiness.Reason, o.Readiness.Message
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b functionJSON) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// finish encodes the sums over the collections.
func (s *Snapshot) finish() {
	tallies := make(map[Topic]Tally, len(s.collections))
	for topic, c := range s.collections {
		tallies[topic] = c.Tally
	}
	s.summary = encode(struct {
		Topics    map[Topic]Tally `json:"topics"`
		Functions []functionJSON  `json:"functions"`
		Orphans   []orphansJSON   `json:"orphans,omitempty"`
		Backends  []Server        `json:"backends,omitempty"`
		// Dependencies are what the whole stack depends on.
		Dependencies []Dependency `json:"dependencies,omitempty"`
	}{tallies, s.functions, s.orphans, s.servers, s.dependencies})
	s.infrastructure = httpbody.New(encode(s.infrastructureOf()))
}

type infrastructureJSON struct {
	Summary   summaryJSON               `json:"summary"`
	Operators map[string]summedOperator `json:"operators"`
}

type summaryJSON struct {
	Machines machineCount `json:"machines"`
	Networks networkCount `json:"networks"`
	Storage  storageCount `json:"storage"`
}

type machineCount struct {
	Total   int `json:"total"`
	Running int `json:"running"`
	Pending int `json:"pending"`
	Failed  int `json:"failed"`
}

type networkCount struct {
	Total  int `json:"total"`
	Active int `json:"active"`
}

type storageCount struct {
	Total     int `json:"total"`
	Available int `json:"available"`
}

type summedOperator struct {
	Status    string            `json:"status"`
	Version   string            `json:"version"`
	Resources OperatorResources `json:"resources"`
}

// notConfigured is the status of an operator that nothing uses.
const notConfigured = "unknown"

func (s *Snapshot) infrastructureOf() infrastructureJSON {
	machines, networks := s.collections[TopicMachines], s.collections[TopicNetworks]
	out := infrastructureJSON{
		Summary: summaryJSON{
			Machines: machineCount{
				Total: machines.Tally.Total, Running: machines.Tally.ByStatus[StatusRunning],
				Pending: machines.Tally.ByStatus[StatusPending], Failed: machines.Tally.ByStatus[StatusFailed],
			},
			Networks: networkCount{Total: networks.Tally.Total, Active: networks.Tally.ByStatus[StatusRunning]},
		},
		Operators: map[string]summedOperator{},
	}
	for _, i := range machines.Items {
		m := i.Object.Facts.(*Machine)
		out.Summary.Storage.Total += len(m.Volumes)
		if m.StorageReady {
			out.Summary.Storage.Available += len(m.Volumes)
		}
	}
	for _, name := range Operators {
		out.Operators[name] = summedOperator{Status: notConfigured}
		if i := s.collections[TopicOperators].Find(name); i != nil {
			m := i.facts.(*Operator).model()
			out.Operators[name] = summedOperator{Status: m.Status, Version: m.Version, Resources: m.Resources}
		}
	}
	return out
}

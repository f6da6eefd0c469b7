package inventory

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vitistack/stack/apis/backend"
)

// Servers are the servers of backends, as the functions have last seen them, by their keys.
type Servers struct {
	Reports map[string]backend.Report
}

// fromBackends reads the ConfigMap backends. A report that cannot be read, or that is about an unknown kind, is left out until a
// function writes it again.
func fromBackends(c *corev1.ConfigMap) (*Object, error) {
	facts := &Servers{Reports: map[string]backend.Report{}}
	for key, text := range c.Data {
		var r backend.Report
		name, _ := backend.ParseReportKey(key)
		if _, known := backend.Find(name); known && json.Unmarshal([]byte(text), &r) == nil && r.Health != "" {
			facts.Reports[key] = r
		}
	}
	o, err := newObject(KindBackends, "v1", &c.ObjectMeta, facts, nil, nil)
	if err != nil {
		return nil, err
	}
	o.Annotations = nil
	return o, nil
}

// Server is one server of a backend. In JSON it is part of the summary and of /health/backends.
type Server struct {
	Backend string `json:"backend"`
	// Name is the MachineProvider, or the role of one server of several.
	Name string `json:"name,omitempty"`
	// Owner is the role that resolves problems of the backend.
	Owner   string         `json:"owner"`
	Status  backend.Health `json:"status"`
	Reason  string         `json:"reason,omitempty"`
	Message string         `json:"message,omitempty"`
	// Since is when Status last changed.
	Since time.Time `json:"since,omitzero"`
	// LastSeen is when the server last answered, to the minute while it is healthy.
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// serversOf returns the reported servers in the order of the backends. It leaves out those of MachineProviders that do not exist.
func serversOf(reports, providers []*Object) []Server {
	exists := map[string]bool{}
	for _, p := range providers {
		exists[backend.ReportKey(p.Facts.(*Provider).Type, p.Name)] = true
	}
	var all []Server
	for _, o := range reports {
		for key, r := range o.Facts.(*Servers).Reports {
			name, instance := backend.ParseReportKey(key)
			kind, _ := backend.Find(name)
			if kind.Layer == backend.LayerMachine && !exists[key] {
				continue
			}
			all = append(all, Server{
				Backend: name, Name: instance, Owner: kind.Owner, Status: r.Health, Reason: r.Reason, Message: r.Message,
				Since: r.Since.UTC(), LastSeen: r.LastSeen.UTC(),
			})
		}
	}
	slices.SortFunc(all, func(a, b Server) int {
		return cmp.Or(cmp.Compare(rankOf(a.Backend), rankOf(b.Backend)), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// rankOf returns the place of a backend in the order in which backends are listed.
func rankOf(name string) int {
	return slices.IndexFunc(backend.All(), func(k backend.Kind) bool { return k.Name == name })
}

// Servers returns the servers of all backends, with Talos as one, in the order in which backends are listed.
func (s *Snapshot) Servers() []Server { return s.servers }

// serversOfKind returns the reported servers of a backend.
func (s *Snapshot) serversOfKind(name string) (found []Server) {
	for _, server := range s.servers {
		if server.Backend == name {
			found = append(found, server)
		}
	}
	return found
}

// addTalos adds Talos to the servers, because its nodes are measured by the gateway and not reported by a function.
func (s *Snapshot) addTalos(all []*Operator) {
	i := slices.IndexFunc(all, func(o *Operator) bool { return o.Name == backend.Talos })
	if i < 0 {
		return
	}
	kind, _ := backend.Find(backend.Talos)
	o := all[i]
	s.servers = append(s.servers, Server{Backend: o.Name, Owner: kind.Owner, Status: backend.Health(o.Status), Message: o.Message, Since: o.Since, LastSeen: o.LastSeen})
	slices.SortStableFunc(s.servers, func(a, b Server) int { return cmp.Compare(rankOf(a.Backend), rankOf(b.Backend)) })
}

// isAnswering reports whether the hypervisor of a MachineProvider answers, as far as is known.
func (s *objectSet) isAnswering(provider *Object) bool {
	f := provider.Facts.(*Provider)
	for _, o := range s.byKind[KindBackends] {
		if r, ok := o.Facts.(*Servers).Reports[backend.ReportKey(f.Type, provider.Name)]; ok {
			return r.Health != backend.Unreachable
		}
	}
	return f.Phase != phaseOffline
}

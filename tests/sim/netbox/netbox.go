// Package netbox simulates the part of NetBox's REST API, as of version 4, that allocates prefixes and
// VLANs: /api/ipam/prefixes/, available-prefixes, vlan-groups, available-vlans, vlans and
// ip-addresses. It validates fields as strictly as NetBox, answers with its status codes, and like
// NetBox ignores unknown filters.
package netbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/vitistack/stack/tests/sim/faults"
)

// Parent is a prefix that other prefixes are taken from.
type Parent struct {
	Prefix netip.Prefix
	// Role and Site are slugs. Empty means none.
	Role, Site string
	// Location is the slug of a location in the site that the prefix is scoped to. The API then shows
	// only the location, but filters the prefix by its site as well (CachedScopeMixin and
	// ScopedFilterSet of NetBox 4.2).
	Location string
	// CustomFields are the custom fields as NetBox has them in JSON: a text, a number, a list, or an object with its id.
	CustomFields map[string]any
	// Status is the status of the prefix. Default: container.
	Status string
}

// Group is a VLAN group.
type Group struct {
	Slug     string
	Min, Max int
}

// Options are the options of a simulator.
type Options struct {
	// Token is the required API token. Empty requires none.
	Token   string
	Parents []Parent
	Groups  []Group
	// Fields are the custom fields of prefixes, addresses and VLANs in addition to those of the
	// parents. Default: vitistack_uid. An empty list means none.
	Fields []string
	// Sites simulates NetBox before version 4.2, in which prefixes have a site.
	Sites bool
	// MaxPage is NetBox's setting MAX_PAGE_SIZE, the maximum number of objects on a page. Default:
	// 1000, as in NetBox.
	MaxPage int
	// State is a file that stores the objects. Default: they are kept in memory.
	State string
	// Faults is the fault plan. Its operations are the method and the path with IDs as *, for example
	// "POST /api/ipam/prefixes/*/available-prefixes/". An error that is a number is an HTTP status.
	// The errors drop and garbage are a connection that breaks and an answer that is not JSON.
	Faults *faults.Plan
}

// fields is an object as NetBox shows it.
type fields = map[string]any

// books has all objects by kind.
type books struct {
	Next      int            `json:"next"`
	Prefixes  map[int]fields `json:"prefixes"`
	VLANs     map[int]fields `json:"vlans"`
	Addresses map[int]fields `json:"addresses"`
	Groups    map[int]fields `json:"groups"`
}

// Server is a simulated NetBox. It is an HTTP handler and safe for concurrent use.
type Server struct {
	options Options
	known   map[string]bool
	mux     *http.ServeMux

	mu    sync.Mutex
	books books
}

// New returns a simulator with the objects in its state file.
func New(o Options) (*Server, error) {
	if o.Fields == nil {
		o.Fields = []string{"vitistack_uid"}
	}
	if o.MaxPage == 0 {
		o.MaxPage = maxPage
	}
	if o.Faults == nil {
		o.Faults = &faults.Plan{}
	}
	s := &Server{options: o, known: map[string]bool{}, mux: http.NewServeMux(), books: books{
		Prefixes: map[int]fields{}, VLANs: map[int]fields{}, Addresses: map[int]fields{}, Groups: map[int]fields{},
	}}
	for _, name := range o.Fields {
		s.known[name] = true
	}
	for _, p := range o.Parents {
		for name := range p.CustomFields {
			s.known[name] = true
		}
	}
	s.routes()
	if o.State != "" {
		content, err := os.ReadFile(o.State)
		if err == nil {
			err = json.Unmarshal(content, &s.books)
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}
	s.seed()
	return s, nil
}

// seed creates the objects that exist in NetBox from the beginning.
func (s *Server) seed() {
	slugs := map[string]int{}
	ref := func(slug string) any {
		if slug == "" {
			return nil
		}
		if slugs[slug] == 0 {
			slugs[slug] = len(slugs) + 1
		}
		return fields{"id": slugs[slug], "name": strings.ToUpper(slug), "slug": slug}
	}
	for _, p := range s.options.Parents {
		custom := s.emptyFields()
		for name, value := range p.CustomFields {
			custom[name] = value
		}
		status := p.Status
		if status == "" {
			status = "container"
		}
		made := s.newPrefix(p.Prefix, status, custom)
		made["role"] = ref(p.Role)
		if p.Site == "" {
			continue
		}
		place, kind := ref(p.Site), scopeSite
		if p.Location != "" {
			place, kind = ref(p.Location), scopeLocation
		}
		s.setPlace(made, kind, place.(fields)["id"].(int), place)
	}
	for _, g := range s.options.Groups {
		id := s.nextID()
		s.books.Groups[id] = fields{"id": id, "name": strings.ToUpper(g.Slug), "slug": g.Slug, "vid_ranges": [][]int{{g.Min, g.Max}}, "custom_fields": fields{}}
	}
}

// Types of a prefix's scope.
const (
	scopeSite     = "dcim.site"
	scopeLocation = "dcim.location"
)

func (s *Server) setPlace(prefix fields, kind string, id int, place any) {
	if s.options.Sites {
		prefix["site"] = place
		return
	}
	prefix["scope_type"], prefix["scope_id"], prefix["scope"] = kind, id, place
}

// siteOf returns the slug of the site of a prefix, or of its location.
func (s *Server) siteOf(prefix fields) string {
	if s.options.Sites {
		return plain(member(prefix, "site", "slug"))
	}
	slug := plain(member(prefix, "scope", "slug"))
	if prefix["scope_type"] != scopeLocation {
		return slug
	}
	for _, p := range s.options.Parents {
		if p.Location == slug {
			return p.Site
		}
	}
	return ""
}

func (s *Server) emptyFields() fields {
	custom := fields{}
	for name := range s.known {
		custom[name] = nil
	}
	return custom
}

func (s *Server) nextID() int {
	s.books.Next++
	return s.books.Next
}

func (s *Server) newPrefix(prefix netip.Prefix, status string, custom fields) fields {
	id, family := s.nextID(), 4
	if prefix.Addr().Is6() {
		family = 6
	}
	made := fields{
		"id": id, "display": prefix.String(), "prefix": prefix.String(), "family": fields{"value": family, "label": fmt.Sprintf("IPv%d", family)},
		"status": fields{"value": status, "label": status}, "role": nil, "vrf": nil, "vlan": nil, "description": "", "custom_fields": custom,
	}
	if s.options.Sites {
		made["site"] = nil
	} else {
		made["scope_type"], made["scope_id"], made["scope"] = nil, nil, nil
	}
	s.books.Prefixes[id] = made
	return made
}

// answer is the response to a request.
type answer struct {
	status int
	body   any
}

func detail(status int, format string, args ...any) answer {
	return answer{status, fields{"detail": fmt.Sprintf(format, args...)}}
}

func missing(kind string) answer {
	return detail(http.StatusNotFound, "No %s matches the given query.", kind)
}

// invalid returns NetBox's response about invalid fields.
func invalid(field, format string, args ...any) answer {
	return answer{http.StatusBadRequest, fields{field: []string{fmt.Sprintf(format, args...)}}}
}

// encoded encodes the answer, so that later changes of its objects do not affect it.
func (a answer) encoded() answer {
	if a.body == nil {
		return a
	}
	encoded, err := json.Marshal(a.body)
	if err != nil {
		return detail(http.StatusInternalServerError, "%v", err)
	}
	return answer{a.status, json.RawMessage(encoded)}
}

func (a answer) write(w http.ResponseWriter) {
	if a.body == nil {
		w.WriteHeader(a.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(a.status)
	_ = json.NewEncoder(w).Encode(a.body)
}

type answerer func(r *http.Request) answer

func (s *Server) routes() {
	for pattern, handler := range map[string]answerer{
		"GET /api/status/":                                 s.status,
		"GET /api/ipam/prefixes/{$}":                       s.list(func() map[int]fields { return s.books.Prefixes }),
		"PATCH /api/ipam/prefixes/{id}/":                   s.patch("Prefix", func() map[int]fields { return s.books.Prefixes }, s.changePrefix),
		"PATCH /api/ipam/vlans/{id}/":                      s.patch("VLAN", func() map[int]fields { return s.books.VLANs }, nil),
		"PATCH /api/ipam/ip-addresses/{id}/":               s.patch("IPAddress", func() map[int]fields { return s.books.Addresses }, s.changeAddress),
		"DELETE /api/ipam/prefixes/{id}/":                  s.remove("Prefix", func() map[int]fields { return s.books.Prefixes }),
		"POST /api/ipam/prefixes/{id}/available-prefixes/": s.takePrefix,
		"GET /api/ipam/vlan-groups/{$}":                    s.list(func() map[int]fields { return s.books.Groups }),
		"POST /api/ipam/vlan-groups/{id}/available-vlans/": s.takeVLAN,
		"GET /api/ipam/vlans/{$}":                          s.list(func() map[int]fields { return s.books.VLANs }),
		"DELETE /api/ipam/vlans/{id}/":                     s.remove("VLAN", func() map[int]fields { return s.books.VLANs }),
		"GET /api/ipam/ip-addresses/{$}":                   s.list(func() map[int]fields { return s.books.Addresses }),
		"POST /api/ipam/ip-addresses/{$}":                  s.addAddress,
		"DELETE /api/ipam/ip-addresses/{id}/":              s.remove("IPAddress", func() map[int]fields { return s.books.Addresses }),
	} {
		s.mux.Handle(pattern, s.guard(pattern, handler))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/") { // Django adds a missing slash
			http.Redirect(w, r, r.URL.Path+"/", http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<html><title>Page Not Found</title></html>"))
	})
}

// ServeHTTP serves the API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// guard authenticates a request, runs one request at a time like NetBox's advisory locks, and applies
// the planned fault.
func (s *Server) guard(pattern string, next answerer) http.Handler {
	operation := strings.NewReplacer("{id}", "*", "{$}", "").Replace(pattern)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal, ok := s.authenticate(r); !ok {
			refusal.write(w)
			return
		}
		fault := s.options.Faults.Next(operation)
		if fault.Wait(r.Context()) != nil {
			return
		}
		if text, hit := fault.Before(); hit {
			respondWithFault(w, text)
			return
		}
		s.mu.Lock()
		result := next(r).encoded()
		err := s.save(r)
		s.mu.Unlock()
		if err != nil {
			result = detail(http.StatusInternalServerError, "%v", err)
		}
		if text, hit := fault.Lost(); hit {
			respondWithFault(w, text)
			return
		}
		result.write(w)
	})
}

func (s *Server) authenticate(r *http.Request) (answer, bool) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case s.options.Token == "":
		return answer{}, true
	case token == "":
		return detail(http.StatusForbidden, "Authentication credentials were not provided."), false
	case token != s.options.Token || (scheme == "Bearer") != strings.HasPrefix(token, "nbt_"):
		return detail(http.StatusForbidden, "Invalid token"), false
	default:
		return answer{}, true
	}
}

func respondWithFault(w http.ResponseWriter, text string) {
	if status, err := strconv.Atoi(text); err == nil && status >= 300 && status <= 599 {
		detail(status, "fails as planned").write(w)
		return
	}
	if text == "garbage" {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><title>It works!</title></html>"))
		return
	}
	panic(http.ErrAbortHandler)
}

func (s *Server) save(r *http.Request) error {
	if s.options.State == "" || r.Method == http.MethodGet {
		return nil
	}
	content, err := json.Marshal(s.books)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.options.State+".new", content, 0o600); err != nil {
		return err
	}
	return os.Rename(s.options.State+".new", s.options.State)
}

func (s *Server) status(*http.Request) answer {
	version := "4.4.0"
	if s.options.Sites {
		version = "4.1.11"
	}
	return answer{http.StatusOK, fields{"netbox-version": version}}
}

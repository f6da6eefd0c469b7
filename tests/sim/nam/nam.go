// Package nam simulates a Network Automation Manager with the API of
// functions/provision-network/provider/nam/nam.openapi.yaml. It validates requests as strictly as the
// API, takes time, and fails or gives wrong answers as planned.
package nam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vitistack/stack/tests/sim/faults"
)

// Options are the options of a simulator.
type Options struct {
	// Token is the required bearer token. Empty requires none.
	Token string
	// Slow is the duration of the creation and the release of a segment. A real manager takes from ten
	// to twenty seconds.
	Slow time.Duration
	// IPv4 and IPv6 are the prefixes that segments are taken from. Default: 10.64.0.0/12 and
	// 2001:db8:6400::/40.
	IPv4, IPv6 netip.Prefix
	// State is a file that stores the segments. Default: they are kept in memory.
	State string
	// Faults is the fault plan. Its operations are the method and the path's pattern, for example "PUT
	// /segments". An error that is a number is an HTTP status. The errors drop and garbage are a
	// connection that breaks and an answer that is not JSON. The names in Lies are well-formed answers
	// with wrong values.
	Faults *faults.Plan
	// Now is the clock. Default: the real one.
	Now func() time.Time
}

// Request is the request for a segment.
type Request struct {
	Name                 string   `json:"name"`
	Namespace            string   `json:"namespace"`
	DatacenterIdentifier string   `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier string   `json:"supervisorIdentifier,omitempty"`
	IPFamilies           []string `json:"ipFamilies"`
	IPv4PrefixLength     int      `json:"ipv4PrefixLength,omitempty"`
	IPv6PrefixLength     int      `json:"ipv6PrefixLength,omitempty"`
}

// Segment is a segment as the API shows it.
type Segment struct {
	UID          string   `json:"uid"`
	ID           string   `json:"id,omitempty"`
	State        string   `json:"state"`
	IPv4Prefix   string   `json:"ipv4Prefix,omitempty"`
	IPv4Gateway  string   `json:"ipv4Gateway,omitempty"`
	IPv4EgressIP string   `json:"ipv4EgressIp,omitempty"`
	IPv6Prefix   string   `json:"ipv6Prefix,omitempty"`
	IPv6Gateway  string   `json:"ipv6Gateway,omitempty"`
	IPv6EgressIP string   `json:"ipv6EgressIp,omitempty"`
	VLANID       *int     `json:"vlanId,omitempty"`
	DNS          []string `json:"dns,omitempty"`
	Message      string   `json:"message,omitempty"`
}

// record is a segment as the simulator stores it.
type record struct {
	Request Request   `json:"request"`
	Segment Segment   `json:"segment"`
	ReadyAt time.Time `json:"readyAt"`
	// GoneAt is when the release of the segment ends.
	GoneAt time.Time `json:"goneAt,omitzero"`
}

// Server is a simulated manager. It is an HTTP handler and safe for concurrent use.
type Server struct {
	options Options
	mux     *http.ServeMux
	lied    atomic.Bool

	mu       sync.Mutex
	segments map[string]*record
	inUse    map[string]bool
}

// firstVLAN is the VLAN of the first segment, and lastVLAN the highest VLAN.
const (
	firstVLAN = 1000
	lastVLAN  = 4094
)

// New returns a simulator with the segments in its state file.
func New(o Options) (*Server, error) {
	if !o.IPv4.IsValid() {
		o.IPv4 = netip.MustParsePrefix("10.64.0.0/12")
	}
	if !o.IPv6.IsValid() {
		o.IPv6 = netip.MustParsePrefix("2001:db8:6400::/40")
	}
	if o.Faults == nil {
		o.Faults = &faults.Plan{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{options: o, mux: http.NewServeMux(), segments: map[string]*record{}, inUse: map[string]bool{}}
	for pattern, handler := range map[string]answerer{
		"GET /healthz": s.health, "GET /segments": s.list,
		"PUT /segments/{uid}": s.put, "GET /segments/{uid}": s.get, "DELETE /segments/{uid}": s.remove,
	} {
		s.mux.Handle(pattern, s.guard(pattern, handler))
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		problem(http.StatusNotFound, "there is no %s %s in this API", r.Method, r.URL.Path).write(w)
	})
	if o.State == "" {
		return s, nil
	}
	content, err := os.ReadFile(o.State)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the segments: %w", err)
	}
	if err := json.Unmarshal(content, &s.segments); err != nil {
		return nil, fmt.Errorf("read the segments: %w", err)
	}
	return s, nil
}

// ServeHTTP serves the API below its root and below /v1.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	http.StripPrefix("/v1", s.mux).ServeHTTP(w, withPrefix(r))
}

func withPrefix(r *http.Request) *http.Request {
	if strings.HasPrefix(r.URL.Path, "/v1/") {
		return r
	}
	clone := r.Clone(r.Context())
	clone.URL.Path, clone.URL.RawPath = "/v1"+r.URL.Path, ""
	return clone
}

// Segments returns the segments that are not released.
func (s *Server) Segments() []Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Segment
	for uid := range s.segments {
		if r := s.find(uid); r != nil {
			all = append(all, s.shownSegment(r))
		}
	}
	slices.SortFunc(all, func(a, b Segment) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// Edit changes a segment as an administrator of the manager does.
func (s *Server) Edit(uid string, change func(*Segment)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.find(uid); r != nil {
		change(&r.Segment)
	}
}

// Lying reports whether the last answer was planned to be wrong.
func (s *Server) Lying() bool { return s.lied.Load() }

// SetInUse makes the manager refuse the release of a segment, or permits it again.
func (s *Server) SetInUse(uid string, inUse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse[uid] = inUse
}

// answer is the response to a request.
type answer struct {
	status     int
	body       any
	retryAfter time.Duration
	problem    bool
}

type answerer func(r *http.Request) answer

func problem(status int, format string, args ...any) answer {
	return answer{status: status, problem: true, body: map[string]any{
		"title": http.StatusText(status), "status": status, "detail": fmt.Sprintf(format, args...),
	}}
}

func (a answer) write(w http.ResponseWriter) {
	if a.body != nil {
		w.Header().Set("Content-Type", map[bool]string{true: "application/problem+json", false: "application/json"}[a.problem])
	}
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(a.retryAfter.Round(time.Second)/time.Second))))
	}
	w.WriteHeader(a.status)
	if a.body != nil {
		_ = json.NewEncoder(w).Encode(a.body)
	}
}

// guard authenticates a request, and applies the planned fault.
func (s *Server) guard(pattern string, next answerer) http.Handler {
	operation, _, _ := strings.Cut(pattern, "/{")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if s.options.Token != "" && token != s.options.Token && operation != "GET /healthz" {
			w.Header().Set("WWW-Authenticate", "Bearer")
			problem(http.StatusUnauthorized, "send the token of this manager").write(w)
			return
		}
		fault := s.options.Faults.Next(operation)
		if fault.Wait(r.Context()) != nil {
			return
		}
		if text, hit := fault.Before(); hit && respondWithFault(w, text) {
			return
		}
		result := next(r)
		if text, hit := fault.Lost(); hit && respondWithFault(w, text) {
			return
		}
		lie := Lies[fault.Error]
		s.lied.Store(lie != nil)
		if lie != nil {
			result = lie(result)
		}
		result.write(w)
	})
}

// respondWithFault responds with a fault, and reports whether there is one.
func respondWithFault(w http.ResponseWriter, text string) bool {
	if status, err := strconv.Atoi(text); err == nil && status >= 300 && status <= 599 {
		problem(status, "fails as planned").write(w)
		return true
	}
	switch text {
	case "drop":
		panic(http.ErrAbortHandler)
	case "garbage":
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<html><title>It works!</title></html>"))
		return true
	default:
		return false
	}
}

// Package nam simulates a Network Automation Manager with the API of
// functions/provision-network/provider/nam/nam.openapi.yaml: it is as strict about what it is
// sent as that says, takes its time, and fails and lies when told to.
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

// Options say what a simulator is like.
type Options struct {
	// Token is the bearer token that is asked for if it is set.
	Token string
	// Slow is how long making a segment and taking it back take. A real manager
	// takes from ten to twenty seconds.
	Slow time.Duration
	// IPv4 and IPv6 are what segments are cut out of. Absent means 10.64.0.0/12 and
	// 2001:db8:6400::/40.
	IPv4, IPv6 netip.Prefix
	// State is a file that keeps the segments. Absent means that they are forgotten.
	State string
	// Faults tells when to misbehave. Its operations are the method and the path's
	// pattern, for example "PUT /segments". An error that is a number is an HTTP
	// status; drop and garbage are a connection that breaks and an answer that is not
	// JSON; the names of Lies are answers that look right and are not.
	Faults *faults.Plan
	// Now is the clock. Absent means the real one.
	Now func() time.Time
}

// Request is what a segment is made for.
type Request struct {
	Name                 string   `json:"name"`
	Namespace            string   `json:"namespace"`
	DatacenterIdentifier string   `json:"datacenterIdentifier,omitempty"`
	SupervisorIdentifier string   `json:"supervisorIdentifier,omitempty"`
	IPFamilies           []string `json:"ipFamilies"`
	IPv4PrefixLength     int      `json:"ipv4PrefixLength,omitempty"`
	IPv6PrefixLength     int      `json:"ipv6PrefixLength,omitempty"`
}

// Segment is what the manager tells of one.
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

// record is a segment in the simulator's books.
type record struct {
	Request Request   `json:"request"`
	Segment Segment   `json:"segment"`
	ReadyAt time.Time `json:"readyAt"`
	// GoneAt is when a segment that is being taken back is gone.
	GoneAt time.Time `json:"goneAt,omitzero"`
}

// Server is a simulated manager. It is an HTTP handler, and safe for concurrent use.
type Server struct {
	options Options
	mux     *http.ServeMux
	lied    atomic.Bool

	mu       sync.Mutex
	segments map[string]*record
	inUse    map[string]bool
}

// firstVLAN is the VLAN of the first segment; lastVLAN is the last there is.
const (
	firstVLAN = 1000
	lastVLAN  = 4094
)

// New makes a simulator, with the segments that its state file has.
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

// Segments are those that are not gone.
func (s *Server) Segments() []Segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []Segment
	for uid := range s.segments {
		if r := s.find(uid); r != nil {
			all = append(all, s.tell(r))
		}
	}
	slices.SortFunc(all, func(a, b Segment) int { return strings.Compare(a.UID, b.UID) })
	return all
}

// Lying reports whether the last answer was not the truth.
func (s *Server) Lying() bool { return s.lied.Load() }

// SetInUse has the manager refuse to take a segment back, or not any more.
func (s *Server) SetInUse(uid string, inUse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inUse[uid] = inUse
}

// answer is what a request gets.
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

// guard asks who calls, and misbehaves as told.
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
		if text, hit := fault.Before(); hit && misbehave(w, text) {
			return
		}
		result := next(r)
		if text, hit := fault.Lost(); hit && misbehave(w, text) {
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

// misbehave answers with a fault, and reports whether it is one.
func misbehave(w http.ResponseWriter, text string) bool {
	if status, err := strconv.Atoi(text); err == nil && status >= 300 && status <= 599 {
		problem(status, "told to fail").write(w)
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

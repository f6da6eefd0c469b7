package hypervisortest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// errKilled is the error of every request after the process was killed.
var errKilled = errors.New("the process was killed")

// Fault is done to one request of a function.
type Fault struct {
	// Call is the method and the path of the request, without what varies.
	Call string
	// Nth counts the requests with that Call, from 1.
	Nth int
	// Kind is before, after or kill: the request does not arrive, its answer does not arrive, or
	// the process ends when the request has arrived.
	Kind string
}

// String returns the fault for a message.
func (h Fault) String() string { return fmt.Sprintf("%s %s #%d", h.Kind, h.Call, h.Nth) }

// Wire carries all requests of a function. It counts them, and applies one Fault.
type Wire struct {
	mu sync.Mutex
	// Fault is what happens to one request.
	Fault Fault
	dead  bool
	// Count counts the requests by their Call, and Order lists each Call when it is first seen.
	Count map[string]int
	Order []string
	// Answer answers a request instead of the server, unless it is nil or returns nil.
	Answer func(*http.Request) *http.Response
}

// varying matches the parts of a URL that differ from run to run.
var varying = regexp.MustCompile(`UPID:[^/]+|\bm[0-9a-z]*-?[0-9]+[a-z-]*|t[0-9]+-[a-z0-9]+|[0-9]{3,}`)

// callOf returns the Call of a request.
func callOf(req *http.Request) string {
	return req.Method + " " + varying.ReplaceAllString(req.URL.Path, "*")
}

// Wrap returns a transport that sends requests through w and then through next.
func (w *Wire) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		kind, err := w.next(callOf(req))
		if err != nil {
			return nil, err
		}
		if kind == "before" {
			return nil, errors.New("connection refused by the test")
		}
		if w.Answer != nil {
			if res := w.Answer(req); res != nil {
				return res, nil
			}
		}
		res, err := next.RoundTrip(req)
		if err != nil || kind == "" {
			return res, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, errors.New("connection reset by the test")
	})
}

// roundTripper is a function as an http.RoundTripper. Packages of functions that are no tests import nothing of tests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// next counts a call, and returns the kind of fault that applies to it.
func (w *Wire) next(call string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return "", errKilled
	}
	if w.Count == nil {
		w.Count = map[string]int{}
	}
	if w.Count[call] == 0 {
		w.Order = append(w.Order, call)
	}
	w.Count[call]++
	if call != w.Fault.Call || w.Count[call] != w.Fault.Nth {
		return "", nil
	}
	w.dead = w.Fault.Kind == "kill"
	return w.Fault.Kind, nil
}

// Requests returns how many requests with a method were made to paths that contain part.
func (w *Wire) Requests(method, part string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for call, times := range w.Count {
		if verb, path, _ := strings.Cut(call, " "); verb == method && strings.Contains(path, part) {
			n += times
		}
	}
	return n
}

// Faults returns all faults that are possible in what a run has requested. A lost answer to a read
// is the same as a lost read.
func (w *Wire) Faults() (all []Fault) {
	for _, call := range w.Order {
		if strings.HasPrefix(call, http.MethodGet) {
			all = append(all, Fault{call, 1, "before"})
			continue
		}
		for nth := 1; nth <= min(w.Count[call], 2); nth++ {
			all = append(all, Fault{call, nth, "before"}, Fault{call, nth, "after"}, Fault{call, nth, "kill"})
		}
	}
	return all
}

// WriteFaults returns the Faults of requests that write.
func (w *Wire) WriteFaults() []Fault {
	return slices.DeleteFunc(w.Faults(), func(h Fault) bool { return strings.HasPrefix(h.Call, http.MethodGet) })
}

// Revive starts the process again if it was killed, and reports whether it was.
func (w *Wire) Revive() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.dead
	w.dead = false
	return was
}

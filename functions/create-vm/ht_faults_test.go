package main

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

// errKilled is what a process gets from every request after it was killed.
var errKilled = errors.New("the process was killed")

// harm is done to one request of a function.
type harm struct {
	// call is what the request does, and nth which of its kind it is, from 1.
	call string
	nth  int
	// kind is before, after or kill: the request does not arrive, its answer does
	// not, or the process ends when it has arrived.
	kind string
}

func (h harm) String() string { return fmt.Sprintf("%s %s #%d", h.kind, h.call, h.nth) }

// wire is between a function and everything outside. It counts the requests by
// what they do, and harms one of them.
type wire struct {
	mu    sync.Mutex
	harm  harm
	dead  bool
	count map[string]int
	order []string
	// answer answers a request instead of the server, where it is set and returns one.
	answer func(*http.Request) *http.Response
}

// varying is what of a URL differs from run to run.
var varying = regexp.MustCompile(`UPID:[^/]+|\bm[0-9a-z]*-?[0-9]+[a-z-]*|t[0-9]+-[a-z0-9]+|[0-9]{3,}`)

func callOf(req *http.Request) string {
	return req.Method + " " + varying.ReplaceAllString(req.URL.Path, "*")
}

// through makes w the transport of requests.
func (w *wire) through(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(req *http.Request) (*http.Response, error) {
		harmed, err := w.next(callOf(req))
		if err != nil {
			return nil, err
		}
		if harmed == "before" {
			return nil, errors.New("connection refused by the test")
		}
		if w.answer != nil {
			if res := w.answer(req); res != nil {
				return res, nil
			}
		}
		res, err := next.RoundTrip(req)
		if err != nil || harmed == "" {
			return res, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		return nil, errors.New("connection reset by the test")
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// next counts a call, and says what is done to it.
func (w *wire) next(call string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead {
		return "", errKilled
	}
	if w.count == nil {
		w.count = map[string]int{}
	}
	if w.count[call] == 0 {
		w.order = append(w.order, call)
	}
	w.count[call]++
	if call != w.harm.call || w.count[call] != w.harm.nth {
		return "", nil
	}
	w.dead = w.harm.kind == "kill"
	return w.harm.kind, nil
}

// harms are all that can be done to what a run did. To lose the answer to a read is
// the same as to lose the read.
func (w *wire) harms() (all []harm) {
	for _, call := range w.order {
		if strings.HasPrefix(call, http.MethodGet) {
			all = append(all, harm{call, 1, "before"})
			continue
		}
		for nth := 1; nth <= min(w.count[call], 2); nth++ {
			all = append(all, harm{call, nth, "before"}, harm{call, nth, "after"}, harm{call, nth, "kill"})
		}
	}
	return all
}

// writes are the harms that can be done to what a run wrote.
func (w *wire) writes() []harm {
	return slices.DeleteFunc(w.harms(), func(h harm) bool { return strings.HasPrefix(h.call, http.MethodGet) })
}

// revived starts the process again if it was killed, and reports whether it was.
func (w *wire) revived() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	was := w.dead
	w.dead = false
	return was
}

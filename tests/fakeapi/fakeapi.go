// Package fakeapi is a Kubernetes API server in memory, which lists and watches objects. Tests and benchmarks of the gateway use it for many objects,
// and for an API server that fails.
package fakeapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Object is a Kubernetes object of any kind.
type Object interface {
	metav1.Object
}

// Server is a fake API server. It does not find a resource before Serve or Put.
type Server struct {
	http *httptest.Server

	mu        sync.Mutex
	version   int
	oldest    int
	resources map[string]*resource
	failing   int
	failures  map[string]int
	requests  map[string]int
	answers   map[string]func(body []byte) any
}

// resource is one collection, by its plural.
type resource struct {
	objects map[string]json.RawMessage
	// keys are the sorted keys of the objects, once a list has requested them.
	keys []string
	// history has every change since the start, oldest first.
	history []change
	changed chan struct{}
}

type change struct {
	version int
	// name is that of the object.
	name  string
	event []byte
}

// Start starts a server that runs until t ends.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{resources: map[string]*resource{}, requests: map[string]int{}, failures: map[string]int{}, answers: map[string]func([]byte) any{}}
	s.http = httptest.NewServer(s)
	t.Cleanup(func() {
		s.http.CloseClientConnections()
		s.http.Close()
	})
	return s
}

// Config returns the configuration of a client.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.http.URL, QPS: -1}
}

// Serve adds resources, by their plurals.
func (s *Server) Serve(plurals ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range plurals {
		if s.resources[p] == nil {
			s.resources[p] = &resource{objects: map[string]json.RawMessage{}, changed: make(chan struct{})}
		}
	}
}

// Fail makes every request fail with this status code, until it is called with 0. Open watches end.
func (s *Server) Fail(code int) {
	s.mu.Lock()
	s.failing = code
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

// FailResource makes every request for one resource fail with this status code.
func (s *Server) FailResource(plural string, code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures[plural] = code
}

// Answer makes a function answer POST requests to a resource.
func (s *Server) Answer(plural string, f func(body []byte) any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[plural] = f
}

// Requests returns the number of requests for a resource.
func (s *Server) Requests(plural string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[plural]
}

// Put creates or updates an object, and sets its resourceVersion. The object needs a TypeMeta.
func (s *Server) Put(t testing.TB, plural string, o Object) {
	t.Helper()
	s.Serve(plural)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	o.SetResourceVersion(strconv.Itoa(s.version))
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	r, key := s.resources[plural], o.GetNamespace()+"/"+o.GetName()
	kind := "ADDED"
	if _, ok := r.objects[key]; ok {
		kind = "MODIFIED"
	}
	r.objects[key] = encoded
	s.notify(r, kind, encoded)
}

// PutUnseen creates or updates an object with its resourceVersion, as Put does. No watch reports it, as while a watch is behind.
func (s *Server) PutUnseen(t testing.TB, plural string, o Object) {
	t.Helper()
	s.Serve(plural)
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[plural]
	r.objects[o.GetNamespace()+"/"+o.GetName()], r.keys = encoded, nil
}

// Delete removes an object.
func (s *Server) Delete(plural, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	r, key := s.resources[plural], namespace+"/"+name
	last := r.objects[key]
	delete(r.objects, key)
	s.notify(r, "DELETED", last)
}

// Forget drops the history, so that a watch from an older version has to list again.
func (s *Server) Forget() {
	s.mu.Lock()
	for _, r := range s.resources {
		r.history = nil
	}
	s.version++
	s.oldest = s.version
	s.mu.Unlock()
	s.http.CloseClientConnections()
}

func (s *Server) notify(r *resource, kind string, object json.RawMessage) {
	r.keys = nil
	event := fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", kind, object)
	var o metav1.PartialObjectMetadata
	_ = json.Unmarshal(object, &o)
	r.history = append(r.history, change{s.version, o.Name, event})
	close(r.changed)
	r.changed = make(chan struct{})
}

// ServeHTTP answers lists and watches.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	plural := req.URL.Path[strings.LastIndexByte(req.URL.Path, '/')+1:]
	s.mu.Lock()
	s.requests[plural]++
	r, failing, posted := s.resources[plural], max(s.failing, s.failures[plural]), s.answers[plural]
	one, key := s.named(req.URL.Path)
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case failing != 0:
		status(w, failing, reasons[failing])
	case posted != nil && req.Method == http.MethodPost:
		body, _ := io.ReadAll(req.Body)
		_ = json.NewEncoder(w).Encode(posted(body))
	case one != nil:
		s.object(w, req, one, key)
	case r == nil:
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case req.URL.Query().Get("watch") != "":
		s.watch(w, req, r)
	default:
		s.list(w, req, r)
	}
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusServiceUnavailable: metav1.StatusReasonServiceUnavailable,
}

func status(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Message: "the fake API server answers " + strconv.Itoa(code),
	})
}

func (s *Server) list(w http.ResponseWriter, req *http.Request, r *resource) {
	query := req.URL.Query()
	limit, _ := strconv.Atoi(query.Get("limit"))
	after := query.Get("continue")
	s.mu.Lock()
	if r.keys == nil {
		r.keys = slices.Sorted(maps.Keys(r.objects))
	}
	keys, version := r.keys, s.version
	first, _ := slices.BinarySearch(keys, after)
	if first < len(keys) && keys[first] == after {
		first++
	}
	keys = keys[first:]
	next := ""
	if limit > 0 && len(keys) > limit {
		keys = keys[:limit]
		next = keys[limit-1]
	}
	// With a limit, a resource version is exact, and valid as long as etcd has it.
	exact, _ := strconv.Atoi(query.Get("resourceVersion"))
	if limit == 0 {
		exact = 0
	}
	if exact > 0 {
		version = exact
	}
	items := make([]json.RawMessage, 0, len(keys))
	for _, key := range keys {
		if isSelected(req, key[strings.Index(key, "/")+1:]) && isAbout(req, r.objects[key]) && (exact == 0 || versionOf(r.objects[key]) <= exact) {
			items = append(items, r.objects[key])
		}
	}
	s.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{
		"metadata": map[string]string{"resourceVersion": strconv.Itoa(version), "continue": next},
		"items":    items,
	})
}

// isSelected reports whether a list or a watch selects the objects of a name, by the field selector that it may have.
func isSelected(req *http.Request, name string) bool {
	only, selects := strings.CutPrefix(req.URL.Query().Get("fieldSelector"), "metadata.name=")
	return !selects || only == name
}

// isAbout reports whether a list of Events selects one by the UID of the object that it is about.
func isAbout(req *http.Request, object json.RawMessage) bool {
	uid, selects := strings.CutPrefix(req.URL.Query().Get("fieldSelector"), "involvedObject.uid=")
	if !selects {
		return true
	}
	var e struct {
		InvolvedObject struct {
			UID string `json:"uid"`
		} `json:"involvedObject"`
	}
	return json.Unmarshal(object, &e) == nil && e.InvolvedObject.UID == uid
}

func versionOf(object json.RawMessage) int {
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(object, &o); err != nil {
		return 0
	}
	version, _ := strconv.Atoi(o.ResourceVersion)
	return version
}

func (s *Server) watch(w http.ResponseWriter, req *http.Request, r *resource) {
	from, _ := strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	flusher, ok := w.(http.Flusher)
	if !ok {
		return
	}
	s.mu.Lock()
	expired := from < s.oldest
	s.mu.Unlock()
	if expired {
		_, _ = w.Write([]byte(`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}` + "\n"))
		return
	}
	flusher.Flush()
	for {
		s.mu.Lock()
		changed := r.changed
		var news []change
		for _, c := range r.history {
			if c.version > from && isSelected(req, c.name) {
				news = append(news, c)
			}
		}
		stop := s.failing != 0
		s.mu.Unlock()
		for _, c := range news {
			if _, err := w.Write(c.event); err != nil {
				return
			}
			from = c.version
		}
		flusher.Flush()
		if stop {
			return
		}
		select {
		case <-req.Context().Done():
			return
		case <-changed:
		}
	}
}

// named returns the resource and the key of the object in a path, if it exists. Callers hold the lock.
func (s *Server) named(path string) (*resource, string) {
	parts := strings.Split(path, "/")
	if len(parts) < 4 {
		return nil, ""
	}
	namespace, plural, name := parts[len(parts)-3], parts[len(parts)-2], parts[len(parts)-1]
	r, key := s.resources[plural], namespace+"/"+name
	if r == nil || r.objects[key] == nil {
		return nil, ""
	}
	return r, key
}

// object answers with one object, after it has merged a patch. A patch with a resource version other than the present one is a conflict.
func (s *Server) object(w http.ResponseWriter, req *http.Request, r *resource, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Method == http.MethodPatch {
		var kept, patch map[string]any
		body, _ := io.ReadAll(req.Body)
		if json.Unmarshal(body, &patch) != nil || json.Unmarshal(r.objects[key], &kept) != nil {
			status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
			return
		}
		meta, _ := kept["metadata"].(map[string]any)
		if sent, _ := patch["metadata"].(map[string]any); sent["resourceVersion"] != nil && sent["resourceVersion"] != meta["resourceVersion"] {
			status(w, http.StatusConflict, metav1.StatusReasonConflict)
			return
		}
		merge(kept, patch)
		s.version++
		meta["resourceVersion"] = strconv.Itoa(s.version)
		r.objects[key], _ = json.Marshal(kept)
		s.notify(r, "MODIFIED", r.objects[key])
	}
	_ = json.NewEncoder(w).Encode(r.objects[key])
}

// merge applies a JSON merge patch.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		inner, isMap := value.(map[string]any)
		old, wasMap := into[name].(map[string]any)
		switch {
		case value == nil:
			delete(into, name)
		case isMap && wasMap:
			merge(old, inner)
		default:
			into[name] = value
		}
	}
}

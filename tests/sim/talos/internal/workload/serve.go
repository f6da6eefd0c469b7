package workload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxBody is the limit of the real API server.
const maxBody = 3 << 20

// User is the user in a request's client certificate.
type User struct {
	Name   string
	Groups []string
}

// Server is one API server of the cluster. Every control plane node runs its own, on the same objects.
type Server struct {
	Cluster *Cluster
	// Authenticate returns the user of a request, and false for an unknown one.
	Authenticate func(*http.Request) (User, bool)
	// Storage returns why the server's etcd cannot answer, or nil.
	Storage func() error
	// Version is the server's Kubernetes version, for example "v1.34.1".
	Version string
}

// ServeHTTP answers as kube-apiserver does. Only administrators have access.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	user, ok := s.Authenticate(req)
	switch {
	case !ok:
		writeError(w, apierrors.NewUnauthorized("Unauthorized"))
	case s.probe(w, req):
	case !administers(user):
		writeError(w, apierrors.NewForbidden(schema.GroupResource{Resource: "*"}, "", fmt.Errorf("User %q cannot %s path %q", user.Name, strings.ToLower(req.Method), req.URL.Path)))
	case s.discover(w, req), describe(w, req):
	default:
		if err := s.serveResource(w, req); err != nil {
			writeError(w, err)
		}
	}
}

// probe serves the health endpoints and the version, and reports whether the path is one.
func (s *Server) probe(w http.ResponseWriter, req *http.Request) bool {
	switch check := strings.TrimPrefix(req.URL.Path, "/"); check {
	case "readyz", "livez", "healthz":
		if s.Storage() != nil {
			http.Error(w, "[-]etcd failed: reason withheld\n"+check+" check failed", http.StatusInternalServerError)
			return true
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok")
	case "version", "version/":
		writeJSON(w, http.StatusOK, s.versionInfo())
	default:
		return false
	}
	return true
}

func administers(u User) bool {
	for _, g := range u.Groups {
		if g == "system:masters" {
			return true
		}
	}
	return false
}

// request is the resource and object in a path.
type request struct {
	kind            *kind
	namespace, name string
	sub             string
}

// errNoPath is the answer for an unknown path.
var errNoPath = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
	Message: "the server could not find the requested resource",
}}

func parsePath(path string) (*request, error) {
	group, version, parts := apiOf(strings.Split(strings.Trim(path, "/"), "/"))
	if len(parts) == 0 {
		return nil, errNoPath
	}
	r := &request{}
	if parts[0] == "namespaces" && len(parts) > 2 {
		if _, scoped := kindOf(group, version, parts[2]); scoped {
			r.namespace, parts = parts[1], parts[2:]
		}
	}
	k, ok := kindOf(group, version, parts[0])
	if !ok || len(parts) > 3 || (r.namespace != "" && !k.namespaced) {
		return nil, errNoPath
	}
	r.kind = k
	if len(parts) > 1 {
		r.name = parts[1]
	}
	if len(parts) > 2 {
		r.sub = parts[2]
		if !k.has(r.sub) {
			return nil, errNoPath
		}
	}
	return r, nil
}

// apiOf separates the API's group and version from a path.
func apiOf(parts []string) (group, version string, rest []string) {
	switch {
	case len(parts) > 2 && parts[0] == "api":
		return "", parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		return parts[1], parts[2], parts[3:]
	}
	return "", "", nil
}

// has reports whether the resource has a subresource.
func (k *kind) has(sub string) bool {
	return (sub == "status" && k.status) || (sub == "eviction" && k == podKind)
}

func (s *Server) serveResource(w http.ResponseWriter, req *http.Request) error {
	r, err := parsePath(req.URL.Path)
	if err != nil {
		return err
	}
	if err := s.Storage(); err != nil {
		return apierrors.NewInternalError(err)
	}
	if r.namespace == "" && r.kind.namespaced && (r.name != "" || req.Method == http.MethodPost) {
		return apierrors.NewBadRequest("an empty namespace may not be set during creation or for a named object")
	}
	switch req.Method {
	case http.MethodGet:
		return s.read(w, req, r)
	case http.MethodPost:
		return s.post(w, req, r)
	case http.MethodPut:
		return s.put(w, req, r)
	case http.MethodPatch:
		return s.patch(w, req, r)
	case http.MethodDelete:
		return s.delete(w, req, r)
	}
	return apierrors.NewMethodNotSupported(r.kind.resource(), req.Method)
}

// query has the selectors and options of a read.
type query struct {
	labels            labels.Selector
	fields            fields.Selector
	name              string
	resourceVersion   string
	watch             bool
	sendInitialEvents bool
	timeout           time.Duration
}

func parseQuery(req *http.Request, r *request) (query, error) {
	v := req.URL.Query()
	q := query{
		name:              r.name,
		resourceVersion:   v.Get("resourceVersion"),
		watch:             v.Get("watch") == "true" || v.Get("watch") == "1",
		sendInitialEvents: v.Get("sendInitialEvents") == "true",
		timeout:           maxWatch,
	}
	var err error
	if q.labels, err = labels.Parse(v.Get("labelSelector")); err != nil {
		return q, apierrors.NewBadRequest(err.Error())
	}
	if q.fields, err = fields.ParseSelector(v.Get("fieldSelector")); err != nil {
		return q, apierrors.NewBadRequest(err.Error())
	}
	for _, f := range q.fields.Requirements() {
		if _, known := fieldsOf(r.kind, r.kind.empty())[f.Field]; !known {
			return q, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", f.Field))
		}
	}
	if seconds := v.Get("timeoutSeconds"); seconds != "" {
		d, err := time.ParseDuration(seconds + "s")
		if err != nil {
			return q, apierrors.NewBadRequest("invalid timeoutSeconds: " + seconds)
		}
		q.timeout = min(d, maxWatch)
	}
	return q, nil
}

func (q query) matches(r *request, obj runtime.Object) bool {
	m := metaOf(obj)
	return (r.namespace == "" || r.namespace == m.GetNamespace()) &&
		(q.name == "" || q.name == m.GetName()) &&
		q.labels.Matches(labels.Set(m.GetLabels())) &&
		(q.fields.Empty() || q.fields.Matches(fieldsOf(r.kind, obj)))
}

// decode reads a body in any encoding of Kubernetes clients. A body without a kind is of the given
// kind.
func decode(req *http.Request, otherwise schema.GroupVersionKind) (runtime.Object, error) {
	body, err := readBody(req)
	if err != nil {
		return nil, err
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &otherwise, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return obj, nil
}

func readBody(req *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, req.Body, maxBody))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return body, nil
}

func writeError(w http.ResponseWriter, err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok && !errors.As(err, &status) {
		status = apierrors.NewInternalError(err)
	}
	body := status.Status()
	body.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if body.Details != nil && body.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(body.Details.RetryAfterSeconds))
	}
	writeJSON(w, int(body.Code), body)
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the client may have disconnected
}

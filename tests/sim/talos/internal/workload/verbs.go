package workload

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// list returns the objects that a query selects.
type list struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []runtime.Object `json:"items"`
}

func (s *Server) read(w http.ResponseWriter, req *http.Request, r *request) error {
	q, err := parseQuery(req, r)
	if err != nil {
		return err
	}
	if q.watch {
		return s.Cluster.serveWatch(w, req, r, q)
	}
	c := s.Cluster
	c.mu.Lock()
	var found []runtime.Object
	revision := strconv.FormatUint(c.store.revision, 10)
	if r.name == "" {
		for _, obj := range c.store.list(r.kind, r.namespace) {
			if q.matches(r, obj) {
				found = append(found, obj)
			}
		}
	} else {
		obj, err := c.store.get(r.kind, r.namespace, r.name)
		if err != nil {
			c.mu.Unlock()
			return err
		}
		found = []runtime.Object{obj}
	}
	c.mu.Unlock()
	switch {
	case wantsTable(req):
		writeJSON(w, http.StatusOK, table(r.kind, found, revision))
	case r.name != "":
		writeJSON(w, http.StatusOK, found[0])
	default:
		if found == nil {
			found = []runtime.Object{}
		}
		writeJSON(w, http.StatusOK, list{
			metav1.TypeMeta{Kind: r.kind.Kind + "List", APIVersion: r.kind.GroupVersion().String()},
			metav1.ListMeta{ResourceVersion: revision}, found,
		})
	}
	return nil
}

func (s *Server) post(w http.ResponseWriter, req *http.Request, r *request) error {
	kind := r.kind.GroupVersionKind
	if r.sub == "eviction" {
		kind = policyv1.SchemeGroupVersion.WithKind("Eviction")
	}
	body, err := decode(req, kind)
	if err != nil {
		return err
	}
	if r.sub == "eviction" {
		return s.postEviction(w, r, body)
	}
	if r.name != "" {
		return apierrors.NewMethodNotSupported(r.kind.resource(), "create")
	}
	if r.kind.Kind != body.GetObjectKind().GroupVersionKind().Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s cannot be created as %s", body.GetObjectKind().GroupVersionKind().Kind, r.kind.Kind))
	}
	m := metaOf(body)
	if r.kind.namespaced && m.GetNamespace() == "" {
		m.SetNamespace(r.namespace)
	}
	if m.GetNamespace() != r.namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if m.GetName() == "" && m.GetGenerateName() != "" {
		m.SetName(m.GetGenerateName() + utilrand.String(5))
	}
	if dryRun(req) {
		writeJSON(w, http.StatusCreated, body)
		return nil
	}
	created, err := s.Cluster.create(r.kind, body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, created)
	return nil
}

// create stores a new object as the API server would: with a valid and unique name in an existing
// namespace, and without fields that only the server sets.
func (c *Cluster) create(k *kind, obj runtime.Object) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := metaOf(obj)
	if problems := validation.IsDNS1123Subdomain(m.GetName()); len(problems) > 0 {
		return nil, apierrors.NewInvalid(k.GroupKind(), m.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "name"), m.GetName(), strings.Join(problems, ", ")),
		})
	}
	if k.namespaced {
		if _, err := c.store.get(namespaceKind, "", m.GetNamespace()); err != nil {
			return nil, err
		}
	}
	if _, err := c.store.get(k, m.GetNamespace(), m.GetName()); err == nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), m.GetName())
	}
	if err := validate(k, obj); err != nil {
		return nil, err
	}
	m.SetUID("")
	m.SetResourceVersion("")
	m.SetDeletionTimestamp(nil)
	setDefaults(obj)
	if err := c.store.put(k, obj); err != nil {
		return nil, err
	}
	return obj, c.reconcile()
}

func (s *Server) put(w http.ResponseWriter, req *http.Request, r *request) error {
	body, err := decode(req, r.kind.GroupVersionKind)
	if err != nil {
		return err
	}
	if body.GetObjectKind().GroupVersionKind().Kind != r.kind.Kind {
		return apierrors.NewBadRequest(fmt.Sprintf("%s cannot be updated as %s", body.GetObjectKind().GroupVersionKind().Kind, r.kind.Kind))
	}
	m := metaOf(body)
	if m.GetName() != r.name {
		return apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", m.GetName(), r.name))
	}
	m.SetNamespace(r.namespace)
	updated, err := s.Cluster.update(r, func(runtime.Object) (runtime.Object, error) { return body, nil })
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, updated)
	return nil
}

// update replaces an object by the result of change. A resource version in the result must be the
// stored one. The identity cannot change. The status and the rest are written through their own paths
// only.
func (c *Cluster) update(r *request, change func(runtime.Object) (runtime.Object, error)) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, err := c.store.get(r.kind, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	next, err := change(old)
	if err != nil {
		return nil, err
	}
	before, after := metaOf(old), metaOf(next)
	if v := after.GetResourceVersion(); v != "" && v != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(r.kind.resource(), r.name,
			fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
	}
	if uid := after.GetUID(); uid != "" && uid != before.GetUID() {
		return nil, apierrors.NewConflict(r.kind.resource(), r.name,
			fmt.Errorf("precondition failed: UID in precondition: %s, UID in object meta: %s", uid, before.GetUID()))
	}
	next = keepOtherHalf(r, old, next)
	if unchanged(old, next) {
		return old, nil
	}
	if err := validate(r.kind, next); err != nil {
		return nil, err
	}
	if metaOf(next).GetDeletionTimestamp() != nil && len(metaOf(next).GetFinalizers()) == 0 && r.kind != podKind {
		return next, c.dropAndSettle(r.kind, next)
	}
	if err := c.store.put(r.kind, next); err != nil {
		return nil, err
	}
	return next, c.reconcile()
}

func (c *Cluster) dropAndSettle(k *kind, obj runtime.Object) error {
	if err := c.store.drop(k, obj); err != nil {
		return err
	}
	return c.reconcile()
}

func (s *Server) delete(w http.ResponseWriter, req *http.Request, r *request) error {
	options, err := deleteOptions(req)
	if err != nil {
		return err
	}
	if r.name == "" {
		return s.deleteMany(w, req, r, options)
	}
	deleted, err := s.Cluster.remove(r, options)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, deleted)
	return nil
}

func (s *Server) deleteMany(w http.ResponseWriter, req *http.Request, r *request, options metav1.DeleteOptions) error {
	q, err := parseQuery(req, r)
	if err != nil {
		return err
	}
	s.Cluster.mu.Lock()
	all := s.Cluster.store.list(r.kind, r.namespace)
	s.Cluster.mu.Unlock()
	for _, obj := range all {
		one := &request{kind: r.kind, namespace: metaOf(obj).GetNamespace(), name: metaOf(obj).GetName()}
		if !q.matches(r, obj) {
			continue
		}
		if _, err := s.Cluster.remove(one, options); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	writeJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	return nil
}

// remove deletes an object, or begins its deletion: a pod is deleted once its kubelet has stopped it,
// and an object with finalizers once they are removed.
func (c *Cluster) remove(r *request, options metav1.DeleteOptions) (runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removeLocked(r, options)
}

func (c *Cluster) removeLocked(r *request, options metav1.DeleteOptions) (runtime.Object, error) {
	old, err := c.store.get(r.kind, r.namespace, r.name)
	if err != nil {
		return nil, err
	}
	if err := holds(r.kind, old, options.Preconditions); err != nil {
		return nil, err
	}
	if len(options.DryRun) > 0 {
		return old, nil
	}
	next := old.DeepCopyObject()
	now := metav1.NewTime(c.store.now())
	metaOf(next).SetDeletionTimestamp(&now)
	if pod, ok := next.(*corev1.Pod); ok {
		return next, c.terminate(pod, options.GracePeriodSeconds)
	}
	if r.kind == namespaceKind {
		if err := c.empty(r.name); err != nil {
			return nil, err
		}
	}
	if len(metaOf(next).GetFinalizers()) == 0 {
		return next, c.dropAndSettle(r.kind, next)
	}
	if metaOf(old).GetDeletionTimestamp() != nil {
		return old, nil
	}
	if err := c.store.put(r.kind, next); err != nil {
		return nil, err
	}
	return next, c.reconcile()
}

// holds checks the preconditions of a deletion.
func holds(k *kind, obj runtime.Object, p *metav1.Preconditions) error {
	m := metaOf(obj)
	refuse := func(what, wanted, present, happened string) error {
		return apierrors.NewConflict(schema.GroupResource{Group: k.Group, Resource: k.Kind}, m.GetName(), fmt.Errorf(
			"the %s in the precondition (%s) does not match the %s in record (%s). The object might have been %s", what, wanted, what, present, happened))
	}
	switch {
	case p == nil:
	case p.UID != nil && *p.UID != m.GetUID():
		return refuse("UID", string(*p.UID), string(m.GetUID()), "deleted and then recreated")
	case p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion():
		return refuse("ResourceVersion", *p.ResourceVersion, m.GetResourceVersion(), "modified")
	}
	return nil
}

// empty removes every object of a namespace.
func (c *Cluster) empty(namespace string) error {
	for _, k := range kinds {
		if !k.namespaced {
			continue
		}
		for _, obj := range c.store.list(k, namespace) {
			if err := c.store.drop(k, obj); err != nil {
				return err
			}
		}
	}
	return nil
}

func deleteOptions(req *http.Request) (metav1.DeleteOptions, error) {
	options := metav1.DeleteOptions{}
	if grace := req.URL.Query().Get("gracePeriodSeconds"); grace != "" {
		seconds, err := strconv.ParseInt(grace, 10, 64)
		if err != nil {
			return options, apierrors.NewBadRequest("invalid gracePeriodSeconds: " + grace)
		}
		options.GracePeriodSeconds = &seconds
	}
	if dryRun(req) {
		options.DryRun = []string{metav1.DryRunAll}
	}
	if req.ContentLength == 0 {
		return options, nil
	}
	body, err := decode(req, core("DeleteOptions"))
	if err != nil {
		return options, err
	}
	given, ok := body.(*metav1.DeleteOptions)
	if !ok {
		return options, apierrors.NewBadRequest("the body of a deletion must be DeleteOptions")
	}
	return *given, nil
}

func (s *Server) postEviction(w http.ResponseWriter, r *request, body runtime.Object) error {
	eviction, ok := body.(*policyv1.Eviction)
	if !ok {
		return apierrors.NewBadRequest("the body of an eviction must be policy/v1 Eviction")
	}
	options := metav1.DeleteOptions{}
	if eviction.DeleteOptions != nil {
		options = *eviction.DeleteOptions
	}
	if err := s.Cluster.evict(r.namespace, r.name, options); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess, Code: http.StatusCreated,
	})
	return nil
}

func dryRun(req *http.Request) bool { return req.URL.Query().Get("dryRun") == metav1.DryRunAll }

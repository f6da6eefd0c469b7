package workload

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// typeConverter has the merge rules of every built-in type. It is created at the first apply, because
// parsing the schema takes long.
var typeConverter = sync.OnceValue(func() managedfields.TypeConverter {
	return applyconfigurations.NewTypeConverter(scheme.Scheme)
})

func (s *Server) patch(w http.ResponseWriter, req *http.Request, r *request) error {
	body, err := readBody(req)
	if err != nil {
		return err
	}
	mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return apierrors.NewBadRequest("invalid Content-Type: " + err.Error())
	}
	apply := types.PatchType(mediaType) == types.ApplyPatchType
	if apply && r.sub == "" {
		if created, err := s.applyNew(r, req, body); err != nil || created != nil {
			if err == nil {
				writeJSON(w, http.StatusCreated, created)
			}
			return err
		}
	}
	patched, err := s.Cluster.update(r, func(old runtime.Object) (runtime.Object, error) {
		if apply {
			return applied(r, old, body, manager(req), req.URL.Query().Get("force") == "true")
		}
		next, err := merged(r.kind, old, body, types.PatchType(mediaType))
		if err != nil || len(metaOf(old).GetManagedFields()) == 0 {
			return next, err
		}
		return tracked(r, old, next, manager(req))
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, patched)
	return nil
}

// merged applies a patch in one of the three formats to an object.
func merged(k *kind, old runtime.Object, body []byte, format types.PatchType) (runtime.Object, error) {
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	var after []byte
	switch format {
	case types.StrategicMergePatchType:
		after, err = strategicpatch.StrategicMergePatch(before, body, k.empty())
	case types.MergePatchType:
		after, err = jsonpatch.MergePatch(before, body)
	case types.JSONPatchType:
		var patch jsonpatch.Patch
		if patch, err = jsonpatch.DecodePatch(body); err == nil {
			after, err = patch.Apply(before)
		}
	default:
		return nil, &apierrors.StatusError{ErrStatus: apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType,
			"patch", k.resource(), metaOf(old).GetName(), "the body of the request was in an unknown format", 0, false).Status()}
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	next := k.empty()
	if err := json.Unmarshal(after, next); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return next, nil
}

// applyNew returns the object that a server-side apply creates, or nil if the object exists.
func (s *Server) applyNew(r *request, req *http.Request, body []byte) (runtime.Object, error) {
	s.Cluster.mu.Lock()
	_, err := s.Cluster.store.get(r.kind, r.namespace, r.name)
	s.Cluster.mu.Unlock()
	if !apierrors.IsNotFound(err) {
		return nil, err
	}
	obj, err := applied(r, r.kind.empty(), body, manager(req), false)
	if err != nil {
		return nil, err
	}
	metaOf(obj).SetNamespace(r.namespace)
	return s.Cluster.create(r.kind, obj)
}

// applied returns the result of a server-side apply: the fields of the manager, or a conflict if
// another manager owns one of them.
func applied(r *request, old runtime.Object, body []byte, manager string, force bool) (runtime.Object, error) {
	if manager == "" {
		return nil, apierrors.NewBadRequest("PatchOptions.meta.k8s.io is invalid: fieldManager: Required value: is required for apply patch")
	}
	wanted := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(body, &wanted.Object); err != nil {
		return nil, apierrors.NewBadRequest("error decoding YAML: " + err.Error())
	}
	if wanted.GetName() != "" && wanted.GetName() != r.name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the object (%s) does not match the name on the URL (%s)", wanted.GetName(), r.name))
	}
	wanted.SetName(r.name)
	fields, err := fieldManager(r)
	if err != nil {
		return nil, err
	}
	return fields.Apply(old.DeepCopyObject(), wanted, manager, force)
}

// tracked records the managers of the fields of an object that was applied.
func tracked(r *request, old, next runtime.Object, manager string) (runtime.Object, error) {
	fields, err := fieldManager(r)
	if err != nil {
		return nil, err
	}
	return fields.UpdateNoErrors(old.DeepCopyObject(), next, manager), nil
}

func fieldManager(r *request) (*managedfields.FieldManager, error) {
	return managedfields.NewDefaultFieldManager(typeConverter(), scheme.Scheme, scheme.Scheme, scheme.Scheme,
		r.kind.GroupVersionKind, r.kind.GroupVersion(), r.sub, nil)
}

func manager(req *http.Request) string { return req.URL.Query().Get("fieldManager") }

package workload

import (
	"net/http"
	"strings"
)

// The OpenAPI documents have no schemas, but only what kubectl checks before a write: that the server
// validates fields.

// describe serves the OpenAPI index and documents, and reports whether the path is one.
func describe(w http.ResponseWriter, req *http.Request) bool {
	path, ok := strings.CutPrefix(req.URL.Path, "/openapi/v3")
	if !ok || req.Method != http.MethodGet {
		return false
	}
	path = strings.Trim(path, "/")
	if path == "" {
		index := map[string]any{}
		for _, k := range kinds {
			index[apiPath(k)] = map[string]string{"serverRelativeURL": "/openapi/v3/" + apiPath(k)}
		}
		writeJSON(w, http.StatusOK, map[string]any{"paths": index})
		return true
	}
	paths := map[string]any{}
	for _, k := range kinds {
		if apiPath(k) == path {
			paths["/"+objectPath(k)] = map[string]any{"patch": patchOperation(k)}
		}
	}
	if len(paths) == 0 {
		return false
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"openapi": "3.0.0", "info": map[string]string{"title": "Kubernetes", "version": "unversioned"}, "paths": paths,
	})
	return true
}

func apiPath(k *kind) string {
	if k.Group == "" {
		return "api/" + k.Version
	}
	return "apis/" + k.GroupVersion().String()
}

func objectPath(k *kind) string {
	if k.namespaced {
		return apiPath(k) + "/namespaces/{namespace}/" + k.plural + "/{name}"
	}
	return apiPath(k) + "/" + k.plural + "/{name}"
}

func patchOperation(k *kind) map[string]any {
	return map[string]any{
		"x-kubernetes-action":             "patch",
		"x-kubernetes-group-version-kind": map[string]string{"group": k.Group, "version": k.Version, "kind": k.Kind},
		"parameters": []any{map[string]any{
			"name": "fieldValidation", "in": "query", "schema": map[string]any{"type": "string", "uniqueItems": true},
		}},
		"responses": map[string]any{"200": map[string]string{"description": "OK"}},
	}
}

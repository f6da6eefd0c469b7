package workload

import (
	"net/http"
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
)

func (s *Server) versionInfo() version.Info {
	parts := append(strings.SplitN(strings.TrimPrefix(s.Version, "v"), ".", 3), "", "")
	return version.Info{
		Major: parts[0], Minor: parts[1], GitVersion: s.Version, GitTreeState: "clean",
		GoVersion: runtime.Version(), Compiler: runtime.Compiler, Platform: "linux/amd64",
	}
}

// discover serves the discovery documents, and reports whether the path is one.
func (s *Server) discover(w http.ResponseWriter, req *http.Request) bool {
	if req.Method != http.MethodGet {
		return false
	}
	answer := discovery(strings.Split(strings.Trim(req.URL.Path, "/"), "/"))
	if answer == nil {
		return false
	}
	writeJSON(w, http.StatusOK, answer)
	return true
}

// discovery returns the document at a path, or nil.
func discovery(path []string) any {
	switch {
	case len(path) == 1 && path[0] == "api":
		return metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{},
		}
	case len(path) == 1 && path[0] == "apis":
		return metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groups()}
	case len(path) == 2 && path[0] == "api" && path[1] == "v1":
		return resources("", "v1")
	case len(path) == 2 && path[0] == "apis":
		for _, g := range groups() {
			if g.Name == path[1] {
				return g
			}
		}
	case len(path) == 3 && path[0] == "apis":
		if list := resources(path[1], path[2]); len(list.APIResources) > 0 {
			return list
		}
	}
	return nil
}

func groups() []metav1.APIGroup {
	var found []metav1.APIGroup
	seen := map[string]bool{"": true}
	for _, k := range kinds {
		if seen[k.Group] {
			continue
		}
		seen[k.Group] = true
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		found = append(found, metav1.APIGroup{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: k.Group,
			Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v,
		})
	}
	return found
}

func resources(group, version string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for _, k := range kinds {
		if k.Group != group || k.Version != version {
			continue
		}
		list.GroupVersion = k.GroupVersion().String()
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: k.plural, SingularName: k.singular(), Namespaced: k.namespaced, Kind: k.Kind,
			Verbs: k.verbs(), ShortNames: k.short,
		})
		if k.status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.plural + "/status", Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
		if k == podKind {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: "pods/eviction", Namespaced: true, Group: "policy", Version: "v1", Kind: "Eviction", Verbs: metav1.Verbs{"create"},
			})
		}
	}
	return list
}

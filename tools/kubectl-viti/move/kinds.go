// Package move copies the objects of namespaces to another management cluster, where the functions adopt what
// exists outside of them, and removes them from the first one.
package move

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/tools/kubectl-viti/cluster"
)

// layers are the kinds that move, each after the kinds that own its objects.
var layers = []cluster.Kind{
	cluster.MustFindKind("NetworkNamespace"), cluster.MustFindKind("KubernetesCluster"), cluster.MustFindKind("Machine"),
	cluster.MustFindKind("NetworkConfiguration"), cluster.MustFindKind("IPAllocation"), cluster.MustFindKind("EtcdBackup"),
}

// companions are the kinds of objects that move with those of the layers.
var companions = []cluster.Kind{
	{Name: "Secret", Resource: "secrets", Version: "v1"},
	{Name: "ConfigMap", Resource: "configmaps", Version: "v1"},
	leaseKind,
}

var namespaceKind = cluster.Kind{Name: "Namespace", Resource: "namespaces", Version: "v1", ClusterScoped: true}

var leaseKind = cluster.Kind{Name: "Lease", Resource: "leases", Group: "coordination.k8s.io", Version: "v1"}

// object is an object that moves.
type object struct {
	*unstructured.Unstructured
	kind cluster.Kind
	// shared is whether the objects that move only name it. It is copied, and stays here, because other objects may use it.
	shared bool
}

func (o object) key() string { return o.kind.Name + " " + o.GetNamespace() + "/" + o.GetName() }

// isLayer reports whether a function reconciles the object.
func (o object) isLayer() bool {
	return o.kind.HasConditions() && o.kind.Group == v1alpha1.GroupVersion.Group
}

// isCompanion reports whether a Secret, ConfigMap or Lease is copied: it is a part of what moves, or an object that moves
// names it. What belongs to a virtual machine stays beside that.
func isCompanion(o object, moving map[string]bool, named map[string]bool) bool {
	return o.GetAnnotations()[v1alpha1.AnnotationUID] == "" && (isPart(o, moving) || named[o.key()])
}

// isPart reports whether a Secret, ConfigMap or Lease exists for what moves only: an object that moves owns it, or it is a
// Secret with the label of a cluster, or the Lease of an address.
func isPart(o object, moving map[string]bool) bool {
	for _, owner := range o.GetOwnerReferences() {
		if moving[string(owner.UID)] {
			return true
		}
	}
	labels := o.GetLabels()
	return o.kind.Name == "Lease" && labels[v1alpha1.LabelManagedBy] == "allocate-ip" || o.kind.Name == "Secret" && labels[v1alpha1.LabelClusterName] != ""
}

// addNames adds the keys of the Secrets and ConfigMaps that the spec of an object names.
func addNames(o object, named map[string]bool) {
	walk(o.Object["spec"], func(key string, value any) {
		switch v := value.(type) {
		case string:
			if key == "configMap" {
				addConfigMaps(o, []any{v}, named)
			}
		case map[string]any:
			if name, ok := v["name"].(string); ok && strings.HasSuffix(key, "ecretRef") {
				named["Secret "+o.GetNamespace()+"/"+name] = true
			}
			if key == "patches" {
				walk(v, func(_ string, names any) { addConfigMaps(o, names, named) })
			}
		case []any:
			if key == "patches" {
				addConfigMaps(o, v, named)
			}
		}
	})
}

func addConfigMaps(o object, names any, named map[string]bool) {
	list, _ := names.([]any)
	for _, name := range list {
		if text, ok := name.(string); ok {
			named["ConfigMap "+o.GetNamespace()+"/"+text] = true
		}
	}
}

// walk calls do for each field below a value, with its name.
func walk(value any, do func(key string, value any)) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			do(key, field)
			walk(field, do)
		}
	case []any:
		for _, item := range v {
			walk(item, do)
		}
	}
}

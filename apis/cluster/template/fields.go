package template

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// ApplyConfiguration returns the body of a server-side apply that gives a cluster the content: the fields of
// the content that no other manager owns, with the content itself in AnnotationTemplate. It holds the UID
// and the resourceVersion of the cluster, so that a cluster that is changed or deleted meanwhile is a conflict.
func ApplyConfiguration(kc *v1alpha1.KubernetesCluster, c Content) (map[string]any, error) {
	spec, _, err := split(kc, c)
	if err != nil {
		return nil, err
	}
	annotation, err := c.annotation()
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "KubernetesCluster",
		"metadata": map[string]any{
			"namespace": kc.Namespace, "name": kc.Name, "uid": string(kc.UID), "resourceVersion": kc.ResourceVersion,
			"annotations": map[string]any{v1alpha1.AnnotationTemplate: annotation},
		},
		"spec": spec,
	}, nil
}

// IsGiven reports whether an ApplyConfiguration has a field, which the API server names as in spec.topology.workers[0].replicas. It is false
// for an object, because a cluster can have other fields of it.
func IsGiven(configuration map[string]any, field string) bool {
	path, _, isItem := strings.Cut(field, "[")
	value, found, err := unstructured.NestedFieldNoCopy(configuration, strings.Split(path, ".")...)
	_, isObject := value.(map[string]any)
	return err == nil && found && (isItem || !isObject)
}

// Overrides returns the fields of the content that another manager owns, as paths in the spec of the cluster,
// for example topology.version or addons[cilium].
func Overrides(kc *v1alpha1.KubernetesCluster, c Content) []string {
	_, overrides, _ := split(kc, c)
	return overrides
}

// OtherManagers returns the managedFields of a cluster without those of FieldManagerTemplate. A cluster that is written
// with them owns its fields itself.
func OtherManagers(kc *v1alpha1.KubernetesCluster) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(kc.ManagedFields), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == v1alpha1.FieldManagerTemplate })
}

// Preview returns a copy of a cluster as it is after it has got the content. The API server computes the
// same from ApplyConfiguration.
func Preview(kc *v1alpha1.KubernetesCluster, c Content) (*v1alpha1.KubernetesCluster, error) {
	added, _, err := split(kc, c)
	if err != nil {
		return nil, err
	}
	own, others, err := ownersOrPresent(kc)
	if err != nil {
		return nil, err
	}
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&kc.Spec)
	if err != nil {
		return nil, fmt.Errorf("read the spec of KubernetesCluster %s/%s: %w", kc.Namespace, kc.Name, err)
	}
	remove(spec, own, others)
	merge(spec, added)
	after := kc.DeepCopy()
	after.Spec = v1alpha1.KubernetesClusterSpec{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &after.Spec); err != nil {
		return nil, fmt.Errorf("read the spec of KubernetesCluster %s/%s with ClusterTemplate %s: %w", kc.Namespace, kc.Name, c.Name, err)
	}
	annotation, err := c.annotation()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationTemplate, annotation)
	return after, err
}

// OwnsAny reports whether FieldManagerTemplate owns one of these fields of the spec of a cluster or a part of one, and no other manager
// owns any. A field is a path, for example topology.version.
func OwnsAny(cluster metav1.Object, fields ...string) bool {
	own, others, err := owners(cluster)
	owns := func(set *fieldpath.Set) bool {
		return slices.ContainsFunc(fields, func(field string) bool { return hasField(set, strings.Split(field, ".")) })
	}
	return err == nil && owns(own) && !owns(others)
}

// hasField reports whether a set has a field or a part of it.
func hasField(set *fieldpath.Set, field []string) bool {
	element := fieldpath.PathElement{FieldName: &field[0]}
	inner := set.WithPrefix(element)
	if len(field) > 1 {
		return hasField(inner, field[1:])
	}
	return set.Has(fieldpath.Path{element}) || !inner.Empty()
}

// owners returns the fields of the spec of a cluster that FieldManagerTemplate owns, and the fields of other managers.
func owners(cluster metav1.Object) (own, others *fieldpath.Set, err error) {
	own, others = fieldpath.NewSet(), fieldpath.NewSet()
	spec := fieldpath.PathElement{FieldName: new("spec")}
	for _, f := range cluster.GetManagedFields() {
		if f.FieldsV1 == nil || f.Subresource == "status" {
			continue
		}
		set := fieldpath.NewSet()
		if err := set.FromJSON(f.FieldsV1.GetRawReader()); err != nil {
			return nil, nil, fmt.Errorf("read managedFields of KubernetesCluster %s/%s: %w", cluster.GetNamespace(), cluster.GetName(), err)
		}
		if f.Manager == v1alpha1.FieldManagerTemplate {
			own = own.Union(set.WithPrefix(spec))
		} else {
			others = others.Union(set.WithPrefix(spec))
		}
	}
	return own, others, nil
}

// ownersOrPresent is owners, and for a cluster that does not exist yet, which has no managedFields, all fields of its manifest.
func ownersOrPresent(kc *v1alpha1.KubernetesCluster) (own, others *fieldpath.Set, err error) {
	own, others, err = owners(kc)
	if len(kc.ManagedFields) == 0 {
		err = insertPresent(kc, others)
	}
	return own, others, err
}

// insertPresent inserts all fields of the spec into a set: those of a cluster that does not exist yet are from its
// manifest.
func insertPresent(kc *v1alpha1.KubernetesCluster, into *fieldpath.Set) error {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&kc.Spec)
	if err != nil {
		return fmt.Errorf("read the spec of KubernetesCluster %s/%s: %w", kc.Namespace, kc.Name, err)
	}
	insert(into, nil, spec)
	return nil
}

func insert(into *fieldpath.Set, at fieldpath.Path, fields map[string]any) {
	for name, field := range fields {
		path := append(at.Copy(), fieldpath.PathElement{FieldName: &name})
		switch typed := field.(type) {
		case map[string]any:
			insert(into, path, typed)
		case []any:
			into.Insert(path)
			for _, item := range typed {
				if addon, ok := item.(map[string]any); ok && len(path) == 1 && name == addonsField {
					text, _ := addon["name"].(string)
					into.Insert(append(path.Copy(), addonElement(text)))
				}
			}
		default:
			into.Insert(path)
		}
	}
}

// split divides the fields of the content into the fields that a cluster gets and the fields that other managers own.
func split(kc *v1alpha1.KubernetesCluster, c Content) (given map[string]any, overrides []string, err error) {
	_, others, err := ownersOrPresent(kc)
	if err != nil {
		return nil, nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c.Cluster.DeepCopy())
	if err != nil {
		return nil, nil, fmt.Errorf("read the content of ClusterTemplate %s: %w", c.Name, err)
	}
	if topology, ok := fields["topology"].(map[string]any); ok && others.Has(fieldpath.MakePathOrDie("topology", "controlplane", "version")) {
		if _, ok := topology["version"]; ok {
			delete(topology, "version") // it has no effect beside controlplane.version
			overrides = append(overrides, "topology.version")
		}
	}
	given = withoutOwned(fields, others, "", &overrides)
	slices.Sort(overrides)
	return given, overrides, nil
}

// addonsField is the only list whose items have owners of their own. The others are atomic.
const addonsField = "addons"

// withoutOwned returns the fields that are not in a set of owned ones, and appends the paths of the
// others to overrides.
func withoutOwned(fields map[string]any, owned *fieldpath.Set, at string, overrides *[]string) map[string]any {
	kept := map[string]any{}
	for name, field := range fields {
		element := fieldpath.PathElement{FieldName: &name}
		path := strings.TrimPrefix(at+"."+name, ".")
		switch typed := field.(type) {
		case map[string]any:
			if inner := withoutOwned(typed, owned.WithPrefix(element), path, overrides); len(inner) > 0 {
				kept[name] = inner
			}
		case []any:
			if path == addonsField {
				if items := withoutOwnedAddons(typed, owned.WithPrefix(element), overrides); len(items) > 0 {
					kept[name] = items
				}
				continue
			}
			keepUnlessOwned(kept, field, owned, element, path, overrides)
		default:
			keepUnlessOwned(kept, field, owned, element, path, overrides)
		}
	}
	return kept
}

func keepUnlessOwned(kept map[string]any, field any, owned *fieldpath.Set, element fieldpath.PathElement, path string, overrides *[]string) {
	if owned.Has(fieldpath.Path{element}) {
		*overrides = append(*overrides, path)
		return
	}
	kept[*element.FieldName] = field
}

// withoutOwnedAddons leaves out an add-on as a whole if another manager owns one of its fields, because an
// add-on has one source.
func withoutOwnedAddons(items []any, owned *fieldpath.Set, overrides *[]string) []any {
	var kept []any
	for _, item := range items {
		name, _ := item.(map[string]any)["name"].(string)
		element := addonElement(name)
		if owned.Has(fieldpath.Path{element}) || !owned.WithPrefix(element).Empty() {
			*overrides = append(*overrides, addonsField+"["+name+"]")
			continue
		}
		kept = append(kept, item)
	}
	return kept
}

func addonElement(name string) fieldpath.PathElement {
	return fieldpath.PathElement{Key: &value.FieldList{{Name: "name", Value: value.NewValueInterface(name)}}}
}

// remove removes the fields of own that others do not have from fields.
func remove(fields map[string]any, own, others *fieldpath.Set) {
	for name, field := range fields {
		element := fieldpath.PathElement{FieldName: &name}
		switch inner, isMap := field.(map[string]any); {
		case name == addonsField:
			fields[name] = removeAddons(field.([]any), own.WithPrefix(element), others.WithPrefix(element))
		case isMap:
			remove(inner, own.WithPrefix(element), others.WithPrefix(element))
			if len(inner) == 0 {
				delete(fields, name)
			}
		case own.Has(fieldpath.Path{element}) && !others.Has(fieldpath.Path{element}):
			delete(fields, name)
		}
	}
}

func removeAddons(items []any, own, others *fieldpath.Set) []any {
	return slices.DeleteFunc(slices.Clone(items), func(item any) bool {
		name, _ := item.(map[string]any)["name"].(string)
		element := addonElement(name)
		return !own.WithPrefix(element).Empty() && others.WithPrefix(element).Empty() && !others.Has(fieldpath.Path{element})
	})
}

// merge writes added into fields. Add-ons come after the add-ons of fields.
func merge(fields, added map[string]any) {
	for name, field := range added {
		inner, isMap := field.(map[string]any)
		present, has := fields[name].(map[string]any)
		existing, hasList := fields[name].([]any)
		switch {
		case isMap && has:
			merge(present, inner)
		case name == addonsField && hasList:
			fields[name] = append(existing, field.([]any)...)
		default:
			fields[name] = field
		}
	}
}

package changes

import (
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
)

// leaf is a field of a spec that has no fields of its own. path has [] after a list of objects.
type leaf struct {
	kind, path string
	schema     apiextensionsv1.JSONSchemaProps
}

// readLeaves returns the leaf fields of all specs, in the order of kind and path. A kind with several
// versions has the fields of the stored one.
func readLeaves(t *testing.T) (all []leaf) {
	t.Helper()
	files, err := fs.Glob(apis.CRDs, "crds/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := apis.CRDs.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if v.Storage {
				all = append(all, leavesOf(crd.Spec.Names.Kind, "", v.Schema.OpenAPIV3Schema.Properties["spec"])...)
			}
		}
	}
	slices.SortFunc(all, func(a, b leaf) int { return strings.Compare(a.kind+" "+a.path, b.kind+" "+b.path) })
	return all
}

func leavesOf(kind, path string, s apiextensionsv1.JSONSchemaProps) (all []leaf) {
	switch {
	case len(s.Properties) > 0:
		for name, property := range s.Properties {
			all = append(all, leavesOf(kind, strings.TrimPrefix(path+"."+name, "."), property)...)
		}
	case s.Items != nil && s.Items.Schema != nil && len(s.Items.Schema.Properties) > 0:
		all = leavesOf(kind, path+"[]", *s.Items.Schema)
	default:
		all = []leaf{{kind, path, s}}
	}
	return all
}

// set writes a value into a field of a spec. In a list of objects it is that with the index, or the
// first one where path has no index. Objects on the way are created.
func set(spec map[string]any, path string, value any) {
	name, rest, deeper := strings.Cut(path, ".")
	name, index, isList := strings.Cut(name, "[")
	switch {
	case isList:
		list, _ := spec[name].([]any)
		list = slices.Clone(list)
		at, _ := strconv.Atoi(strings.TrimSuffix(index, "]"))
		for len(list) <= at {
			list = append(list, map[string]any{})
		}
		item, _ := list[at].(map[string]any)
		set(item, rest, value)
		spec[name] = list
	case deeper:
		inner, _ := spec[name].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
		}
		set(inner, rest, value)
		spec[name] = inner
	case value == nil:
		delete(spec, name)
	default:
		spec[name] = value
	}
}

// get reads a field that set writes.
func get(spec any, path string) any {
	for _, name := range strings.Split(path, ".") {
		name, index, isList := strings.Cut(name, "[")
		object, _ := spec.(map[string]any)
		spec = object[name]
		if isList {
			list, _ := spec.([]any)
			at, _ := strconv.Atoi(strings.TrimSuffix(index, "]"))
			if len(list) <= at {
				return nil
			}
			spec = list[at]
		}
	}
	return spec
}

// parse decodes a value that a table has as YAML.
func parse(text string) any {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return fmt.Sprintf("%s: %v", text, err)
	}
	return integers(v)
}

// integers turns whole numbers into int64, as the API server returns them.
func integers(v any) any {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	}
	return v
}

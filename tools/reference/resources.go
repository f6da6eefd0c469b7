package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// resourcePages returns a page for each CRD of a folder, by its file name.
func resourcePages(crds string) (map[string]string, error) {
	files, err := readFiles(filepath.Join(crds, "*.yaml"))
	if err != nil {
		return nil, err
	}
	pages := map[string]string{}
	for file, text := range files {
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		pages[strings.ToLower(crd.Spec.Names.Kind)+".md"] = resourcePage(&crd)
	}
	return pages, nil
}

// resourcePage returns the page of the version that is stored.
func resourcePage(crd *apiextensionsv1.CustomResourceDefinition) string {
	names := crd.Spec.Names
	stored := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage })
	version := crd.Spec.Versions[stored]
	schema := version.Schema.OpenAPIV3Schema
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n%s\n\n| | |\n|---|---|\n", names.Kind, strings.Join(strings.Fields(schema.Description), " "))
	fmt.Fprintf(&b, "| apiVersion | `%s/%s` |\n", crd.Spec.Group, version.Name)
	if older := olderVersions(crd); older != "" {
		fmt.Fprintf(&b, "| also served | %s |\n", older)
	}
	fmt.Fprintf(&b, "| scope | %s |\n", map[bool]string{true: "namespace", false: "cluster"}[crd.Spec.Scope == apiextensionsv1.NamespaceScoped])
	fmt.Fprintf(&b, "| for kubectl | %s |\n", code(append([]string{names.Plural}, names.ShortNames...)))
	b.WriteString("\nWhat a change of a field does is in [changes](../changes.md), what a reason of a condition means in [conditions](conditions.md).\n")
	for _, part := range []string{"spec", "status"} {
		if s, ok := schema.Properties[part]; ok {
			fmt.Fprintf(&b, "\n## %s\n\n| field | type | |\n|---|---|---|\n", part)
			writeFields(&b, part, &s)
		}
	}
	writeRules(&b, schema)
	return b.String()
}

// writeRules writes what the API server refuses by rules over several fields, or over the old and the new object.
func writeRules(b *strings.Builder, schema *apiextensionsv1.JSONSchemaProps) {
	var rows []string
	collectRules(&rows, "", schema)
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## Rules\n\nThe API server refuses an object that breaks one of these.\n\n| where | message |\n|---|---|\n%s", strings.Join(rows, ""))
}

func collectRules(rows *[]string, path string, s *apiextensionsv1.JSONSchemaProps) {
	for _, rule := range s.XValidations {
		if rule.Message != "" {
			where := strings.TrimPrefix(path+rule.FieldPath, ".")
			*rows = append(*rows, fmt.Sprintf("| `%s` | %s |\n", cmp.Or(where, "object"), cell(rule.Message)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		collectRules(rows, path+"."+name, &field)
	}
	if s.Items != nil && s.Items.Schema != nil {
		collectRules(rows, path+"[]", s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		collectRules(rows, path+".*", s.AdditionalProperties.Schema)
	}
}

func olderVersions(crd *apiextensionsv1.CustomResourceDefinition) string {
	var names []string
	for _, v := range crd.Spec.Versions {
		if v.Served && !v.Storage {
			names = append(names, crd.Spec.Group+"/"+v.Name)
		}
	}
	return code(names)
}

// writeFields writes a row for each field of a schema, and of what it contains, in alphabetical order.
func writeFields(b *strings.Builder, path string, s *apiextensionsv1.JSONSchemaProps) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		where := path + "." + name
		about := []string{strings.Replace(field.Description, " One of "+strings.Join(valuesOf(&field), ", ")+".", "", 1)}
		if slices.Contains(s.Required, name) {
			about = append(about, "Required.")
		}
		about = append(about, limits(&field)...)
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", where, typeOf(&field), cell(strings.Join(about, " ")))
		writeFields(b, where, &field)
		if field.Items != nil && field.Items.Schema != nil {
			writeFields(b, where+"[]", field.Items.Schema)
		}
		if field.AdditionalProperties != nil && field.AdditionalProperties.Schema != nil {
			writeFields(b, where+".*", field.AdditionalProperties.Schema)
		}
	}
}

// typeOf returns the type of a field in words.
func typeOf(s *apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(s.Items.Schema)
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(s.AdditionalProperties.Schema)
	case s.Format == "date-time":
		return "time"
	default:
		return cmp.Or(s.Type, "any")
	}
}

// limits returns sentences about the values that the API server accepts.
func limits(s *apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	length := s.MaxLength
	if values := valuesOf(s); len(values) > 0 {
		all = append(all, "One of "+code(values)+".")
		length = nil
	}
	if s.Default != nil && !strings.Contains(s.Description, "Default") {
		all = append(all, "Default: "+code([]string{strings.Trim(string(s.Default.Raw), `"`)})+".")
	}
	for _, bound := range []struct {
		format string
		value  *int64
	}{{"At most %d characters.", length}, {"At least %d entries.", s.MinItems}, {"At most %d entries.", s.MaxItems}} {
		if bound.value != nil && *bound.value != 0 {
			all = append(all, strings.Replace(fmt.Sprintf(bound.format, *bound.value), " 1 entries", " 1 entry", 1))
		}
	}
	if s.Minimum != nil {
		all = append(all, fmt.Sprintf("From %v.", *s.Minimum))
	}
	if s.Maximum != nil {
		all = append(all, fmt.Sprintf("To %v.", *s.Maximum))
	}
	return all
}

// valuesOf returns the values that a text may have, or nil. Command crds writes those of a spec into a rule.
func valuesOf(s *apiextensionsv1.JSONSchemaProps) (values []string) {
	for _, v := range s.Enum {
		values = append(values, strings.Trim(string(v.Raw), `"`))
	}
	for _, r := range s.XValidations {
		if list, found := strings.CutPrefix(r.Rule, "self in ['"); found {
			return strings.Split(strings.TrimSuffix(list, "']"), "', '")
		}
	}
	return values
}

// code returns words in code spans, with commas between them.
func code(words []string) string {
	spans := make([]string, len(words))
	for i, w := range words {
		spans[i] = "`" + w + "`"
	}
	return strings.Join(spans, ", ")
}

// subjects are the pages that are not about one kind, in the order of the list.
var subjects = []struct{ file, title, about string }{
	{"conditions.md", "conditions", "what each reason of a condition means, who acts, and how"},
	{"events.md", "events", "the data of the CloudEvents from and to other systems"},
	{"rest.md", "REST API", "the requests of the gateway"},
	{"metrics.md", "metrics", "what the gateway and the functions count and measure"},
}

// indexPage returns the list of the pages.
func indexPage(pages map[string]string) string {
	var b strings.Builder
	b.WriteString("# Reference\n\nThese pages are generated from the [CRDs](../../apis/crds), the schemas and the code. See also the\n" +
		"[values of the chart](../../charts/vitistack/README.md).\n\n| page | |\n|---|---|\n")
	kinds := maps.Clone(pages)
	for _, s := range subjects {
		fmt.Fprintf(&b, "| [%s](%s) | %s |\n", s.title, s.file, s.about)
		delete(kinds, s.file)
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		title, rest, _ := strings.Cut(strings.TrimPrefix(kinds[name], "# "), "\n")
		first, _, _ := strings.Cut(strings.TrimSpace(rest), ". ")
		first, _, _ = strings.Cut(first, "\n")
		fmt.Fprintf(&b, "| [%s](%s) | %s |\n", title, name, cell(strings.TrimSuffix(first, ".")))
	}
	return b.String()
}

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// maxLength bounds values that an enumeration has bounded, so that the API server can estimate the cost of rules that compare
// them. It is longer than a value and its usual misspellings, because a longer text is refused without the values.
const maxLength = 32

// rewriteSpec requires spec by a rule, and replaces what a rule can say in the schema of spec. singular is the name of the kind
// for kubectl explain.
func rewriteSpec(root *apiextensionsv1.JSONSchemaProps, singular string) {
	spec, ok := root.Properties["spec"]
	if !ok {
		return
	}
	rewriteSchema(&spec, nil)
	root.Properties["spec"] = spec
	if i := slices.Index(root.Required, "spec"); i >= 0 {
		root.Required = slices.Delete(root.Required, i, i+1)
		requireByRule(root, "spec", fmt.Sprintf("write spec: kubectl explain %s.spec shows its fields", singular))
	}
}

// rewriteSchema replaces enumerations and required fields in a schema, and in what it contains, by rules. keys are the keys of the
// list whose items have this schema: the API server wants them required in the schema.
func rewriteSchema(s *apiextensionsv1.JSONSchemaProps, keys []string) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		// Label selectors are a type of Kubernetes, whose lists have no maximum, so that rules on items are too expensive.
		if name == "matchExpressions" {
			continue
		}
		field := s.Properties[name]
		if values := replaceEnum(&field); values != nil {
			field.Description = describe(field.Description, values)
		}
		if i := slices.IndexFunc(field.XValidations, listsValues); i >= 0 {
			guard(s, name, fmt.Sprintf("has(self.%s) && !(%s)", name, strings.Replace(field.XValidations[i].Rule, "self", "self."+name, 1)))
		}
		rewriteSchema(&field, nil)
		s.Properties[name] = field
	}
	if s.Items != nil {
		rewriteItems(s, s.Items.Schema, s.XListMapKeys)
	}
	if s.AdditionalProperties != nil {
		rewriteItems(s, s.AdditionalProperties.Schema, nil)
	}
	replaceRequired(s, keys)
}

// rewriteItems rewrites the schema of the items of a list or of the values of a map. kubectl explain shows the description of the
// list or map, and not that of items.
func rewriteItems(s, items *apiextensionsv1.JSONSchemaProps, keys []string) {
	if items == nil {
		return
	}
	if values := replaceEnum(items); values != nil {
		s.Description = describe(s.Description, values)
	}
	rewriteSchema(items, keys)
}

// replaceRequired replaces the required fields of an object by rules, except keys and fields with a default, which are never
// absent. The descriptions say which fields are required, because kubectl explain shows no rules.
func replaceRequired(s *apiextensionsv1.JSONSchemaProps, keys []string) {
	required := s.Required
	s.Required = nil
	for _, name := range required {
		field := s.Properties[name]
		if slices.Contains(keys, name) || field.Default != nil {
			s.Required = append(s.Required, name)
			continue
		}
		requireByRule(s, name, fmt.Sprintf("write %s: %s", name, summary(field.Description)))
		field.Description += " Required."
		s.Properties[name] = field
	}
}

// requireByRule adds a rule that a field is present.
func requireByRule(s *apiextensionsv1.JSONSchemaProps, name, message string) {
	guard(s, name, "!has(self."+name+")")
	s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
		Rule: "has(self." + name + ")", FieldPath: "." + name, Message: message,
		Reason: new(apiextensionsv1.FieldValueRequired),
	})
}

// guard has the rules of an object that read a field hold while wrong does, which another rule refuses. They would add messages about
// consequences of that mistake, or about their own evaluation.
func guard(s *apiextensionsv1.JSONSchemaProps, name, wrong string) {
	reads := regexp.MustCompile(`\bself\.` + name + `\b`)
	for i, r := range s.XValidations {
		requires, guarded := r.Rule == "has(self."+name+")", strings.Contains(r.Rule, wrong)
		if reads.MatchString(r.Rule) && !requires && !guarded {
			s.XValidations[i].Rule = fmt.Sprintf("%s || (%s)", wrong, r.Rule)
		}
	}
}

// summary returns the first sentence of a description, and its example.
func summary(description string) string {
	text := strings.TrimSuffix(strings.Join(strings.Fields(description), " "), ".")
	text, example, found := strings.Cut(text, "Example: ")
	first, _, _ := strings.Cut(text, ". ")
	if found {
		example, _, _ = strings.Cut(example, ". ")
		return first + ", for example " + example
	}
	return first
}

// replaceEnum replaces the enumeration of a text by a rule, and returns the values that a rule lists now. It returns nil if there is none, or
// if the field narrows the enumeration of its type by a rule of its own.
func replaceEnum(s *apiextensionsv1.JSONSchemaProps) []string {
	values := make([]string, len(s.Enum))
	for i, v := range s.Enum {
		if json.Unmarshal(v.Raw, &values[i]) != nil {
			return nil
		}
	}
	s.Enum = nil
	if len(values) == 0 || slices.ContainsFunc(s.XValidations, listsValues) {
		return nil
	}
	if s.MaxLength == nil {
		s.MaxLength = new(int64(maxLength))
	}
	s.XValidations = append(s.XValidations, apiextensionsv1.ValidationRule{
		Rule:    "self in ['" + strings.Join(values, "', '") + "']",
		Message: "write " + choice(values),
	})
	return values
}

// listsValues reports whether a rule lists the values of a field.
func listsValues(r apiextensionsv1.ValidationRule) bool {
	return strings.HasPrefix(r.Rule, "self in [") && strings.HasSuffix(r.Rule, "]")
}

// choice lists values, for example: vip, custom or node.
func choice(values []string) string {
	last := len(values) - 1
	if last == 0 {
		return values[0]
	}
	return strings.Join(values[:last], ", ") + " or " + values[last]
}

// describe returns a description that names all values, because kubectl explain shows no rules.
func describe(text string, values []string) string {
	for _, v := range values {
		if !regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(v) + `($|\W)`).MatchString(text) {
			return strings.TrimSpace(text + " One of " + strings.Join(values, ", ") + ".")
		}
	}
	return text
}

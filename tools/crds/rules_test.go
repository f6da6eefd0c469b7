package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const crd = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: fields.example.com}
spec:
  group: example.com
  names: {kind: Field, plural: fields, singular: field}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        x-kubernetes-validations:
        - {rule: self.spec.a == oldSelf.spec.a, message: a is fixed}
        - {rule: self.metadata.name != 'x', message: x is reserved}
        properties:
          spec: {type: object, properties: {a: FIELD}}
          status: {type: object, properties: {phase: {type: string, enum: [Pending, Ready]}}}
`

// rewritten returns the schema of crd with a field a, after two calls of rewrite.
func rewritten(t *testing.T, field string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	once, err := rewrite([]byte(strings.Replace(crd, "FIELD", field, 1)))
	if err != nil {
		t.Fatal(err)
	}
	twice, err := rewrite(once)
	if err != nil || string(once) != string(twice) {
		t.Fatalf("a second call must change nothing (%v), got\n%s\nafter\n%s", err, twice, once)
	}
	var got apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(twice, &got); err != nil {
		t.Fatal(err)
	}
	return got.Spec.Versions[0].Schema.OpenAPIV3Schema
}

func TestEnumerationsBecomeRules(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, field, rule, message, about string
		at                                  func(a *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps
	}{
		"Described": {reason: "the description has the values", field: "{type: string, description: red or blue., enum: [red, blue]}", rule: "self in ['red', 'blue']", message: "write red or blue", about: "red or blue."},
		"Named":     {reason: "the description lacks one", field: "{type: string, description: Such as red., enum: [red, blue, green]}", rule: "self in ['red', 'blue', 'green']", message: "write red, blue or green", about: "Such as red. One of red, blue, green."},
		"Part":      {reason: "vip is no word of it", field: "{type: string, description: vips., enum: [vip]}", rule: "self in ['vip']", message: "write vip", about: "vips. One of vip."},
		"Narrowed": {reason: "the rule of the field is narrower", field: "{type: string, description: red., enum: [red, blue], x-kubernetes-validations: [{rule: \"self in ['red']\", message: write red}]}",
			rule: "self in ['red']", message: "write red", about: "red."},
		"Items": {reason: "kubectl explain shows the list", field: "{type: array, description: All., items: {type: string, description: Own., enum: [red, blue]}}", rule: "self in ['red', 'blue']", message: "write red or blue", about: "All. One of red, blue.",
			at: func(a *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps { return a.Items.Schema }},
		"Objects": {reason: "a list of objects", field: "{type: array, description: All., items: {type: object, properties: {b: {type: string, enum: [red, blue]}}}}", rule: "self in ['red', 'blue']", message: "write red or blue", about: "All.",
			at: func(a *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
				b := a.Items.Schema.Properties["b"]
				return &b
			}},
		"Map": {reason: "the values of a map", field: "{type: object, description: All., additionalProperties: {type: string, enum: [red, blue]}}", rule: "self in ['red', 'blue']", message: "write red or blue", about: "All. One of red, blue.",
			at: func(a *apiextensionsv1.JSONSchemaProps) *apiextensionsv1.JSONSchemaProps {
				return a.AdditionalProperties.Schema
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := rewritten(t, tc.field).Properties["spec"].Properties["a"]
			if a.Description != tc.about {
				t.Errorf("%s: want the description %q, got %q", tc.reason, tc.about, a.Description)
			}
			s := &a
			if tc.at != nil {
				s = tc.at(s)
			}
			if name != "Narrowed" && (s.MaxLength == nil || *s.MaxLength != maxLength) {
				t.Errorf("%s: the API server cannot estimate the cost of rules about a text without a length", tc.reason)
			}
			if len(s.Enum) > 0 || len(s.XValidations) != 1 || s.XValidations[0].Rule != tc.rule || s.XValidations[0].Message != tc.message {
				t.Errorf("%s: want rule %q with %q, got %v and %v", tc.reason, tc.rule, tc.message, s.XValidations, s.Enum)
			}
		})
	}
}

// TestOtherRulesHoldForMistakes has a rule that reads two fields, each of which another rule refuses.
func TestOtherRulesHoldForMistakes(t *testing.T) {
	t.Parallel()
	a := rewritten(t, "{type: object, required: [b, c], x-kubernetes-validations: [{rule: self.b == 'red' || self.c > 1, message: red has c}], "+
		"properties: {b: {type: string, description: 'The colour. It stays. Example: red.', enum: [red, blue]}, c: {type: integer, default: 1}}}").Properties["spec"].Properties["a"]
	want := apiextensionsv1.ValidationRules{
		{Rule: "!has(self.b) || (has(self.b) && !(self.b in ['red', 'blue']) || (self.b == 'red' || self.c > 1))", Message: "red has c"},
		{Rule: "has(self.b)", FieldPath: ".b", Message: "write b: The colour, for example red", Reason: new(apiextensionsv1.FieldValueRequired)},
	}
	if diff := cmp.Diff(want, a.XValidations); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if !slices.Equal(a.Required, []string{"c"}) {
		t.Errorf("a field with a default is never absent, got %q", a.Required)
	}
	if got := a.Properties["b"].Description; got != "The colour. It stays. Example: red. One of red, blue. Required." {
		t.Errorf("kubectl explain shows the description, got %q", got)
	}
}

// TestListKeysStayRequired has a list with a key, which the API server wants required in the schema.
func TestListKeysStayRequired(t *testing.T) {
	t.Parallel()
	a := rewritten(t, "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, required: [name, size], "+
		"properties: {name: {type: string}, size: {type: string, description: A size.}}}}").Properties["spec"].Properties["a"]
	if got := a.Items.Schema.Required; !slices.Equal(got, []string{"name"}) {
		t.Errorf("want the key only, got %q", got)
	}
}

func TestSpecIsRequiredByARule(t *testing.T) {
	t.Parallel()
	root := rewritten(t, "{type: string}")
	var rules []string
	for _, r := range root.XValidations {
		rules = append(rules, r.Rule)
	}
	want := []string{"!has(self.spec) || (self.spec.a == oldSelf.spec.a)", "self.metadata.name != 'x'", "has(self.spec)"}
	if len(root.Required) > 0 || !slices.Equal(rules, want) {
		t.Errorf("want the rules %q, got %q and required %v", want, rules, root.Required)
	}
	if got := root.XValidations[2].Message; got != "write spec: kubectl explain field.spec shows its fields" {
		t.Errorf("the message says what to write, got %q", got)
	}
	if len(root.Properties["status"].Properties["phase"].Enum) != 2 {
		t.Error("functions write the status: its enumerations stay")
	}
}

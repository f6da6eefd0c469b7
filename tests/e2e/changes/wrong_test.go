package changes

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wrongValues returns values that a field must not accept, by the kind of the mistake.
func wrongValues(l leaf) map[string]any {
	s, all := l.schema, map[string]any{}
	const huge = 1 << 20
	switch s.Type {
	case "string":
		all["a number"], all["empty"], all["too long"] = int64(7), "", strings.Repeat("x", huge)
		if s.MaxLength != nil {
			all["too long"] = strings.Repeat("x", int(*s.MaxLength)+1)
		}
	case "integer":
		all["negative"], all["huge"], all["a text"] = int64(-1), int64(1)<<33, "seven"
		if s.Minimum != nil {
			all["below the minimum"] = int64(*s.Minimum) - 1
		}
		if s.Maximum != nil {
			all["above the maximum"] = int64(*s.Maximum) + 1
		}
	case "boolean":
		all["a text"] = "yes"
	case "array":
		all["a text"], all["an empty item"], all["a huge item"] = "x", []any{""}, []any{strings.Repeat("x", huge)}
	case "object":
		all["a text"], all["a huge value"] = "x", map[string]any{"a": strings.Repeat("x", huge)}
	}
	return all
}

// checkWrongValues gives each field values that are wrong for its type. Each is refused, or accepted
// for a reason of the table.
func (w *world) checkWrongValues(t *testing.T) {
	used := map[string]bool{}
	for _, l := range readLeaves(t) {
		r := rowsOf(l)[0]
		values := wrongValues(l)
		for _, mistake := range slices.Sorted(maps.Keys(values)) {
			key := fmt.Sprintf("%s %s: %s", l.kind, l.path, mistake)
			err := w.tryValue(subjects[r.on], r, values[mistake])
			reason := cmp.Or(acceptedValues[key], acceptedValues["any: "+mistake])
			switch {
			case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err):
				if acceptedValues[key] != "" {
					t.Errorf("%s is refused: remove it from the table (%v)", key, err)
				}
			case err != nil:
				t.Errorf("%s: %v", key, err)
			case reason == "":
				t.Errorf("%s is accepted: refuse it in the schema, or give the reason in the table", key)
			}
			used[key] = true
		}
	}
	for key := range acceptedValues {
		if !used[key] && !strings.HasPrefix(key, "any: ") {
			t.Errorf("%s is no mistake that is tried: remove it from the table", key)
		}
	}
}

// tryValue changes the field of a row to any value, as a dry run.
func (w *world) tryValue(s subject, r row, value any) error {
	options := metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	return w.update(s, options, func(obj *unstructured.Unstructured) {
		spec := obj.Object["spec"].(map[string]any)
		for path, text := range r.with {
			set(spec, path, parse(text))
		}
		set(spec, cmp.Or(r.at, r.field), value)
	})
}

// badSelector is the reason for label selectors, whose fields the schema of Kubernetes leaves open.
const badSelector = "a condition says that the selector cannot be read, and it selects no namespace"

// acceptedValues are values that look wrong and are accepted, with the reason.
var acceptedValues = map[string]string{
	"any: empty": "an empty text is the same as an absent field, which has a default; a field that is required refuses it",
	"MachineProvider allowedNamespaces.selector.matchExpressions[].key: empty":            badSelector,
	"MachineProvider allowedNamespaces.selector.matchExpressions[].key: too long":         badSelector,
	"MachineProvider allowedNamespaces.selector.matchExpressions[].values: a huge item":   badSelector,
	"MachineProvider allowedNamespaces.selector.matchExpressions[].values: an empty item": badSelector,
	"MachineProvider allowedNamespaces.selector.matchLabels: a huge value":                badSelector,
	"NetworkPool allowedNamespaces.selector.matchExpressions[].key: empty":                badSelector,
	"NetworkPool allowedNamespaces.selector.matchExpressions[].key: too long":             badSelector,
	"NetworkPool allowedNamespaces.selector.matchExpressions[].values: a huge item":       badSelector,
	"NetworkPool allowedNamespaces.selector.matchExpressions[].values: an empty item":     badSelector,
	"NetworkPool allowedNamespaces.selector.matchLabels: a huge value":                    badSelector,
}

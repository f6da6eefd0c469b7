// Package admission judges objects of the stack as the API server does by their
// CustomResourceDefinitions: unknown fields, types, values, and the rules that compare fields. It uses the
// API server's own libraries, so that findings have its texts.
package admission

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
)

// Refusal is why the API server would refuse an object.
type Refusal struct {
	// Field is the path of the field, such as spec.networks[0].macAddress, or empty for the whole object.
	Field string
	// Message is what the API server says, with the field.
	Message string
}

// Validate returns what the API server would refuse of an object, with its namespace. before is the object
// that exists, or nil for a new one. Validate changes neither. An error means that the definition of the
// kind is invalid.
func Validate(ctx context.Context, o, before *unstructured.Unstructured) ([]Refusal, error) {
	d, err := definitionOf(o.GetKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return []Refusal{{"apiVersion", fmt.Sprintf("%s has no version %s", o.GetKind(), o.GetAPIVersion())}}, nil
	}
	after, err := decoded(o)
	if err != nil {
		return nil, err
	}
	var all []Refusal
	for _, path := range pruning.PruneWithOptions(after.Object, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		all = append(all, Refusal{path, fmt.Sprintf("unknown field %q", path)})
	}
	defaulting.PruneNonNullableNullsWithoutDefaults(after.Object, d.structural)
	defaulting.Default(after.Object, d.structural)
	found := apivalidation.ValidateObjectMetaAccessor(after, d.namespaced, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	if before == nil {
		found = append(found, d.validateNew(ctx, after.Object)...)
	} else {
		stored, err := decoded(before)
		if err != nil {
			return nil, err
		}
		found = append(found, d.validateUpdate(ctx, after.Object, stored.Object)...)
	}
	for _, e := range found {
		path := strings.TrimPrefix(e.Field, "<nil>")
		message := e.ErrorBody()
		if path != "" {
			message = e.Error()
		}
		all = append(all, Refusal{path, message})
	}
	return all, nil
}

// decoded returns a copy of an object as the API server decodes it, with whole numbers as integers.
func decoded(o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	document, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	next := &unstructured.Unstructured{}
	if err := next.UnmarshalJSON(document); err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	return next, nil
}

// definition is a version of a CustomResourceDefinition.
type definition struct {
	namespaced bool
	structural *schema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// validateNew has the checks and the order of the API server for a new object.
func (d *definition) validateNew(ctx context.Context, object map[string]any) field.ErrorList {
	found := validation.ValidateCustomResource(nil, object, d.values)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	if isBlocking(found) {
		return found
	}
	broken, _ := d.rules.Validate(ctx, nil, d.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(found, broken...)
}

// validateUpdate has the checks and the order of the API server for a change. A value that has not changed may stay.
func (d *definition) validateUpdate(ctx context.Context, object, old map[string]any) field.ErrorList {
	unchanged := common.NewCorrelatedObject(object, old, &model.Structural{Structural: d.structural})
	found := validation.ValidateCustomResourceUpdate(nil, object, old, d.values, validation.WithRatcheting(unchanged))
	if len(listtype.ValidateListSetsAndMaps(nil, d.structural, old)) == 0 {
		found = append(found, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	}
	if isBlocking(found) {
		return found
	}
	broken, _ := d.rules.Validate(ctx, nil, d.structural, object, old, celconfig.RuntimeCELCostBudget, cel.WithRatcheting(unchanged))
	return append(found, broken...)
}

// isBlocking reports whether errors are of the kinds after which the API server evaluates no rules.
func isBlocking(found field.ErrorList) bool {
	return slices.ContainsFunc(found, func(e *field.Error) bool {
		switch e.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	})
}

var definitions sync.Map

// definitionOf returns the definition of a version of a kind, or nil if there is none.
func definitionOf(kind, version string) (*definition, error) {
	key := kind + "/" + version
	if d, ok := definitions.Load(key); ok {
		return d.(*definition), nil
	}
	crd, err := readDefinition(kind)
	if err != nil || crd == nil {
		return nil, err
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		d, err := compile(v.Schema.OpenAPIV3Schema, crd.Spec.Scope == apiextensionsv1.NamespaceScoped)
		if err != nil {
			return nil, fmt.Errorf("compile the definition of %s: %w", kind, err)
		}
		definitions.Store(key, d)
		return d, nil
	}
	return nil, nil
}

// readDefinition returns the CustomResourceDefinition of a kind, or nil if there is none.
func readDefinition(kind string) (*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := fs.Glob(apis.CRDs, "crds/*.yaml")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		content, err := apis.CRDs.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, crd); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if crd.Spec.Names.Kind == kind {
			return crd, nil
		}
	}
	return nil, nil
}

func compile(s *apiextensionsv1.JSONSchemaProps, namespaced bool) (*definition, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(s, internal, nil); err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, err
	}
	values, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, err
	}
	return &definition{namespaced, structural, values, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
}

package preview

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// ErrUnreadable is returned for a manifest that cannot be parsed.
var ErrUnreadable = errors.New("the manifest cannot be read")

// kinds are the kinds with a preview, and the files of their CustomResourceDefinitions.
var kinds = map[string]struct {
	file  string
	empty func() any
}{
	"KubernetesCluster": {"crds/vitistack.io_kubernetesclusters.yaml", func() any { return &v1alpha1.KubernetesCluster{} }},
	"Machine":           {"crds/vitistack.io_machines.yaml", func() any { return &v1alpha1.Machine{} }},
}

// parse decodes a manifest into its type, and adds the errors of its schema.
func parse(manifest []byte, p *Preview) (any, error) {
	document, err := yaml.YAMLToJSONStrict(manifest)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", ErrUnreadable, strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	var about struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(document, &about); err != nil {
		return nil, fmt.Errorf("%w: write one object", ErrUnreadable)
	}
	kind, ok := kinds[about.Kind]
	if !ok || about.APIVersion != v1alpha1.GroupVersion.String() {
		return nil, fmt.Errorf("%w: write a KubernetesCluster or a Machine of %s", ErrUnreadable, v1alpha1.GroupVersion)
	}
	p.Kind = about.Kind
	schema, err := schemaOf(kind.file)
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	var refused *jsonschema.ValidationError
	if errors.As(schema.Validate(value), &refused) {
		p.Errors = schemaErrors(refused)
	}
	read := kind.empty()
	strict := json.NewDecoder(bytes.NewReader(document))
	strict.DisallowUnknownFields()
	if err := strict.Decode(read); err != nil {
		p.Errors = append(p.Errors, FieldError{Pointer: "", Detail: strings.TrimPrefix(err.Error(), "json: ")})
		// The preview shows the decoded fields nevertheless.
		read = kind.empty()
		_ = json.Unmarshal(document, read)
	}
	return read, nil
}

// faults returns the innermost errors of a validation.
func schemaErrors(e *jsonschema.ValidationError) []FieldError {
	if len(e.Causes) == 0 {
		return []FieldError{{
			Pointer: "/" + strings.Join(e.InstanceLocation, "/"),
			Detail:  e.ErrorKind.LocalizedString(message.NewPrinter(language.English)),
		}}
	}
	var all []FieldError
	for _, cause := range e.Causes {
		all = append(all, schemaErrors(cause)...)
	}
	slices.SortStableFunc(all, func(a, b FieldError) int { return strings.Compare(a.Pointer, b.Pointer) })
	return all
}

var schemas sync.Map

// schemaOf returns the compiled schema of a kind.
func schemaOf(file string) (*jsonschema.Schema, error) {
	if s, ok := schemas.Load(file); ok {
		return s.(*jsonschema.Schema), nil
	}
	content, err := apis.CRDs.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &crd); err != nil || len(crd.Spec.Versions) == 0 {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(crd.Spec.Versions[0].Schema.OpenAPIV3Schema))
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(file, document); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	schema, err := compiler.Compile(file)
	if err != nil {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	schemas.Store(file, schema)
	return schema, nil
}

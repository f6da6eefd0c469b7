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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	shared "github.com/vitistack/stack/apis/preview"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// refusals returns what the API server would refuse of a manifest by its schema. Rules that compare fields are
// not part of it.
func refusals(o *unstructured.Unstructured) ([]shared.Finding, error) {
	document, err := o.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	schema, err := schemaOf(o.GetKind(), o.GroupVersionKind().Version)
	if err != nil {
		return nil, err
	}
	if schema == nil {
		return []shared.Finding{{Pointer: "/apiVersion", Detail: fmt.Sprintf("%s has no version %s", o.GetKind(), o.GetAPIVersion())}}, nil
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		return nil, fmt.Errorf("decode %s %s: %w", o.GetKind(), o.GetName(), err)
	}
	var all []shared.Finding
	var refused *jsonschema.ValidationError
	if errors.As(schema.Validate(value), &refused) {
		all = schemaErrors(refused)
	}
	if unknown := unknownField(o.GetKind(), o.GroupVersionKind().Version, document); unknown != "" {
		all = append(all, shared.Finding{Detail: unknown})
	}
	return all, nil
}

// unknownField returns an error for a field that the type of a kind does not have, or nothing.
func unknownField(kind, version string, document []byte) string {
	into := typeOf(kind, version)
	if into == nil {
		return ""
	}
	strict := json.NewDecoder(bytes.NewReader(document))
	strict.DisallowUnknownFields()
	err := strict.Decode(into)
	if err == nil || !strings.Contains(err.Error(), "unknown field") { // the schema reports all others, with their fields
		return ""
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// typeOf returns an empty object of a kind, or nil for an unknown one.
func typeOf(kind, version string) any {
	switch kind {
	case "NetworkNamespace":
		if version == v1alpha1.GroupVersion.Version {
			return &v1alpha1.NetworkNamespace{}
		}
		return &v1alpha2.NetworkNamespace{}
	case "IPAllocation":
		return &v1alpha2.IPAllocation{}
	case "NetworkConfiguration":
		return &v1alpha1.NetworkConfiguration{}
	case "Machine":
		return &v1alpha1.Machine{}
	case "MachineProvider":
		return &v1alpha1.MachineProvider{}
	case "KubernetesCluster":
		return &v1alpha1.KubernetesCluster{}
	case "EtcdBackup":
		return &v1alpha1.EtcdBackup{}
	case "NetworkPool":
		return &v1alpha1.NetworkPool{}
	}
	return nil
}

// schemaErrors returns the innermost errors of a validation.
func schemaErrors(e *jsonschema.ValidationError) []shared.Finding {
	if len(e.Causes) == 0 {
		return []shared.Finding{{
			Pointer: "/" + strings.Join(e.InstanceLocation, "/"),
			Detail:  e.ErrorKind.LocalizedString(message.NewPrinter(language.English)),
		}}
	}
	var all []shared.Finding
	for _, cause := range e.Causes {
		all = append(all, schemaErrors(cause)...)
	}
	slices.SortStableFunc(all, func(a, b shared.Finding) int { return strings.Compare(a.Pointer, b.Pointer) })
	return all
}

var schemas sync.Map

// schemaOf returns the compiled schema of a version of a kind, or nil if there is none.
func schemaOf(kind, version string) (*jsonschema.Schema, error) {
	file := "crds/vitistack.io_" + strings.ToLower(kind) + "s.yaml"
	if s, ok := schemas.Load(file + version); ok {
		return s.(*jsonschema.Schema), nil
	}
	content, err := apis.CRDs.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read definition: %w", err)
	}
	var crd struct {
		Spec struct {
			Versions []struct {
				Name   string `json:"name"`
				Schema struct {
					OpenAPIV3Schema json.RawMessage `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(content, &crd); err != nil {
		return nil, fmt.Errorf("read definition %s: %w", file, err)
	}
	for _, v := range crd.Spec.Versions {
		if v.Name != version {
			continue
		}
		document, err := jsonschema.UnmarshalJSON(bytes.NewReader(v.Schema.OpenAPIV3Schema))
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
		schemas.Store(file+version, schema)
		return schema, nil
	}
	return nil, nil
}

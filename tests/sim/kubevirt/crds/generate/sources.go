package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// frame is what KubeVirt's crds.go defines in addition to the schema.
type frame struct {
	kind       string
	plural     string
	shortNames []string
	status     bool
	columns    []extv1.CustomResourceColumnDefinition
}

const (
	age         = ".metadata.creationTimestamp"
	phase       = ".status.phase"
	readyStatus = ".status.conditions[?(@.type=='Ready')].status"
)

// kubevirtFrames follows pkg/virt-operator/resource/generate/components/crds.go.
// VirtualMachineInstance has no status subresource there, and none here. The deprecated version
// v1alpha3 is omitted, because it would double every schema.
var kubevirtFrames = map[string]frame{
	"virtualmachine": {
		kind: "VirtualMachine", plural: "virtualmachines", shortNames: []string{"vm", "vms"}, status: true,
		columns: []extv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", JSONPath: age},
			{Name: "Status", Type: "string", JSONPath: ".status.printableStatus", Description: "Human Readable Status"},
			{Name: "Ready", Type: "string", JSONPath: readyStatus},
		},
	},
	"virtualmachineinstance": {
		kind: "VirtualMachineInstance", plural: "virtualmachineinstances", shortNames: []string{"vmi", "vmis"},
		columns: []extv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", JSONPath: age},
			{Name: "Phase", Type: "string", JSONPath: phase},
			{Name: "IP", Type: "string", JSONPath: ".status.interfaces[0].ipAddress"},
			{Name: "NodeName", Type: "string", JSONPath: ".status.nodeName"},
			{Name: "Ready", Type: "string", JSONPath: readyStatus},
			{Name: "Live-Migratable", Type: "string", JSONPath: ".status.conditions[?(@.type=='LiveMigratable')].status", Priority: 1},
			{Name: "Paused", Type: "string", JSONPath: ".status.conditions[?(@.type=='Paused')].status", Priority: 1},
		},
	},
	"virtualmachineinstancemigration": {
		kind: "VirtualMachineInstanceMigration", plural: "virtualmachineinstancemigrations", shortNames: []string{"vmim", "vmims"}, status: true,
		columns: []extv1.CustomResourceColumnDefinition{
			{Name: "Phase", Type: "string", JSONPath: phase, Description: "The current phase of VM instance migration"},
			{Name: "VMI", Type: "string", JSONPath: ".spec.vmiName", Description: "The name of the VMI to perform the migration on"},
		},
	},
	"kubevirt": {
		kind: "KubeVirt", plural: "kubevirts", shortNames: []string{"kv", "kvs"}, status: true,
		columns: []extv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", JSONPath: age},
			{Name: "Phase", Type: "string", JSONPath: phase},
		},
	},
}

func kubevirtDefinitions(dir string) ([]*extv1.CustomResourceDefinition, error) {
	file := filepath.Join(dir, "pkg/virt-operator/resource/generate/components/validations_generated.go")
	schemas, err := literals(file, "CRDsValidation")
	if err != nil {
		return nil, err
	}
	var crds []*extv1.CustomResourceDefinition
	for singular, f := range kubevirtFrames {
		text, ok := schemas[singular]
		if !ok {
			return nil, fmt.Errorf("%s has no schema for %s", file, singular)
		}
		var schema extv1.CustomResourceValidation
		if err := yaml.Unmarshal([]byte(text), &schema); err != nil {
			return nil, fmt.Errorf("decode the schema of %s: %w", singular, err)
		}
		crds = append(crds, f.definition(singular, &schema))
	}
	return crds, nil
}

func (f frame) definition(singular string, schema *extv1.CustomResourceValidation) *extv1.CustomResourceDefinition {
	const group = "kubevirt.io"
	version := extv1.CustomResourceDefinitionVersion{
		Name: "v1", Served: true, Storage: true, Schema: schema, AdditionalPrinterColumns: f.columns,
	}
	if f.status {
		version.Subresources = &extv1.CustomResourceSubresources{Status: &extv1.CustomResourceSubresourceStatus{}}
	}
	crd := &extv1.CustomResourceDefinition{Spec: extv1.CustomResourceDefinitionSpec{
		Group: group,
		Scope: extv1.NamespaceScoped,
		Names: extv1.CustomResourceDefinitionNames{
			Kind: f.kind, ListKind: f.kind + "List", Plural: f.plural, Singular: singular,
			ShortNames: f.shortNames, Categories: []string{"all"},
		},
		Versions: []extv1.CustomResourceDefinitionVersion{version},
	}}
	crd.APIVersion, crd.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	crd.Name = f.plural + "." + group
	crd.Labels = map[string]string{"kubevirt.io": ""}
	return crd
}

func cdiDefinitions(dir string) ([]*extv1.CustomResourceDefinition, error) {
	file := filepath.Join(dir, "pkg/operator/resources/crds_generated.go")
	texts, err := literals(file, "CDICRDs")
	if err != nil {
		return nil, err
	}
	var crds []*extv1.CustomResourceDefinition
	for _, name := range []string{"datavolume", "storageprofile"} {
		text, ok := texts[name]
		if !ok {
			return nil, fmt.Errorf("%s has no definition of %s", file, name)
		}
		crd, err := decode([]byte(text))
		if err != nil {
			return nil, fmt.Errorf("decode %s: %w", name, err)
		}
		crds = append(crds, crd)
	}
	return crds, nil
}

func nadDefinitions(dir string) ([]*extv1.CustomResourceDefinition, error) {
	text, err := os.ReadFile(filepath.Join(dir, "artifacts/networks-crd.yaml"))
	if err != nil {
		return nil, err
	}
	crd, err := decode(text)
	if err != nil {
		return nil, err
	}
	return []*extv1.CustomResourceDefinition{crd}, nil
}

func decode(text []byte) (*extv1.CustomResourceDefinition, error) {
	var crd extv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(text, &crd); err != nil {
		return nil, err
	}
	return &crd, nil
}

// literals returns the map of strings that a Go file assigns to a variable.
func literals(file, variable string) (map[string]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var literal *ast.CompositeLit
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && len(spec.Names) == 1 && spec.Names[0].Name == variable && len(spec.Values) == 1 {
			literal, _ = spec.Values[0].(*ast.CompositeLit)
		}
		return literal == nil
	})
	if literal == nil {
		return nil, fmt.Errorf("%s declares no map %s", file, variable)
	}
	texts := map[string]string{}
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			return nil, fmt.Errorf("%s: %s is not a map", file, variable)
		}
		key, err := text(pair.Key)
		if err != nil {
			return nil, err
		}
		if texts[key], err = text(pair.Value); err != nil {
			return nil, fmt.Errorf("%s: value of %q: %w", variable, key, err)
		}
	}
	return texts, nil
}

// text evaluates a constant expression of string literals joined by "+".
func text(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		return strconv.Unquote(e.Value)
	case *ast.ParenExpr:
		return text(e.X)
	case *ast.BinaryExpr:
		left, err := text(e.X)
		if err != nil {
			return "", err
		}
		right, err := text(e.Y)
		return left + right, err
	default:
		return "", fmt.Errorf("%T is not a string", e)
	}
}

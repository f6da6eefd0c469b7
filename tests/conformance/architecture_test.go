package conformance

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const module = "github.com/vitistack/stack/"

// TestImports checks which packages may import which.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		packages := strings.Fields(strings.ReplaceAll(line, module, ""))
		for _, imported := range packages[1:] {
			if reason := forbidden(packages[0], imported); reason != "" {
				t.Errorf("%s imports %s: %s", packages[0], imported, reason)
			}
		}
	}
}

// forbidden returns why a package may not import another one, or an empty string. Paths are relative
// to the module. Packages of other modules are allowed.
func forbidden(importer, imported string) string {
	from, to := top(importer), top(imported)
	switch {
	case isBackend(importer) && isBackend(imported) && path.Dir(importer) == path.Dir(imported):
		return "backends behind one interface do not know each other: put what two need beside the interface"
	case path.Base(importer) == "plan" && isClient(imported):
		return "a plan is computed from values alone: read what it needs before, and pass it in"
	case importer == "gateway/internal/httpserver" && (imported == "gateway/internal/inventory" || imported == "gateway/internal/handlers"):
		return "the HTTP server knows nothing of what its routes serve"
	case from == to || to == "":
		return ""
	case to == "tests" && from != "tools":
		return "production code does not depend on test code"
	case from == "apis" || from == "events":
		return "apis and events are for every client, and depend on nothing else of this module"
	case strings.HasPrefix(to, "functions/") && to != "functions/internal" && from != "tests":
		return "a function is a program of its own: put what two need into functions/internal"
	case to == "gateway" && from != "tests":
		return "the gateway is a program of its own"
	}
	return ""
}

// isBackend reports whether a package is one of several behind the interface of their parent folder.
func isBackend(name string) bool {
	parent := path.Base(path.Dir(name))
	return strings.HasPrefix(name, "functions/") && (parent == "provider" || parent == "hypervisor")
}

// isClient reports whether a package gives access to the outside: a context, a clock, a log, or a
// client.
func isClient(imported string) bool {
	return imported == "context" || imported == "log/slog" || imported == "net/http" || imported == "os" ||
		strings.HasPrefix(imported, "k8s.io/client-go/") || strings.HasPrefix(imported, "google.golang.org/grpc") || strings.HasPrefix(imported, "functions/internal/kube")
}

// TestPlansAreComputed checks that packages called plan do not read the clock. TestImports checks that they import no client, context or log.
func TestPlansAreComputed(t *testing.T) {
	t.Parallel()
	var files []string
	for _, where := range []string{"../../functions/*/plan/*.go", "../../apis/*/plan/*.go"} {
		found, err := filepath.Glob(where)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		t.Fatal("no packages called plan")
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && !strings.HasSuffix(file, "_test.go") {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After"}, s.Sel.Name) {
					t.Errorf("%s calls time.%s: pass the time in", file, s.Sel.Name)
				}
			}
			return true
		})
	}
}

// top returns the part of this module that a package belongs to: its first folder, and for functions
// also the second.
func top(path string) string {
	parts := strings.SplitN(path, "/", 3)
	switch parts[0] {
	case "functions":
		return strings.Join(parts[:min(2, len(parts))], "/")
	case "apis", "events", "gateway", "knative", "tests", "tools":
		return parts[0]
	}
	return ""
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, importer, imported string
		want                       bool
	}{
		"Sibling":  {reason: "functions share code in functions/internal", importer: "functions/create-vm", imported: "functions/allocate-ip", want: true},
		"Internal": {reason: "functions/internal is shared code", importer: "functions/create-vm", imported: "functions/internal/kube"},
		"Upward":   {reason: "shared code depends on no function", importer: "functions/internal/kube", imported: "functions/create-vm/x", want: true},
		"Test":     {reason: "production code does not depend on test code", importer: "gateway/internal/inventory", imported: "tests/sim/kea", want: true},
		"Tester":   {reason: "tests import what they test", importer: "tests/e2e", imported: "gateway/internal/config"},
		"Server":   {reason: "a route imports its handler", importer: "gateway/internal/httpserver", imported: "gateway/internal/inventory", want: true},
		"API":      {reason: "clients import the types only", importer: "apis/due", imported: "events", want: true},
		"Own":      {reason: "both packages have types", importer: "apis/due", imported: "apis/v1alpha1"},
		"Backends": {reason: "backends are independent", importer: "functions/create-vm/hypervisor/proxmox", imported: "functions/create-vm/hypervisor/kubevirt", want: true},
		"Contract": {reason: "a backend implements the contract", importer: "functions/create-vm/hypervisor/proxmox", imported: "functions/create-vm/hypervisor"},
		"Plan":     {reason: "a plan has no context", importer: "apis/cluster/plan", imported: "context", want: true},
		"Pure":     {reason: "a plan uses such values", importer: "apis/cluster/plan", imported: "apis/v1alpha1"},
		"Library":  {reason: "other modules are chosen in go.mod", importer: "apis/due", imported: "k8s.io/apimachinery/pkg/apis/meta/v1"},
	} {
		if got := forbidden(tc.importer, tc.imported) != ""; got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

// TestFieldsAreDescribed checks that every field has a description for kubectl explain.
func TestFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../apis/crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no CRDs: %v", err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			for _, path := range undescribed("", v.Schema.OpenAPIV3Schema) {
				t.Errorf("%s %s: field %s has no description: write a comment above it in apis, and run make generate", crd.Spec.Names.Kind, v.Name, path)
			}
		}
	}
}

// undescribed returns the paths of the fields in a schema without a description.
func undescribed(path string, s *apiextensionsv1.JSONSchemaProps) (paths []string) {
	for name, field := range s.Properties {
		below := path + "." + name
		if field.Description == "" && below != ".metadata" {
			paths = append(paths, below)
		}
		paths = append(paths, undescribed(below, &field)...)
	}
	if s.Items != nil && s.Items.Schema != nil {
		paths = append(paths, undescribed(path+"[]", s.Items.Schema)...)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		paths = append(paths, undescribed(path+"{}", s.AdditionalProperties.Schema)...)
	}
	return paths
}

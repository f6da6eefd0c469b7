package conformance

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// usersAnnotations are the annotations that users set, and their effects.
var usersAnnotations = map[string]string{
	"vitistack.io/reconcile":         "requests a reconcile",
	"vitistack.io/approval":          "is on a namespace, which only its administrator may change",
	"vitistack.io/accept-hypervisor": "is on a MachineProvider, which only the platform team may write",
	"vitistack.io/remove":            "is on the user's own machine",
	"vitistack.io/replace":           "is on the user's own machine, and has the effect of vitistack.io/remove",
	"vitistack.io/force":             "gives up the user's own object",
	"vitistack.io/nodepool":          "describes a machine for users, and no function reads it",
	"vitistack.io/node-config":       "is on the user's own machine, has at most the effect of vitistack.io/remove, and is corrected from the node",
	"vitistack.io/os-installed":      "a user removes it from a machine whose disk was erased, as the condition says",
	"vitistack.io/rotation":          "is on Secrets with the keys of a cluster, and a user who may write them administers the cluster",
	"vitistack.io/rotation-phase":    "is on Secrets with the keys of a cluster, and a user who may write them administers the cluster",
	"vitistack.io/resync-progress":   "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/machine-provider":  "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/provider-id":       "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/memory-bytes":      "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/endpoint":          "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/full-hosts":        "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/hypervisor":        "is on a Lease in the stack's own namespace, which tenants may not write",
	"vitistack.io/adopting":          "is on objects of KubeVirt, to which the policy does not apply",
	"vitistack.io/resizing":          "is on Nodes of a user's own cluster, to which the policy does not apply",
	"vitistack.io/upgrading":         "is on Nodes of a user's own cluster, to which the policy does not apply",
	"vitistack.io/restart":           "is on objects of KubeVirt, to which the policy does not apply",
}

// TestAnnotationsAreKept checks every annotation that functions read against the admission policy: either users set it, or the policy protects it.
func TestAnnotationsAreKept(t *testing.T) {
	t.Parallel()
	kept := ""
	for _, doc := range manifests(t) {
		var policy admissionv1.ValidatingAdmissionPolicy
		if yaml.Unmarshal([]byte(doc), &policy) != nil || policy.Name != "vitistack-kept-metadata" {
			continue
		}
		for _, v := range policy.Spec.Variables {
			if v.Name == "kept" || v.Name == "administrative" {
				kept += v.Expression
			}
		}
	}
	if kept == "" {
		t.Fatal("there is no policy vitistack-kept-metadata")
	}
	declared := regexp.MustCompile(`[aA]nnotation[A-Z]\w*\s*= "([^"]+)"`)
	var found []string
	for _, dir := range []string{"apis", "functions"} {
		err := filepath.WalkDir(filepath.Join(engine.Root(), dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range declared.FindAllSubmatch(text, -1) {
				found = append(found, string(match[1]))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range found {
		if protected := strings.Contains(kept, "'"+name+"'"); protected == (usersAnnotations[name] != "") {
			t.Errorf("annotation %s: kept by the policy in knative/admission.yaml: %t; the users': %q; want one of the two", name, protected, usersAnnotations[name])
		}
	}
	for name := range usersAnnotations {
		if !slices.Contains(found, name) {
			t.Errorf("annotation %s is not declared any more: remove it from the list", name)
		}
	}
}

package install

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// unprotect matches the command in the refusal of a deletion: kind, name, namespace and patch.
var unprotect = regexp.MustCompile(`: run kubectl patch (\S+) (\S+) --namespace (\S+) --type merge --patch '(\S+)', and delete it then$`)

// protectionIsKept deletes a protected and an unprotected object of each kind in every way that the
// API server offers, and follows the message.
func protectionIsKept(t *testing.T, c *cluster) {
	group := func(version, resource string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "vitistack.io", Version: version, Resource: resource}
	}
	machine := map[string]any{"template": "small"}
	topology := map[string]any{"data": map[string]any{}, "topology": map[string]any{"version": "1.33", "controlplane": map[string]any{"replicas": int64(1)}}}
	for _, tc := range []struct {
		reason   string
		resource schema.GroupVersionResource
		kind     string
		spec     map[string]any
		// function is the client's identity, or empty for the administrator.
		function string
	}{
		{"the administrator sets protected to false first", group("v1alpha1", "machines"), "Machine", machine, ""},
		{"a protected Machine does not leave its cluster", group("v1alpha1", "machines"), "Machine", machine, "bootstrap-talos"},
		{"a cluster is protected as a whole", group("v1alpha1", "kubernetesclusters"), "KubernetesCluster", topology, ""},
		{"a network is protected", group("v1alpha2", "networknamespaces"), "NetworkNamespace", map[string]any{}, ""},
		{"the version of the API makes no difference", group("v1alpha1", "networknamespaces"), "NetworkNamespace", map[string]any{}, ""},
	} {
		t.Run(strings.Join([]string{tc.resource.Version, tc.kind, tc.function}, "-"), func(t *testing.T) {
			admin := c.dynamic.Resource(tc.resource).Namespace("default")
			deleter := admin
			if tc.function != "" {
				deleter = as(t, c, tc.function).Resource(tc.resource).Namespace("default")
			}
			for _, protected := range []bool{true, false} {
				object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": tc.resource.GroupVersion().String(), "kind": tc.kind, "spec": map[string]any{"protected": protected}}}
				for field, value := range tc.spec {
					_ = unstructured.SetNestedField(object.Object, value, "spec", field)
				}
				object.SetName(map[bool]string{true: "precious", false: "plain"}[protected])
				object.SetLabels(map[string]string{"is": object.GetName()})
				if _, err := admin.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			deletions := deletions(t, deleter)
			if tc.function != "" {
				delete(deletions, "Collection") // the function lacks this right
			}
			want := tc.kind + " default/precious is protected"
			for how, deletion := range deletions {
				if err := refusal(t, tc.reason, want, func() error { return deletion("precious") }); !apierrors.IsInvalid(err) {
					t.Errorf("%s, %s: got %v, want the error Invalid", tc.reason, how, err)
				}
				if err := deletion("plain"); err != nil {
					t.Errorf("%s: the deletion of an unprotected object is rejected: %v", how, err)
				}
			}
			follow(t, c, tc.resource, deletions["Background"]("precious"))
			for _, name := range []string{"precious", "plain"} {
				if err := admin.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Errorf("delete %s: %v", name, err)
				}
			}
		})
	}
}

// deletions returns the ways to delete an object, as dry runs. The namespace controller deletes a
// collection.
func deletions(t *testing.T, client dynamic.ResourceInterface) map[string]func(name string) error {
	found := map[string]func(string) error{
		"Collection": func(name string) error {
			return client.DeleteCollection(t.Context(), metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, metav1.ListOptions{LabelSelector: "is=" + name})
		},
	}
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		found[string(how)] = func(name string) error {
			return client.Delete(t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &how, DryRun: []string{metav1.DryRunAll}})
		}
	}
	return found
}

// follow runs the command in the refusal of a deletion.
func follow(t *testing.T, c *cluster, resource schema.GroupVersionResource, refused error) {
	t.Helper()
	command := unprotect.FindStringSubmatch(fmt.Sprint(refused))
	if command == nil {
		t.Fatalf("the refusal has no command: %v", refused)
	}
	if command[1]+"s" != resource.Resource {
		t.Errorf("the command patches a %s, want one of %s", command[1], resource.Resource)
	}
	_, err := c.dynamic.Resource(resource).Namespace(command[3]).Patch(t.Context(), command[2], types.MergePatchType, []byte(command[4]), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("follow %q: %v", command[0], err)
	}
}

package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// TestSecretsFollowTheValues compares the rights on Secrets and ConfigMaps, by namespace, with the
// values.
func TestSecretsFollowTheValues(t *testing.T) {
	t.Parallel()
	const signing = "bootstrap-talos in vitistack-system: configmaps/event-signing-keys get"
	talos := func(namespace string) []string {
		return []string{"bootstrap-talos in " + namespace + ": configmaps create delete get list patch", "bootstrap-talos in " + namespace + ": secrets create delete get patch"}
	}
	all := func(namespace string) []string {
		return append(talos(namespace), "create-vm in "+namespace+": secrets create delete get patch", "etcd-backup in "+namespace+": secrets get")
	}
	const credentials = "create-vm in vitistack-system: secrets get"
	tests := map[string]struct {
		reason, set, credentials string
		want                     []string
	}{
		"Default":     {"every namespace may use the stack", "", "", append(all("*"), signing)},
		"One":         {"one namespace uses the stack, and the platform's has credentials of hypervisors", "secrets.namespaces={a}", "", append(all("a"), signing, credentials)},
		"Two":         {"a namespace is listed twice", "secrets.namespaces={a,b,a}", "", slices.Concat(all("a"), all("b"), []string{signing, credentials})},
		"Credentials": {"credentials are in another namespace, where create-vm only reads", "secrets.namespaces={a},credentials.namespaces={creds}", "creds", append(all("a"), signing, "create-vm in creds: secrets get")},
		"Both":        {"one MachineProvider has its credentials in the platform's namespace", "secrets.namespaces={a},credentials.namespaces={creds,vitistack-system}", "creds,vitistack-system", append(all("a"), signing, credentials, "create-vm in creds: secrets get")},
		"Anywhere":    {"every namespace may have credentials, which RBAC does not separate", "credentials.namespaces={creds,more}", "creds,more", append(all("*"), signing)},
		"Platform":    {"the platform's own namespace uses the stack", "secrets.namespaces={vitistack-system}", "", append(all("vitistack-system"), signing, credentials)},
	}
	h := newHelm(t, &rest.Config{})
	for name, tc := range tests {
		objects := h.render(t, tc.set)
		got := secretRights(t, objects)
		tc.want = append(tc.want, "create-vm in vitistack-system: configmaps/backends get patch")
		slices.Sort(tc.want)
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
		if got := variable(t, objects, "create-vm", "CREDENTIALS_NAMESPACES"); got != tc.credentials {
			t.Errorf("%s: create-vm has CREDENTIALS_NAMESPACES=%q, want %q: %s", name, got, tc.credentials, tc.reason)
		}
	}
}

// secretRights returns the rights on Secrets and ConfigMaps of the functions that write Secrets, from
// all bindings, sorted, with * for all namespaces.
func secretRights(t *testing.T, objects []*unstructured.Unstructured) []string {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "ClusterRole" || kind == "Role" {
			role := into[rbacv1.Role](t, object)
			rules[kind+"/"+object.GetNamespace()+"/"+object.GetName()] = role.Rules
		}
	}
	var all []string
	for _, object := range objects {
		kind, namespace := object.GetKind(), object.GetNamespace()
		if kind != "ClusterRoleBinding" && kind != "RoleBinding" {
			continue
		}
		binding := into[rbacv1.RoleBinding](t, object)
		role := binding.RoleRef.Kind + "/" + namespace + "/" + binding.RoleRef.Name
		if binding.RoleRef.Kind == "ClusterRole" {
			role = "ClusterRole//" + binding.RoleRef.Name
		}
		if rules[role] == nil {
			t.Errorf("%s %s binds %s, which the chart lacks", kind, object.GetName(), role)
		}
		if kind == "ClusterRoleBinding" {
			namespace = "*"
		}
		for _, subject := range binding.Subjects {
			if slices.Contains([]string{"create-vm", "bootstrap-talos", "etcd-backup"}, subject.Name) {
				all = append(all, describeSecrets(subject.Name+" in "+namespace, rules[role])...)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// describeSecrets formats the rules for Secrets and ConfigMaps, one per line.
func describeSecrets(who string, rules []rbacv1.PolicyRule) []string {
	var lines []string
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			if !slices.Contains(rule.APIGroups, "") || (resource != "secrets" && resource != "configmaps" && resource != "*") {
				continue
			}
			if len(rule.ResourceNames) > 0 {
				resource += "/" + strings.Join(rule.ResourceNames, ",")
			}
			verbs := slices.Sorted(slices.Values(rule.Verbs))
			lines = append(lines, fmt.Sprintf("%s: %s %s", who, resource, strings.Join(verbs, " ")))
		}
	}
	return lines
}

// into converts an object of the rendered chart.
func into[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed); err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return typed
}

// variable returns an environment variable of a function, or an empty string.
func variable(t *testing.T, objects []*unstructured.Unstructured, function, name string) string {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Service" || object.GetName() != function {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) == 0 {
			t.Fatalf("Service %s has no containers: %v", function, err)
		}
		env, _, err := unstructured.NestedSlice(containers[0].(map[string]any), "env")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range env {
			if v := v.(map[string]any); v["name"] == name {
				return fmt.Sprint(v["value"])
			}
		}
		return ""
	}
	t.Fatalf("the chart has no Service %s", function)
	return ""
}

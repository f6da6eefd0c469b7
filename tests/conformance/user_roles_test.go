package conformance

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/apiserver"
)

// userRoles are the ClusterRoles for users.
var userRoles = []string{"vitistack-view", "vitistack-edit", "vitistack-network-admin", "vitistack-platform-admin"}

// TestUserRoles asks the API server what a user with one of the roles may do in a namespace.
func TestUserRoles(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	namespace := server.Namespace(t)
	client, err := kubernetes.NewForConfig(server.Config())
	if err != nil {
		t.Fatal(err)
	}
	aggregated := map[string]string{}
	for _, doc := range manifests(t) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil || role.Kind != "ClusterRole" || !slices.Contains(userRoles, role.Name) {
			continue
		}
		for label := range role.Labels {
			if to, ok := strings.CutPrefix(label, rbacv1.GroupName+"/aggregate-to-"); ok {
				aggregated[role.Name] = to
			}
		}
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), &role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: role.Name}},
		}
		if _, err := client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if len(aggregated) != 2 || aggregated["vitistack-view"] != "view" || aggregated["vitistack-edit"] != "edit" {
		t.Errorf("roles are aggregated as %v, want view and edit; pools and hypervisors are part of no other role", aggregated)
	}
	for _, tc := range []struct {
		reason, role, verb, resource, subresource string
		allowed                                   bool
	}{
		{"users read objects", "vitistack-view", "get", "machines", "", true},
		{"users watch objects", "vitistack-view", "watch", "kubernetesclusters", "", true},
		{"a viewer changes nothing", "vitistack-view", "patch", "machines", "", false},
		{"a team creates machines", "vitistack-edit", "create", "machines", "", true},
		{"a team deletes clusters", "vitistack-edit", "delete", "kubernetesclusters", "", true},
		{"kubectl scale", "vitistack-edit", "patch", "kubernetesclusters", "scale", true},
		{"kubectl scale reads the scale first", "vitistack-edit", "get", "kubernetesclusters", "scale", true},
		{"a team requests addresses", "vitistack-edit", "create", "ipallocations", "", true},
		{"functions trust the status", "vitistack-edit", "patch", "machines", "status", false},
		{"functions trust the status", "vitistack-edit", "update", "kubernetesclusters", "status", false},
		{"a team creates networks within its pools", "vitistack-edit", "create", "networknamespaces", "", true},
		{"a team creates interfaces in its networks", "vitistack-edit", "create", "networkconfigurations", "", true},
		{"functions trust the status", "vitistack-edit", "patch", "networknamespaces", "status", false},
		{"functions trust the status", "vitistack-edit", "update", "networkconfigurations", "status", false},
		{"pools belong to the platform team", "vitistack-edit", "create", "networkpools", "", false},
		{"pools belong to the platform team", "vitistack-network-admin", "patch", "networkpools", "", false},
		{"a requester chooses from the sizes", "vitistack-view", "list", "machineclasses", "", true},
		{"sizes belong to the platform team", "vitistack-edit", "create", "machineclasses", "", false},
		{"sizes belong to the platform team", "vitistack-network-admin", "create", "machineclasses", "", false},
		{"a requester chooses from the templates", "vitistack-view", "list", "clustertemplates", "", true},
		{"templates belong to the platform team", "vitistack-edit", "create", "clustertemplates", "", false},
		{"the platform team creates templates", "vitistack-platform-admin", "create", "clustertemplates", "", true},
		{"the platform team creates sizes", "vitistack-platform-admin", "create", "machineclasses", "", true},
		{"hypervisors belong to the platform team", "vitistack-edit", "create", "machineproviders", "", false},
		{"the network team creates networks", "vitistack-network-admin", "create", "networknamespaces", "", true},
		{"the network team creates no machines", "vitistack-network-admin", "create", "machines", "", false},
		{"the platform team creates every kind", "vitistack-platform-admin", "create", "networknamespaces", "", true},
		{"the platform team creates pools", "vitistack-platform-admin", "update", "networkpools", "", true},
		{"the platform team writes no status", "vitistack-platform-admin", "patch", "machines", "status", false},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               tc.role,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Group: "vitistack.io", Resource: tc.resource, Subresource: tc.subresource, Verb: tc.verb},
		}}
		if got := decided(t, client, review, tc.allowed); got != tc.allowed {
			t.Errorf("%s may %s %s/%s: %t, want %t: %s", tc.role, tc.verb, tc.resource, tc.subresource, got, tc.allowed, tc.reason)
		}
	}
}

// decided returns the API server's decision. A new role takes effect after a moment.
func decided(t *testing.T, client kubernetes.Interface, review *authorizationv1.SubjectAccessReview, want bool) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		got, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got.Status.Allowed || !want {
			return got.Status.Allowed
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
}

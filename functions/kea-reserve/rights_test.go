package main

import (
	"os"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
	sim "github.com/vitistack/stack/tests/sim/kea"
	stand "github.com/vitistack/stack/tests/stand/kea"
)

// TestRights serves a NetworkConfiguration with exactly the rights of the shipped roles.
func TestRights(t *testing.T) {
	t.Parallel()
	b := simulate(t, sim.Kea2, stand.Options{})
	w := newEnv(t, []string{b.URL()})
	user := "kea-reserve-in-" + w.namespace
	w.grantShippedRoles(user)
	config := rest.CopyConfig(w.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	limited, err := kube.New(config, name, kinds...)
	w.must(err)
	w.f.kube, w.f.lock = limited, kea.NewLock(limited, w.namespace, w.clock.Now)
	w.await("the roles to be effective", func() bool {
		return !apierrors.IsForbidden(limited.List(t.Context(), w.namespace, "", &v1alpha1.KubernetesClusterList{})) &&
			!apierrors.IsForbidden(limited.Get(t.Context(), w.namespace, kea.LockName, &coordinationv1.Lease{}))
	})

	w.network("net", "10.77.0.0/24", nil)
	w.configuration("vm", []string{macA}, nil)
	w.must(w.deliver("NetworkNamespace", "net", events.TypeRefUpdate))
	address := addressOf(t, w.reconcile("vm"), 0)
	w.must(w.deliver("NetworkNamespace", "net", events.TypeResync))
	if got := hosts(t, b)[macA]; got != address {
		t.Errorf("Kea has %q, want %s", got, address)
	}
	w.delete("vm")
	w.must(w.deliver("NetworkConfiguration", "vm", events.TypeRefUpdate))
	if !w.isDeleted("vm") {
		t.Errorf("it still exists: %s", ready(w.get("vm")))
	}
}

// grantShippedRoles grants a user the rights in knative/kea-reserve.yaml: those of the ClusterRole in
// every namespace, and those of the Role in the function's namespace.
func (w *env) grantShippedRoles(user string) {
	w.t.Helper()
	client, err := kube.New(w.config, name, kube.Kinds(rbacv1.SchemeGroupVersion,
		&rbacv1.ClusterRole{}, &rbacv1.Role{}, &rbacv1.ClusterRoleBinding{}, &rbacv1.RoleBinding{}))
	w.must(err)
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
	text, err := os.ReadFile("../../knative/kea-reserve.yaml")
	w.must(err)
	roles := 0
	for _, document := range strings.Split(string(text), "\n---\n") {
		var kind metav1.TypeMeta
		w.must(yaml.Unmarshal([]byte(document), &kind))
		switch kind.Kind {
		case "ClusterRole":
			role := &rbacv1.ClusterRole{}
			w.must(yaml.Unmarshal([]byte(document), role))
			role.Name = user
			w.must(client.Create(w.t.Context(), role))
			w.must(client.Create(w.t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			}))
			roles++
		case "Role":
			role := &rbacv1.Role{}
			w.must(yaml.Unmarshal([]byte(document), role))
			role.Namespace = w.namespace
			w.must(client.Create(w.t.Context(), role))
			w.must(client.Create(w.t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: role.Name}, Subjects: subjects,
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			}))
			roles++
		}
	}
	if roles != 2 {
		w.t.Fatalf("knative/kea-reserve.yaml has %d roles, want a ClusterRole and a Role", roles)
	}
}

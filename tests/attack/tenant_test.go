// Package attack does what a tenant must not be able to do, with the rights that the documentation grants to tenants.
package attack

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/engine"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

// Resources of the attacks.
var (
	secrets      = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	roles        = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}
	roleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	policies     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicies"}
	bindings     = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingadmissionpolicybindings"}
)

// target is an API server with the policies of the stack, and a tenant's namespace.
type target struct {
	*testing.T
	server    *apiserver.Server
	namespace string
	admin     dynamic.Interface
	tenant    dynamic.Interface
}

func newTarget(t *testing.T) *target {
	t.Helper()
	server := apiserver.Start(t)
	server.Install(t, "machines", "etcdbackups", "kubernetesclusters", "networknamespaces")
	x := &target{T: t, server: server, namespace: server.Namespace(t)}
	x.admin = x.as(rest.ImpersonationConfig{})
	x.tenant = x.as(rest.ImpersonationConfig{UserName: "tenant-of-" + x.namespace})
	for _, file := range []string{"admission.yaml", "roles.yaml"} {
		x.apply(file)
	}
	x.create(roleBindings, `{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: vitistack-edit},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-of-`+x.namespace+`}]}`)
	return x
}

// as returns a client with another identity. The zero identity is the administrator.
func (x *target) as(who rest.ImpersonationConfig) dynamic.Interface {
	x.Helper()
	config := x.server.Config()
	config.Impersonate = who
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		x.Fatal(err)
	}
	return client
}

// apply applies a file of knative/.
func (x *target) apply(file string) {
	x.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "knative", file))
	if err != nil {
		x.Fatal(err)
	}
	known := map[string]schema.GroupVersionResource{
		"ClusterRole": clusterRoles, "ValidatingAdmissionPolicy": policies, "ValidatingAdmissionPolicyBinding": bindings,
	}
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		object := x.parse(doc)
		force := true
		body, err := json.Marshal(object)
		if err != nil {
			x.Fatal(err)
		}
		_, err = x.admin.Resource(known[object.GetKind()]).Patch(x.Context(), object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "install", Force: &force})
		if err != nil {
			x.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}

func (x *target) parse(text string) *unstructured.Unstructured {
	x.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
		x.Fatal(err)
	}
	return object
}

// create creates an object as the administrator.
func (x *target) create(resource schema.GroupVersionResource, text string) {
	x.Helper()
	if _, err := x.admin.Resource(resource).Namespace(x.namespace).Create(x.Context(), x.parse(text), metav1.CreateOptions{}); err != nil {
		x.Fatal(err)
	}
}

// refused repeats an attack until the API server rejects it with this message, because new roles and policies take effect after a moment. It fails if
// the attack still succeeds after a while.
func (x *target) refused(reason string, try func(ctx context.Context) error, words string) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), 30*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err != nil && strings.Contains(err.Error(), words) {
			return
		}
		if ctx.Err() != nil || (err != nil && !apierrors.IsForbidden(err)) {
			x.Errorf("%s: %v, want it rejected with %q", reason, err, words)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// allowed repeats a permitted request until it succeeds.
func (x *target) allowed(reason string, try func(ctx context.Context) error) {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), 30*time.Second)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil || !apierrors.IsForbidden(err) {
			x.Errorf("%s: %v", reason, err)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// make returns a request that creates an object, as a dry run.
func (x *target) make(who dynamic.Interface, resource schema.GroupVersionResource, text string) func(context.Context) error {
	object := x.parse(text)
	return func(ctx context.Context) error {
		_, err := who.Resource(resource).Namespace(x.namespace).Create(ctx, object.DeepCopy(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// patch returns a request that changes an object, as a dry run.
func (x *target) patch(who dynamic.Interface, resource schema.GroupVersionResource, name, patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := who.Resource(resource).Namespace(x.namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

const machineHead = "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: web"

// TestSecretsOfOthers has a tenant copy Secrets that they may not read to places that they can read.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	machine := func(secret string) string {
		return machineHead + "}, spec: {template: small, cloudInit: {secretRef: {name: " + secret + ", key: bundle}}}}"
	}
	backup := func(location string) string {
		return "{apiVersion: vitistack.io/v1alpha1, kind: EtcdBackup, metadata: {name: daily}, spec: {clusterName: shop, storageLocation: " + location + "}}"
	}
	const s3 = "{type: s3, bucket: mine, endpoint: 'https://s3.attacker.example', secretRef: {name: store}}"
	for _, name := range []string{"shop-talos-secrets", "shop-kubeconfig", "store", "open"} {
		x.create(secrets, "{apiVersion: v1, kind: Secret, metadata: {name: "+name+"}}")
	}
	x.create(roles, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: open}, rules: [{apiGroups: [''], resources: [secrets], resourceNames: [open, store], verbs: [get]}]}")
	x.create(roleBindings, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: open}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: open}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-of-"+x.namespace+"}]}")

	x.allowed("a machine without a Secret", x.make(x.tenant, engine.Machines, machineHead+"}, spec: {template: small}}"))
	x.allowed("a Secret that the tenant may read", x.make(x.tenant, engine.Machines, machine("open")))
	x.refused("the keys of a cluster in a machine", x.make(x.tenant, engine.Machines, machine("shop-talos-secrets")), "you may not read Secret shop-talos-secrets")
	x.refused("a Secret that does not exist yet", x.make(x.tenant, engine.Machines, machine("tomorrow")), "you may not read Secret tomorrow")
	x.allowed("a snapshot to the platform's volume", x.make(x.tenant, engine.EtcdBackups, backup("{type: local}")))
	x.refused("all Secrets of a cluster to a bucket", x.make(x.tenant, engine.EtcdBackups, backup(s3)), "you may not read Secret shop-kubeconfig")

	admin := "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: admin}, rules: [{apiGroups: [''], resources: [secrets], resourceNames: [shop-kubeconfig], verbs: [get]}]}"
	x.create(roles, admin)
	x.create(roleBindings, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: admin}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant-of-"+x.namespace+"}]}")
	x.allowed("an administrator of the cluster creates backups", x.make(x.tenant, engine.EtcdBackups, backup(s3)))
	x.refused("with credentials of another user", x.make(x.tenant, engine.EtcdBackups, backup(strings.Replace(s3, "store", "theirs", 1))), "you may not read Secret theirs")

	x.create(engine.Machines, machine("shop-talos-secrets"))
	x.allowed("a change of a machine with a Secret from an administrator", x.patch(x.tenant, engine.Machines, "web", `{"spec":{"powerState":"Stopped"}}`))
	x.refused("another Secret for that machine", x.patch(x.tenant, engine.Machines, "web", `{"spec":{"cloudInit":{"secretRef":{"name":"theirs"}}}}`), "you may not read Secret theirs")
}

// TestSecretsInEvents has a tenant label a Machine like those whose events carry the object, though its user data may have a secret.
func TestSecretsInEvents(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	const data, said = "}, spec: {template: small, cloudInit: {userData: '#cloud-config'}}}", "write it into a Secret and name that in spec.cloudInit.secretRef, or leave out the label"
	labelled := machineHead + ", labels: {cluster.vitistack.io/role: worker}"
	x.allowed("user data", x.make(x.tenant, engine.Machines, machineHead+data))
	x.allowed("the label", x.make(x.tenant, engine.Machines, labelled+"}, spec: {template: small}}"))
	x.refused("both", x.make(x.tenant, engine.Machines, labelled+data), said)
	x.create(engine.Machines, machineHead+data)
	x.refused("the label afterwards", x.patch(x.tenant, engine.Machines, "web", `{"metadata":{"labels":{"cluster.vitistack.io/role":"worker"}}}`), said)
}

// TestKeptMetadata has a tenant change metadata that functions trust at the deletion, so that external objects stay and their addresses are reused.
func TestKeptMetadata(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	const finalizer = "machine.vitistack.io/cleanup"
	x.create(engine.Machines, machineHead+", finalizers: ["+finalizer+"], annotations: {vitistack.io/provisioned-by: pve}}, spec: {template: small}}")
	stack := x.as(rest.ImpersonationConfig{UserName: "system:serviceaccount:vitistack-system:create-vm", Groups: []string{"system:serviceaccounts:vitistack-system", "system:masters"}})
	for _, tc := range []struct{ reason, patch, says string }{
		{"the provider that has to delete the machine", `{"metadata":{"annotations":{"vitistack.io/provisioned-by":"kubevirt"}}}`, "keeps the annotation vitistack.io/provisioned-by"},
		{"no provider", `{"metadata":{"annotations":null}}`, "keeps the annotation vitistack.io/provisioned-by"},
		{"a removal that has not started", `{"metadata":{"annotations":{"vitistack.io/removing":"2026-01-01T00:00:00Z"}}}`, "keeps the annotation vitistack.io/removing"},
		{"the UID of another tenant's machine", `{"metadata":{"annotations":{"vitistack.io/former-uids":"0d6d9d2e-0000-0000-0000-000000000000"}}}`, "only an administrator may write the annotation vitistack.io/former-uids"},
		{"a machine that no function deletes", `{"metadata":{"annotations":{"vitistack.io/paused":"true"}}}`, "only an administrator may write the annotation vitistack.io/paused"},
		{"no finalizer", `{"metadata":{"finalizers":null}}`, "removes the finalizer " + finalizer},
	} {
		x.refused(tc.reason, x.patch(x.tenant, engine.Machines, "web", tc.patch), tc.says)
		x.allowed("the stack itself: "+tc.reason, x.patch(stack, engine.Machines, "web", tc.patch))
		x.allowed("an administrator: "+tc.reason, x.patch(x.admin, engine.Machines, "web", tc.patch))
	}
	for _, patch := range []string{
		`{"metadata":{"annotations":{"vitistack.io/reconcile":"now","vitistack.io/force":"true","vitistack.io/remove":"true","vitistack.io/approval":"all"}}}`,
		`{"metadata":{"labels":{"team":"a"},"annotations":{"example.com/a":"b"}}}`, `{"spec":{"template":"medium"}}`,
		`{"metadata":{"finalizers":["` + finalizer + `","example.com/mine"]}}`,
	} {
		x.allowed("the user's own metadata", x.patch(x.tenant, engine.Machines, "web", patch))
	}
	x.refused("a machine that seems to exist at another hypervisor", x.make(x.tenant, engine.Machines, strings.Replace(machineHead, "web", "new", 1)+", annotations: {vitistack.io/provisioned-by: pve}}, spec: {template: small}}"), "keeps the annotation")
	x.refused("a machine that adopts another tenant's virtual machine", x.make(x.tenant, engine.Machines, strings.Replace(machineHead, "web", "new", 1)+", annotations: {vitistack.io/former-uids: 0d6d9d2e}}, spec: {template: small}}"), "only an administrator")
	x.refused("a machine that seems to exist already", x.make(x.tenant, engine.Machines, strings.Replace(machineHead, "web", "new", 1)+", finalizers: ["+finalizer+"]}, spec: {template: small}}"), "sets the finalizer")
}

package attack

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/tests/stand/engine"
)

var (
	configMaps          = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	namespaces          = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	serviceAccounts     = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	clusterRoleBindings = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
)

const platform = "vitistack-system"

// stolen returns a client with the token of a function's ServiceAccount, which has the rights in
// knative/.
func (x *target) stolen(function string) dynamic.Interface {
	x.Helper()
	_, err := x.admin.Resource(namespaces).Create(x.Context(), x.parse("{apiVersion: v1, kind: Namespace, metadata: {name: "+platform+"}}"), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		x.Fatal(err)
	}
	x.grant(function)
	request := x.parse("{apiVersion: authentication.k8s.io/v1, kind: TokenRequest, spec: {}}")
	request.SetName(function)
	answer, err := x.admin.Resource(serviceAccounts).Namespace(platform).Create(x.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		x.Fatal(err)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil || token == "" {
		x.Fatalf("the API server issues no token for %s: %v", function, err)
	}
	config := rest.AnonymousClientConfig(x.server.Config())
	config.BearerToken = token
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		x.Fatal(err)
	}
	return client
}

// grant creates the ServiceAccount of a function with its cluster-wide rights.
func (x *target) grant(function string) {
	x.Helper()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "knative", function+".yaml"))
	if err != nil {
		x.Fatal(err)
	}
	installed := 0
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		object := x.parse(doc)
		resource, known := map[string]dynamic.ResourceInterface{
			"ServiceAccount":     x.admin.Resource(serviceAccounts).Namespace(platform),
			"ClusterRole":        x.admin.Resource(clusterRoles),
			"ClusterRoleBinding": x.admin.Resource(clusterRoleBindings),
		}[object.GetKind()]
		if !known {
			continue
		}
		body, err := json.Marshal(object)
		if err != nil {
			x.Fatal(err)
		}
		force := true
		if _, err := resource.Patch(x.Context(), object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "install", Force: &force}); err != nil {
			x.Fatalf("apply %s %s: %v", object.GetKind(), object.GetName(), err)
		}
		installed++
	}
	if installed != 3 {
		x.Fatalf("knative/%s.yaml has %d of ServiceAccount, ClusterRole and ClusterRoleBinding", function, installed)
	}
}

// remove returns a request that deletes an object, as a dry run.
func (x *target) remove(who dynamic.Interface, resource schema.GroupVersionResource, name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return who.Resource(resource).Namespace(x.namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}
}

// written returns a Secret or a ConfigMap with an owner of a kind and name, or with more fields, which
// begin with a comma.
func written(kind, name, owner, more string) string {
	ownerKind, ownerName, owned := strings.Cut(owner, "/")
	references := ""
	if owned {
		references = ", ownerReferences: [{apiVersion: vitistack.io/v1alpha1, kind: " + ownerKind + ", name: " + ownerName + ", uid: '1', controller: true}]"
	}
	return "{apiVersion: v1, kind: " + kind + ", metadata: {name: " + name + references + "}" + more + "}"
}

// TestStolenTokens uses the tokens of functions to write Secrets and ConfigMaps, those of other owners and those of the
// stack, and to change objects of the stack.
func TestStolenTokens(t *testing.T) {
	t.Parallel()
	x := newTarget(t)
	createVM, bootstrap, backup := x.stolen("create-vm"), x.stolen("bootstrap-talos"), x.stolen("etcd-backup")
	for _, name := range []string{"app-password", "web-cloudinit", "shop-kubeconfig"} {
		x.create(secrets, written("Secret", name, "", ""))
	}
	x.create(configMaps, written("ConfigMap", "shop-manifests", "", ""))
	const only = "writes only the Secrets and ConfigMaps of its Machines and KubernetesClusters"
	const patch = `{"data":{"a":"YQ=="}}`
	for name, function := range map[string]dynamic.Interface{"create-vm": createVM, "bootstrap-talos": bootstrap} {
		for _, secret := range []string{"app-password", "web-cloudinit", "shop-kubeconfig"} {
			x.refused(name+" overwrites Secret "+secret, x.patch(function, secrets, secret, patch), only)
			x.refused(name+" deletes Secret "+secret, x.remove(function, secrets, secret), only)
			adopt := `{"metadata":{"ownerReferences":[{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","name":"web","uid":"1","controller":true}]}}`
			x.refused(name+" adopts Secret "+secret, x.patch(function, secrets, secret, adopt), only)
		}
		for reason, secret := range map[string]string{
			"without an owner":                 written("Secret", "new-cloudinit", "", ""),
			"with the name of another Machine": written("Secret", "new-cloudinit", "Machine/web", ""),
			"with another ending":              written("Secret", "web-password", "Machine/web", ""),
			"of another kind":                  written("Secret", "web-cloudinit2", "Deployment/web", ""),
			"with a token of a ServiceAccount": strings.Replace(written("Secret", "new-cloudinit", "Machine/new", ", type: kubernetes.io/service-account-token"), "metadata: {", "metadata: {annotations: {kubernetes.io/service-account.name: default}, ", 1),
		} {
			x.refused(name+" creates a Secret "+reason, x.make(function, secrets, secret), only)
		}
	}
	token := strings.Replace(written("Secret", "new-machine-config", "Machine/new", ", type: kubernetes.io/service-account-token"), "metadata: {", "metadata: {annotations: {kubernetes.io/service-account.name: default}, ", 1)
	x.refused("bootstrap-talos creates a token under its own name", x.make(bootstrap, secrets, token), only)
	x.refused("create-vm creates a Secret of bootstrap-talos", x.make(createVM, secrets, written("Secret", "db-machine-config", "Machine/db", "")), only)
	x.refused("bootstrap-talos overwrites a ConfigMap", x.patch(bootstrap, configMaps, "shop-manifests", `{"data":{"a":"b"}}`), only)
	x.refused("bootstrap-talos deletes a ConfigMap", x.remove(bootstrap, configMaps, "shop-manifests"), only)
	x.refused("bootstrap-talos creates a ConfigMap", x.make(bootstrap, configMaps, written("ConfigMap", "coredns", "KubernetesCluster/shop", "")), only)
	x.refused("etcd-backup overwrites a Secret", x.patch(backup, secrets, "app-password", patch), `cannot patch resource "secrets"`)
	x.refused("etcd-backup deletes a Secret", x.remove(backup, secrets, "app-password"), `cannot delete resource "secrets"`)
	x.refused("etcd-backup creates a Secret", x.make(backup, secrets, written("Secret", "web2-cloudinit", "Machine/web2", "")), `cannot create resource "secrets"`)
	x.refused("create-vm creates a ConfigMap", x.make(createVM, configMaps, written("ConfigMap", "a-manifests", "KubernetesCluster/a", "")), `cannot create resource "configmaps"`)
	x.ownObjects(createVM, bootstrap)
	x.orphanedSecrets(createVM, bootstrap)
	x.allowed("create-vm deletes a machine configuration", x.remove(createVM, secrets, "store-cp-0-machine-config"))
	x.metadata(x.stolen("resync"))
}

// metadata has resync remove what requested a reconcile, and change anything else of an object.
func (x *target) metadata(resync dynamic.Interface) {
	x.Helper()
	x.create(engine.Machines, "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: held, labels: {a: b}, annotations: {vitistack.io/reconcile: now, else: stays}, finalizers: [vitistack.io/x]}, spec: {template: small}}")
	x.create(engine.Machines, "{apiVersion: vitistack.io/v1alpha1, kind: Machine, metadata: {name: plain, annotations: {vitistack.io/reconcile: now}}, spec: {template: small}}")
	for reason, patch := range map[string]string{
		"its spec":                      `{"spec":{"template":"large"}}`,
		"its spec, with the annotation": `{"metadata":{"annotations":{"vitistack.io/reconcile":null}},"spec":{"protected":true}}`,
		"its finalizers":                `{"metadata":{"finalizers":null}}`,
		"its owners":                    `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"1"}]}}`,
		"its labels":                    `{"metadata":{"labels":{"a":"c"}}}`,
		"another annotation":            `{"metadata":{"annotations":{"else":null}}}`,
		"a new annotation":              `{"metadata":{"annotations":{"vitistack.io/paused":"true"}}}`,
		"the annotation's value":        `{"metadata":{"annotations":{"vitistack.io/reconcile":"later"}}}`,
	} {
		x.refused("resync changes "+reason, x.patch(resync, engine.Machines, "held", patch), "resync only removes the annotation vitistack.io/reconcile")
	}
	const requested = `{"metadata":{"annotations":{"vitistack.io/reconcile":null}}}`
	for _, name := range []string{"held", "plain"} {
		x.allowed("resync removes what requested a reconcile of "+name, x.patch(resync, engine.Machines, name, requested))
	}
}

// orphanedSecrets has functions write Secrets that have the mark of a former Machine and no owner.
func (x *target) orphanedSecrets(createVM, bootstrap dynamic.Interface) {
	x.Helper()
	const only = "writes only the Secrets"
	const marked = ", annotations: {vitistack.io/uid: former}"
	adopt := func(owner, more string) string {
		return `{"metadata":{"annotations":{"vitistack.io/uid":"1"},"ownerReferences":[{"apiVersion":"vitistack.io/v1alpha1","kind":"Machine","name":"` + owner + `","uid":"1","controller":true}]}` + more + `}`
	}
	for name, metadata := range map[string]string{"old-cloudinit": marked, "old-password": marked, "plain-cloudinit": ""} {
		x.create(secrets, "{apiVersion: v1, kind: Secret, metadata: {name: "+name+metadata+"}, data: {userdata: YQ==}}")
	}
	x.allowed("create-vm adopts the Secret of a former Machine", x.patch(createVM, secrets, "old-cloudinit", adopt("old", "")))
	x.refused("create-vm adopts it for another Machine", x.patch(createVM, secrets, "old-cloudinit", adopt("web", "")), only)
	x.refused("create-vm changes its data", x.patch(createVM, secrets, "old-cloudinit", adopt("old", `,"data":{"userdata":"Yg=="}`)), only)
	x.refused("create-vm adds data", x.patch(createVM, secrets, "old-cloudinit", adopt("old", `,"stringData":{"more":"b"}`)), only)
	x.refused("create-vm changes it without an owner", x.patch(createVM, secrets, "old-cloudinit", `{"metadata":{"labels":{"a":"b"}}}`), only)
	x.refused("create-vm deletes it", x.remove(createVM, secrets, "old-cloudinit"), only)
	x.refused("create-vm adopts a Secret with another ending", x.patch(createVM, secrets, "old-password", adopt("old", "")), only)
	x.refused("create-vm adopts a Secret without a mark", x.patch(createVM, secrets, "plain-cloudinit", adopt("plain", "")), only)
	x.refused("bootstrap-talos adopts it", x.patch(bootstrap, secrets, "old-cloudinit", adopt("old", "")), only)
}

// ownObjects has functions write and delete each object that they create.
func (x *target) ownObjects(createVM, bootstrap dynamic.Interface) {
	x.Helper()
	for _, tc := range []struct {
		function          dynamic.Interface
		resource          schema.GroupVersionResource
		kind, name, owner string
	}{
		{createVM, secrets, "Secret", "db-cloudinit", "Machine/db"},
		{createVM, secrets, "Secret", "db.example.com-cloudinit", "Machine/db.example.com"},
		{bootstrap, secrets, "Secret", "store-cp-0-machine-config", "Machine/store-cp-0"},
		{bootstrap, secrets, "Secret", "store-talos-secrets", "KubernetesCluster/store"},
		{bootstrap, secrets, "Secret", "store-talos-secrets-next", "KubernetesCluster/store"},
		{bootstrap, secrets, "Secret", "store-talosconfig", "KubernetesCluster/store"},
		{bootstrap, secrets, "Secret", "store-kubeconfig", "KubernetesCluster/store"},
		{bootstrap, configMaps, "ConfigMap", "store-manifests", "KubernetesCluster/store"},
		{bootstrap, configMaps, "ConfigMap", "store-manifests-workers-0", "KubernetesCluster/store"},
	} {
		text := written(tc.kind, tc.name, tc.owner, "")
		x.allowed("create "+tc.name, x.make(tc.function, tc.resource, text))
		x.create(tc.resource, text)
		x.allowed("change "+tc.name, x.patch(tc.function, tc.resource, tc.name, `{"data":{"a":"YQ=="}}`))
		x.allowed("delete "+tc.name, x.remove(tc.function, tc.resource, tc.name))
		loose := `{"metadata":{"ownerReferences":null}}`
		x.refused("give away "+tc.name, x.patch(tc.function, tc.resource, tc.name, loose), "writes only the Secrets")
	}
}

package app

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/vitistack/stack/tests/stand/buffer"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/gateway/internal/config"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

// realEnv is a gateway with a real API server, where it has the rights of a
// service account.
type realEnv struct {
	*env
	client    dynamic.Interface
	config    *rest.Config
	namespace string
}

// rights are the rights of the gateway as shipped, in one role.
func rights(t *testing.T) string {
	t.Helper()
	shipped, err := os.ReadFile("../../../knative/gateway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var all rbacv1.ClusterRole
	for document := range strings.SplitSeq(string(shipped), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			all.Rules = append(all.Rules, role.Rules...)
		}
	}
	rules, err := yaml.Marshal(map[string]any{"rules": all.Rules})
	if err != nil {
		t.Fatal(err)
	}
	return string(rules)
}

func startReal(t *testing.T, settings ...string) *realEnv {
	t.Helper()
	api := apiserver.Start(t)
	api.Install(t)
	s := &realEnv{env: &env{t: t, log: &buffer.Buffer{}}, config: api.Config(), namespace: api.Namespace(t)}
	var err error
	if s.client, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	own := rest.CopyConfig(s.config)
	own.Impersonate.UserName = "gateway-of-" + s.namespace
	s.grant(own.Impersonate.UserName, rights(t))
	c, err := config.Load(append([]string{"--rateLimit.enabled=false", "--state.dir=" + t.TempDir()}, settings...), func(string) (string, bool) { return "", false }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + listener.Addr().String()
	a, err := newApp("test", c, own, events.NewLogger(s.log, "info"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.serve(ctx, listener, nil) }()
	s.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.waitReady()
	eventually(t, "the database", func() bool { return s.get("/health/database").StatusCode == 200 })
	return s
}

var (
	clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}
	bindings     = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"}
	accounts     = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	configMaps   = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// create makes an object out of YAML, and removes it when the test has ended.
func (s *realEnv) create(resource schema.GroupVersionResource, namespace, manifest string) {
	s.t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &o.Object); err != nil {
		s.t.Fatal(err)
	}
	client := s.client.Resource(resource).Namespace(namespace)
	if _, err := client.Create(s.t.Context(), o, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = client.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) })
}

// grant gives a user rights in the whole cluster.
func (s *realEnv) grant(user, rules string) {
	s.t.Helper()
	name := strings.ReplaceAll(user, ":", "-")
	s.create(clusterRoles, "", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+name+"}\n"+rules)
	s.create(bindings, "", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: "+name+"}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "+name+"}\n"+
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: \""+user+"\"}]\n")
}

// viewer gives a service account the role vitistack-view, as it is shipped, in its namespace.
func (s *realEnv) viewer(account string) {
	s.t.Helper()
	shipped, err := os.ReadFile("../../../knative/roles.yaml")
	if err != nil {
		s.t.Fatal(err)
	}
	name := "view-" + s.namespace
	first, _, _ := strings.Cut(string(shipped), "\n---\n")
	s.create(clusterRoles, "", strings.Replace(first, "name: vitistack-view", "name: "+name, 1))
	roleBindings := bindings
	roleBindings.Resource = "rolebindings"
	s.create(roleBindings, s.namespace, "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: "+name+"}\n"+
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "+name+"}\n"+
		"subjects: [{kind: ServiceAccount, name: "+account+", namespace: "+s.namespace+"}]\n")
}

// TestRealAPIServer follows a machine and a cluster from their examples to their
// end.
func TestRealAPIServer(t *testing.T) {
	t.Parallel()
	s := startReal(t)
	machines := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "machines"}
	clusters := schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters"}
	for resource, example := range map[schema.GroupVersionResource]string{machines: "cloud-init-vm", clusters: "simple-kubernetescluster"} {
		manifest, err := apis.Examples.ReadFile("examples/" + example + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		s.create(resource, s.namespace, strings.Replace(string(manifest), "namespace: default", "namespace: "+s.namespace, 1))
	}
	list := func(path string) []string { return names(t, s.get("/api/v1/"+path), strings.Split(path, "?")[0]) }
	eventually(t, "the cluster", func() bool { return len(list("clusters?namespace="+s.namespace)) == 1 })
	eventually(t, "the machine", func() bool { return len(list("machines?namespace="+s.namespace)) == 1 })
	spec := string(s.get("/api/v1/resources?fields=spec&namespace=" + s.namespace).body)
	if strings.Contains(spec, "ssh-rsa") || !strings.Contains(spec, redactedText) {
		t.Errorf("user data is shown: %s", spec)
	}
	patch := []byte(`{"status":{"phase":"Running","provider":"kv","ipAddresses":["10.0.0.5"],"conditions":[{"type":"Ready","status":"True","reason":"Running","message":"","lastTransitionTime":"2026-01-02T03:04:05Z"}]}}`)
	if _, err := s.client.Resource(machines).Namespace(s.namespace).Patch(t.Context(), "cloud-init-vm", "application/merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine to run", func() bool { return len(list("machines?status=running&namespace="+s.namespace)) == 1 })
	patch = []byte(`{"spec":{"topology":{"workers":[{"name":"worker-pool-1","replicas":4,"version":"1.33"}]}}}`)
	if _, err := s.client.Resource(clusters).Namespace(s.namespace).Patch(t.Context(), "simple-cluster", "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var told []any
	eventually(t, "the change of the cluster", func() bool {
		told = s.get("/api/v1/events?type=infrastructure.cluster.updated&namespace=" + s.namespace).object(t)["events"].([]any)
		return len(told) == 2
	})
	want := []any{map[string]any{"path": "/spec/topology/workers/0/replicas", "from": 2.0, "to": 4.0}}
	if diff := cmp.Diff(want, told[0].(map[string]any)["data"].(map[string]any)["changes"]); diff != "" {
		t.Errorf("what changed (-want +got):\n%s", diff)
	}
	if err := s.client.Resource(machines).Namespace(s.namespace).Delete(t.Context(), "cloud-init-vm", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the machine", func() bool {
		return s.get("/api/v1/events?type=infrastructure.machine.*&namespace="+s.namespace).Header.Get("X-Total-Count") == "2"
	})
}

// redactedText stands where something secret was.
const redactedText = "(redacted)"

// TestRealTokens has service accounts ask for the API, and the manifests of a
// cluster read with the gateway's own rights.
func TestRealTokens(t *testing.T) {
	t.Parallel()
	s := startReal(t, "--auth.enabled=true", "--auth.tokenReview=true")
	for _, name := range []string{"reader", "stranger"} {
		s.create(accounts, s.namespace, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: "+name+"}\n")
	}
	s.grant("system:serviceaccount:"+s.namespace+":reader", "rules:\n  - {nonResourceURLs: [/vitistack/api/v1], verbs: [get]}\n")
	token := func(name string) string {
		t.Helper()
		request := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}, "metadata": map[string]any{"name": name}}}
		made, err := s.client.Resource(accounts).Namespace(s.namespace).Create(t.Context(), request, metav1.CreateOptions{}, "token")
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := unstructured.NestedString(made.Object, "status", "token")
		if err != nil || text == "" {
			t.Fatalf("no token in %v", made.Object)
		}
		return text
	}
	status := func(token string) int { return s.get("/api/v1/clusters", "Authorization", "Bearer "+token).StatusCode }
	if got := status(token("reader")); got != 200 {
		t.Errorf("a service account that may read: %d\n%s", got, s.log)
	}
	if got := status(token("stranger")); got != 403 {
		t.Errorf("a service account without rights: %d", got)
	}
	s.viewer("viewer")
	s.create(accounts, s.namespace, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: viewer}\n")
	viewer := token("viewer")
	for path, want := range map[string]int{
		"clusters": 403, "clusters?namespace=" + s.namespace: 200, "machines?namespace=" + s.namespace: 200, "resources?namespace=" + s.namespace: 200,
		"events?namespace=" + s.namespace: 200, "clusters/default%2Fsimple-cluster": 404, "providers": 403, "stream": 403,
	} {
		if r := s.get("/api/v1/"+path, "Authorization", "Bearer "+viewer); r.StatusCode != want {
			t.Errorf("a service account with the role vitistack-view in one namespace, %s: %s %s", path, r.Status, r.body)
		}
	}
	if got := status("nonsense"); got != 401 {
		t.Errorf("a token that is none: %d", got)
	}
	manifest, err := apis.Examples.ReadFile("examples/simple-kubernetescluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s.create(schema.GroupVersionResource{Group: "vitistack.io", Version: "v1alpha1", Resource: "kubernetesclusters"}, s.namespace, string(manifest))
	s.create(configMaps, s.namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: simple-cluster-manifests\n  labels: {cluster.vitistack.io/cluster-name: simple-cluster, vitistack.io/managed-by: bootstrap-talos}\ndata: {a.yaml: 'kind: Machine'}\n")
	s.create(configMaps, s.namespace, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\ndata: {b.yaml: 'x'}\n")
	eventually(t, "the viewer's cluster", func() bool {
		found := s.get("/api/v1/clusters?namespace="+s.namespace, "Authorization", "Bearer "+viewer)
		timeline := s.get("/api/v1/clusters/"+s.namespace+"%2Fsimple-cluster/timeline", "Authorization", "Bearer "+viewer)
		return strings.Contains(string(found.body), "simple-cluster") && timeline.StatusCode == 200
	})
	reader := token("reader")
	var files reply
	eventually(t, "the cluster", func() bool {
		files = s.get("/api/v1/clusters/"+s.namespace+"%2Fsimple-cluster/manifests", "Authorization", "Bearer "+reader)
		return files.StatusCode == 200
	})
	want := []any{map[string]any{"name": "a.yaml", "content": "kind: Machine"}}
	if diff := cmp.Diff(want, files.object(t)["files"]); diff != "" {
		t.Errorf("manifests (-want +got):\n%s", diff)
	}
}

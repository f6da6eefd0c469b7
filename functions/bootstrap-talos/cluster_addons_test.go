package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis"
	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/bootstrap-talos/addonsource"
	"github.com/vitistack/stack/functions/bootstrap-talos/workload"
	"github.com/vitistack/stack/functions/internal/reconcile"
	"github.com/vitistack/stack/tests/sim/registry"
	"github.com/vitistack/stack/tests/stand/feed"
)

// networkPlugin is the manifest of a network plug-in, as much of it as a simulated node looks at.
const networkPlugin = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: cilium, namespace: kube-system}
spec:
  selector: {matchLabels: {k8s-app: cilium}}
  template:
    metadata: {labels: {k8s-app: cilium}}
    spec:
      hostNetwork: true
      tolerations: [{operator: Exists}]
      containers: [{name: cilium-agent, image: "quay.io/cilium/cilium:v1.18.3"}]
      volumes: [{name: etc-cni-netd, hostPath: {path: /etc/cni/net.d}}]
`

// settings is the manifest of a ConfigMap in a namespace of its own.
func settings(value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: tools}\ndata: {value: " + value + "}\n---\n" +
		"apiVersion: v1\nkind: Namespace\nmetadata: {name: tools}\n"
}

func (s *env) configMap(name string, data map[string]string) *corev1.ConfigMap {
	s.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
	s.create(cm)
	return cm
}

// awaitSetting waits until the ConfigMap of settings has a value in the cluster.
func (s *env) awaitSetting(cluster, want string) {
	s.Helper()
	feed.Until(s, "the manifests are applied", s.hasSetting(cluster, want))
}

// hasSetting returns a function that reports whether the ConfigMap of settings has a value in the cluster.
func (s *env) hasSetting(cluster, want string) func() (bool, string) {
	return func() (bool, string) {
		cm, err := s.workload(cluster).CoreV1().ConfigMaps("tools").Get(s.Context(), "settings", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return cm.Data["value"] == want, cm.Data["value"]
	}
}

// TestAddons applies add-ons to a cluster whose nodes need one of them, changes and breaks them, and corrects what the
// messages say.
func TestAddons(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	s.configMap("cilium", map[string]string{"cilium.yaml": networkPlugin})
	kc := s.cluster("shop", 1, 1)
	kc.Spec.Networking = &v1alpha1.ClusterNetworking{CNI: v1alpha1.CNINone}
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", ConfigMap: "tools"}, {Name: "cilium", ConfigMap: "cilium"}}
	s.create(kc)
	s.awaitReason("shop", addons.ReasonNotFound, "add-on tools: ConfigMap tools does not exist: create it in the namespace of the cluster")
	tools := s.configMap("tools", map[string]string{"settings.yaml": settings("red")})
	got := s.awaitRunning("shop")
	s.awaitSetting("shop", "red")
	if c := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAddonsApplied); c == nil || c.Status != metav1.ConditionTrue || c.Message != "2 add-ons; their ConfigMaps are read again every ten minutes, or at once with the annotation vitistack.io/reconcile" {
		t.Errorf("the condition is %v", c)
	}
	if a := got.Status.Addons; len(a) != 2 || a[0].Objects != 2 || a[0].Source != "ConfigMap tools" || !strings.HasPrefix(a[1].Digest, "sha256:") || a[0].Message+a[1].Message != "" {
		t.Errorf("the status has %+v", a)
	}

	update := func(text string) {
		if err := s.kube.Merge(t.Context(), tools, map[string]any{"data": map[string]string{"settings.yaml": text}}); err != nil {
			t.Fatal(err)
		}
		s.reconcile("shop")
	}
	update(settings("blue"))
	s.awaitSetting("shop", "blue")
	digest := s.get("shop").Status.Addons[0].Digest

	update(settings("blue") + "---\nkind: [\n")
	s.awaitReason("shop", addons.ReasonInvalid, "add-on tools: ConfigMap tools, settings.yaml line 10: this is no YAML")
	if now := s.get("shop").Status; now.Addons[0].Digest != digest || now.Phase != v1alpha1.ClusterRunning || now.Addons[1].Message != "" {
		t.Errorf("an invalid change leaves what is applied, got %s %+v", now.Phase, now.Addons)
	}
	update("apiVersion: example.com/v1\nkind: Thing\nmetadata: {name: x}\n")
	s.awaitReason("shop", addons.ReasonInvalid, "Thing x (settings.yaml line 1): the workload API serves no Thing of example.com/v1: correct kind and apiVersion")
	update("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x, labels: {a: '?'}}\n")
	s.awaitReason("shop", addons.ReasonRefused, "ConfigMap tools: the workload API refuses ConfigMap x (settings.yaml line 1): ", "Correct the manifest")
	update(settings("green"))
	s.awaitRunning("shop")
	s.awaitSetting("shop", "green")

	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons = nil })
	got = s.awaitRunning("shop")
	if meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionAddonsApplied) != nil || len(got.Status.Addons) > 0 {
		t.Errorf("without add-ons the status has %v", got.Status.Addons)
	}
	s.awaitSetting("shop", "green") // removing an add-on deletes nothing
}

// TestAddonTakenBack changes the manifests of an add-on, and takes that back before a delivery could record that it has applied them. The
// workload cluster gets the former ones again.
func TestAddonTakenBack(t *testing.T) {
	t.Parallel()
	u := &unwritten{}
	s := newEnv(t, envOptions{wrap: u.wrap})
	tools := s.configMap("tools", map[string]string{"settings.yaml": settings("red")})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", ConfigMap: "tools"}}
	blue, err := addons.Read(kc.Spec.Addons[0], map[string]string{"settings.yaml": settings("blue")})
	if err != nil {
		t.Fatal(err)
	}
	s.create(kc)
	s.awaitRunning("shop")
	s.awaitSetting("shop", "red")
	u.text.Store(blue.Digest)
	for _, value := range []string{"blue", "red"} {
		if err := s.kube.Merge(t.Context(), tools, map[string]any{"data": map[string]string{"settings.yaml": settings(value)}}); err != nil {
			t.Fatal(err)
		}
		s.awaitAfterResync("shop", "the workload cluster has "+value, s.hasSetting("shop", value))
	}
	u.text.Store("")
	s.awaitRunning("shop")
}

// TestMissingCNI waits for a network plug-in that no add-on has, and says so.
func TestMissingCNI(t *testing.T) {
	t.Parallel()
	s := newEnv(t, envOptions{})
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Networking = &v1alpha1.ClusterNetworking{CNI: v1alpha1.CNINone}
	s.create(kc)
	s.awaitReason("shop", "WaitingForNodes", "spec.networking.cni is none", "add one to spec.addons, or install it with the kubeconfig in Secret shop-kubeconfig")
	s.configMap("cilium", map[string]string{"cilium.yaml": networkPlugin})
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) {
		kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "cilium", ConfigMap: "cilium"}}
	})
	s.awaitRunning("shop")
}

// gate passes events until it is closed. Deliveries about the Machines of a cluster run beside those about the cluster.
type gate struct {
	sync.RWMutex
	closed bool
}

func (g *gate) wrap(next events.Handler) events.Handler {
	return func(ctx context.Context, in event.Event) (*event.Event, error) {
		g.RLock()
		defer g.RUnlock()
		if g.closed {
			return nil, nil
		}
		return next(ctx, in)
	}
}

// close drops all further events, after the deliveries that have begun.
func (g *gate) close() {
	g.Lock()
	defer g.Unlock()
	g.closed = true
}

// countConfigMaps counts the reads of one ConfigMap.
type countConfigMaps struct {
	http.RoundTripper
	n *atomic.Int64
}

func (c countConfigMaps) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/configmaps/tools") {
		c.n.Add(1)
	}
	return c.RoundTripper.RoundTrip(req)
}

// TestAddonsAreReadOnce checks that an applied add-on costs requests in a full reconcile only, and is applied again on
// request.
func TestAddonsAreReadOnce(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	g := &gate{}
	s := newEnv(t, envOptions{wrap: func(next http.RoundTripper) http.RoundTripper { return countConfigMaps{next, &reads} }, handle: g.wrap})
	s.configMap("tools", map[string]string{"settings.yaml": settings("red")})
	kc := s.cluster("shop", 1, 2)
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", ConfigMap: "tools"}}
	s.create(kc)
	s.awaitRunning("shop")
	g.close()
	deliver := func(o reconcileOptions) int64 {
		t.Helper()
		before := reads.Load()
		if _, err := s.function.reconcileCluster(t.Context(), s.namespace, "shop", o); err != nil {
			t.Fatal(err)
		}
		return reads.Load() - before
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Data.Project = "webshop" })
	if n := deliver(reconcileOptions{}); n != 0 {
		t.Errorf("a change of another field reads the ConfigMap %d times", n)
	}
	if err := s.workload("shop").CoreV1().ConfigMaps("tools").Delete(t.Context(), "settings", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := deliver(reconcileOptions{full: true}); n != 1 {
		t.Errorf("a full reconcile reads the ConfigMap %d times, want 1", n)
	}
	if err := s.kube.Merge(t.Context(), s.get("shop"), map[string]any{"metadata": map[string]any{"annotations": map[string]any{v1alpha1.AnnotationReconcile: "now"}}}); err != nil {
		t.Fatal(err)
	}
	deliver(reconcileOptions{})
	s.awaitSetting("shop", "red")
}

// TestApply applies objects to a simulated API and to a real one: the answers are the same.
func TestApply(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(*testing.T) *drainEnv{"simulated": simulated, "real": genuine} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			apply := func(text string) error {
				t.Helper()
				m, err := addons.Read(v1alpha1.ClusterAddon{Name: "a", ConfigMap: "a"}, map[string]string{"a": strings.ReplaceAll(text, "NS", d.namespace)})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range m.Objects {
					if err := d.w.Apply(t.Context(), o.Unstructured); err != nil {
						return err
					}
				}
				return nil
			}
			read := func() map[string]string {
				cm, err := d.CoreV1().ConfigMaps(d.namespace).Get(t.Context(), "c", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return cm.Data
			}
			const head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: NS}\n"
			for i, text := range []string{"data: {a: red, b: red}", "data: {a: blue}"} {
				if err := apply(head + text); err != nil {
					t.Fatal(err)
				}
				if got := read(); len(got) != 2-i {
					t.Errorf("after %s it has %v", text, got)
				}
			}
			role := "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: NS}\nrules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n"
			if err := errors.Join(apply(role), apply(role)); err != nil {
				t.Error(err)
			}
			for text, want := range map[string]any{
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: NS-not}\n":               http.StatusNotFound,
				"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: NS, labels: {a: '?'}}\n": http.StatusUnprocessableEntity,
				head + "data: {a: true}\n":                                       http.StatusInternalServerError, // the manifest is wrong, whatever the code says
				"apiVersion: v1\nkind: Thing\nmetadata: {name: c}\n":             schema.GroupVersionKind{Version: "v1", Kind: "Thing"},
				"apiVersion: example.com/v2\nkind: Thing\nmetadata: {name: c}\n": schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Thing"},
				"apiVersion: v1\nkind: Pod\nmetadata: {name: 'NO', namespace: NS}\nspec: {containers: [{name: x, image: x}]}\n": http.StatusUnprocessableEntity,
			} {
				err := apply(text)
				var answer workload.StatusError
				var unknown workload.UnknownKindError
				errors.As(err, &answer)
				errors.As(err, &unknown)
				if code, isCode := want.(int); isCode && (answer.Code != code || answer.Message == "") || !isCode && unknown.GroupVersionKind != want {
					t.Errorf("%s: got %v, want %v", text, err, want)
				}
			}
		})
	}
}

// TestAddonExample applies the add-on of the example to a real API server.
func TestAddonExample(t *testing.T) {
	t.Parallel()
	d := genuine(t)
	doc, err := apis.Examples.ReadFile("examples/cluster-with-addons.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(doc), "\n---\napiVersion: vitistack.io")
	var cm corev1.ConfigMap
	var kc v1alpha1.KubernetesCluster
	if err := errors.Join(yaml.UnmarshalStrict([]byte(first), &cm), yaml.UnmarshalStrict([]byte("apiVersion: vitistack.io"+second), &kc)); err != nil {
		t.Fatal(err)
	}
	m, err := addons.Read(kc.Spec.Addons[0], cm.Data)
	if err != nil || string(kc.Spec.Addons[0].ConfigMap) != cm.Name || len(m.Objects) != 2 {
		t.Fatalf("got %v, %v", m, err)
	}
	for _, o := range m.Objects {
		if err := d.w.Apply(t.Context(), o.Unstructured); err != nil {
			t.Errorf("%s: %v", o, err)
		}
	}
}

// TestDefinitions applies a CustomResourceDefinition and an object of its kind, which a real API server serves in a
// moment.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	d := genuine(t)
	group := d.namespace + ".example.com"
	m, err := addons.Read(v1alpha1.ClusterAddon{Name: "a", ConfigMap: "a"}, map[string]string{"a": fmt.Sprintf(
		"apiVersion: %[1]s/v1\nkind: Thing\nmetadata: {name: x}\nspec: {size: 3}\n---\n"+
			"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.%[1]s}\n"+
			"spec: {group: %[1]s, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true, "+
			"schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}\n", group)})
	if err != nil {
		t.Fatal(err)
	}
	waited := false
	feed.Until(t, "the object is applied", func() (bool, string) {
		for _, o := range m.Objects {
			if err := d.w.Apply(t.Context(), o.Unstructured); err != nil {
				seen := &observed{addons: map[string]addons.Manifests{"a": m}}
				err = seen.addonError(v1alpha1.ClusterAddon{Name: "a"}, o, err)
				if waited = errors.As(err, new(reconcile.WaitError)); !waited {
					t.Errorf("the kind is defined by an add-on, got %v", err)
				}
				return !waited, err.Error()
			}
		}
		return true, ""
	})
}

func TestAddonErrors(t *testing.T) {
	t.Parallel()
	thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(thing)
	o.SetName("x")
	for name, tc := range map[string]struct {
		why    string
		err    error
		reason string
		words  string
	}{
		"Forbidden":    {"a policy does not change by itself", workload.StatusError{Code: 403, Message: "no"}, addons.ReasonRefused, "refuses Thing x (a line 1): no"},
		"Invalid":      {"a manifest does not either", workload.StatusError{Code: 422, Message: "no"}, addons.ReasonRefused, "Correct the manifest"},
		"Type":         {"the API server answers 500 to a field of another type", workload.StatusError{Code: 500, Message: "failed to create typed patch object (default/c; /v1, Kind=ConfigMap): .data.a: expected string"}, addons.ReasonRefused, ".data.a: expected string"},
		"Unknown kind": {"nothing of this delivery defines it", workload.UnknownKindError{GroupVersionKind: thing}, addons.ReasonInvalid, "serves no Thing of example.com/v1"},
		"Busy":         {"the API server asks for patience", workload.StatusError{Code: 429, Message: "later"}, addons.ReasonWaiting, "answers: later"},
		"Webhook":      {"the pods of a webhook start", workload.StatusError{Code: 500, Message: "failed calling webhook"}, addons.ReasonWaiting, "failed calling webhook"},
		"No answer":    {"an API server restarts", errors.New("reset"), addons.ReasonWaiting, "waits for the workload API to answer for Thing x"},
	} {
		err := (&observed{}).addonError(v1alpha1.ClusterAddon{Name: "a", ConfigMap: "c"}, addons.Manifest{Unstructured: o, From: "a line 1"}, failed(tc.err))
		var problem reconcile.UserError
		var wait reconcile.WaitError
		reason := ""
		if errors.As(err, &problem) {
			reason = problem.Reason
		} else if errors.As(err, &wait) {
			reason = wait.Reason
		}
		if reason != tc.reason || !strings.Contains(err.Error(), tc.words) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
}

// failed wraps an error as a request does.
func failed(cause error) error { return fmt.Errorf("call: %w", cause) }

// trustAddonHost allows the function to read add-ons from a server.
func (s *env) trustAddonHost(server *httptest.Server) {
	trusted := x509.NewCertPool()
	trusted.AddCert(server.Certificate())
	s.function.addons.hosts = addonsource.New("127.0.0.1")
	s.function.addons.hosts.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
}

// TestAddonByURL applies the manifests of a URL once, and again those of another URL.
func TestAddonByURL(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(settings(strings.Trim(r.URL.Path, "/"))))
	}))
	t.Cleanup(server.Close)
	g := &gate{}
	s := newEnv(t, envOptions{handle: g.wrap})
	s.trustAddonHost(server)
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", URL: server.URL + "/red"}}
	s.create(kc)
	s.awaitRunning("shop")
	s.awaitSetting("shop", "red")
	g.close()
	before := asked.Load()
	s.reconcile("shop")
	if n := asked.Load(); n != before {
		t.Errorf("the URL was read again by a full reconcile: %d and %d times", before, n)
	}
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons[0].URL = server.URL + "/blue" })
	s.reconcile("shop")
	s.awaitSetting("shop", "blue")
}

// TestAddonByArtifact applies the manifests of an artifact to a cluster, and then those of another tag.
func TestAddonByArtifact(t *testing.T) {
	t.Parallel()
	r := registry.New(t)
	for _, color := range []string{"red", "blue"} {
		r.Push(color, registry.FluxConfig, registry.Layer{MediaType: registry.FluxContent, Content: registry.Archive(t, map[string]string{"tools/settings.yaml": settings(color)})})
	}
	s := newEnv(t, envOptions{})
	s.trustAddonHost(r.Server)
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", URL: r.URLOf("tools:red")}}
	s.create(kc)
	s.awaitRunning("shop")
	s.awaitSetting("shop", "red")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons[0].URL = r.URLOf("tools:lost") })
	s.awaitReason("shop", addons.ReasonNotFound, "add-on tools: "+r.URLOf("tools:lost")+" is not in the registry: push it, or correct the URL")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons[0].URL = r.URLOf("tools:blue") })
	s.awaitRunning("shop")
	s.awaitSetting("shop", "blue")
	if a := s.get("shop").Status.Addons; len(a) != 1 || a[0].Source != r.URLOf("tools:blue") || a[0].Objects != 2 {
		t.Errorf("the status has %+v", a)
	}
}

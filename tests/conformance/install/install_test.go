package install

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/tests/stand/apiserver"
	"github.com/vitistack/stack/tests/stand/engine"
)

// TestInstall installs, upgrades and uninstalls with Helm, and then with the plain manifests.
func TestInstall(t *testing.T) {
	t.Parallel()
	crds, err := definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	config := apiserver.Start(t).Config()
	c, err := newCluster(t.Context(), config, crds)
	if err != nil {
		t.Fatal(err)
	}
	h := newHelm(t, config)
	apply(t, c, "knative/00-namespace.yaml")
	t.Run("Helm", func(t *testing.T) { helmLives(t, c, h) })
	t.Run("Upgrade", func(t *testing.T) { lastReleaseUpgrades(t, c, h) })
	t.Run("OIDC", func(t *testing.T) { oidcFollowsTheCluster(t, c, h) })
	t.Run("Deploy", func(t *testing.T) { deploys(t, c, h) })
	t.Run("Pages", func(t *testing.T) { followPages(t, c, h) })
	apply(t, c, "apis/crds/*.yaml")
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
	t.Run("Manifests", func(t *testing.T) { manifestsApply(t, c) })
	t.Run("Leases", func(t *testing.T) { leasesAreKept(t, c) })
	t.Run("Protected", func(t *testing.T) { protectionIsKept(t, c) })
	t.Run("Pods", func(t *testing.T) { podsAreAdmitted(t, c, h) })
	t.Run("Variants", func(t *testing.T) { variantsApply(t, c) })
}

// apply applies files, first as a dry run and then for real.
func apply(t *testing.T, c *cluster, pattern string) {
	t.Helper()
	objects, err := files(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		for _, object := range objects {
			if err := c.apply(t.Context(), object, dry); err != nil {
				t.Errorf("apply %s %s (dry run: %t): %v", object.GetKind(), object.GetName(), dry, err)
			}
		}
	}
}

func manifestsApply(t *testing.T, c *cluster) { apply(t, c, "knative/*.yaml") }

// TestKustomizationHasAllFiles checks that knative/Kustomization lists every manifest.
func TestKustomizationHasAllFiles(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(engine.Root(), "knative", "Kustomization"))
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "knative", "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("find the manifests: %d files, %v", len(paths), err)
	}
	for _, path := range paths {
		if !strings.Contains(string(text), "- "+filepath.Base(path)+"\n") {
			t.Errorf("knative/Kustomization does not list %s", filepath.Base(path))
		}
	}
}

// helmLives installs, upgrades and uninstalls the chart.
func helmLives(t *testing.T, c *cluster, h *helm) {
	run := func(args ...string) string {
		t.Helper()
		out, err := h.run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	publishAPIServer(t, c)
	run("lint", "--strict", chart())
	if out := run("install", "vitistack", chart()); !strings.Contains(out, "helm test vitistack") {
		t.Errorf("the notes lack the next step:\n%s", out)
	}
	if err := c.discover(); err != nil {
		t.Fatal(err)
	}
	isInstalled(t, c)
	apiServerIsNamed(t, c)
	machines := definitionOf(t, c)
	if err := unstructured.SetNestedSlice(machines.Object, []any{"old"}, "spec", "names", "categories"); err != nil {
		t.Fatal(err)
	}
	client, err := c.client(machines)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Update(t.Context(), machines, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	publishKea(t, c)
	run("upgrade", "vitistack", chart(), "--force-conflicts", "--set", "broker.class=Kafka,config.logLevel=debug,kea.url=http://kea:8000,kea.tlsSecret=kea-tls,replicaCount=2,database.existingSecret=db")
	if got := definitionOf(t, c); cmp.Equal(got.Object["spec"], machines.Object["spec"]) {
		t.Error("the upgrade did not change a definition")
	}
	isUpgraded(t, c)
	run("rollback", "vitistack", "1", "--force-conflicts")
	run("upgrade", "vitistack", chart(), "--force-conflicts", "--set", "persistence.enabled=true")
	deployment := read(t, c, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "gateway")
	if strategy, _, _ := unstructured.NestedString(deployment.Object, "spec", "strategy", "type"); strategy != "Recreate" {
		t.Errorf("two pods of the gateway may have the volume at the same time: its strategy is %s", strategy)
	}
	run("rollback", "vitistack", "1", "--force-conflicts")
	run("uninstall", "vitistack")
	if got := read(t, c, schema.GroupVersionKind{Group: "eventing.knative.dev", Version: "v1", Kind: "Broker"}, "vitistack"); got != nil {
		t.Error("the Broker remains after the release")
	}
	definitionOf(t, c)
}

// isInstalled compares what Helm has installed with the manifests.
func isInstalled(t *testing.T, c *cluster) {
	t.Helper()
	objects, err := files("knative/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range objects {
		if want.GetKind() == "Namespace" {
			continue
		}
		if want.GetKind() == "NetworkPolicy" { // see TestEgressFollowsTheValues
			unstructured.RemoveNestedField(want.Object, "spec", "egress")
		}
		got := read(t, c, want.GroupVersionKind(), want.GetName())
		if got == nil {
			t.Errorf("the chart does not install %s %s", want.GetKind(), want.GetName())
			continue
		}
		if missing := lacks(strip(want.Object), strip(got.Object)); len(missing) > 0 {
			t.Errorf("%s %s of the chart differs from knative/: %s", want.GetKind(), want.GetName(), strings.Join(missing, ", "))
		}
	}
}

// publishAPIServer creates the EndpointSlice in which a cluster of several machines publishes its
// Kubernetes API. An API server on loopback creates none.
func publishAPIServer(t *testing.T, c *cluster) {
	t.Helper()
	slice := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": "kubernetes", "namespace": "default", "labels": map[string]any{"kubernetes.io/service-name": "kubernetes"}},
		"endpoints": []any{map[string]any{"addresses": []any{"192.0.2.11"}}, map[string]any{"addresses": []any{"192.0.2.12"}}},
		"ports":     []any{map[string]any{"name": "https", "port": int64(6444), "protocol": "TCP"}},
	}}
	if err := c.apply(t.Context(), slice, false); err != nil {
		t.Fatal(err)
	}
}

// publishKea creates a Service whose pods have another port.
func publishKea(t *testing.T, c *cluster) {
	t.Helper()
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "kea", "namespace": namespace},
		"spec":     map[string]any{"ports": []any{map[string]any{"port": int64(8000), "targetPort": int64(8123), "protocol": "TCP"}}},
	}}
	if err := c.apply(t.Context(), service, false); err != nil {
		t.Fatal(err)
	}
}

// apiServerIsNamed compares the addresses of the Kubernetes API in network policies with the endpoints
// and the Service of the cluster.
func apiServerIsNamed(t *testing.T, c *cluster) {
	t.Helper()
	service, err := c.get(t.Context(), schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "default", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := unstructured.NestedString(service.Object, "spec", "clusterIP")
	want := "TCP/6444 TCP/443 to 192.0.2.11/32 192.0.2.12/32 " + address + "/32"
	everybody := policiesOf(t, []*unstructured.Unstructured{read(t, c, schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, "everybody")})
	if got := describe(everybody[0].Spec.Egress[1]); got != want {
		t.Errorf("pods may connect to the Kubernetes API at %s, want %s", got, want)
	}
}

// strip removes what the values of the chart change.
func strip(object map[string]any) map[string]any {
	copied := (&unstructured.Unstructured{Object: object}).DeepCopy().Object
	var walk func(node any)
	walk = func(node any) {
		switch node := node.(type) {
		case map[string]any:
			for _, key := range []string{"image", "labels", "envFrom", "imagePullPolicy"} {
				delete(node, key)
			}
			for _, child := range node {
				walk(child)
			}
		case []any:
			for _, child := range node {
				walk(child)
			}
		}
	}
	walk(copied)
	return copied
}

// lacks returns the fields of want that got lacks or has with another value. Fields that the server
// has added are ignored.
func lacks(want, got any) []string {
	switch want := want.(type) {
	case map[string]any:
		values, _ := got.(map[string]any)
		var all []string
		for _, key := range slices.Sorted(maps.Keys(want)) {
			for _, missing := range lacks(want[key], values[key]) {
				all = append(all, key+"."+missing)
			}
		}
		return all
	case []any:
		values, _ := got.([]any)
		if len(values) != len(want) {
			return []string{"length"}
		}
		var all []string
		for i := range want {
			all = append(all, lacks(want[i], values[i])...)
		}
		return all
	default:
		if !cmp.Equal(want, got) {
			return []string{"value"}
		}
		return nil
	}
}

func isUpgraded(t *testing.T, c *cluster) {
	t.Helper()
	broker := read(t, c, schema.GroupVersionKind{Group: "eventing.knative.dev", Version: "v1", Kind: "Broker"}, "vitistack")
	if class := broker.GetAnnotations()["eventing.knative.dev/broker.class"]; class != "Kafka" {
		t.Errorf("the Broker is of class %s after an upgrade to Kafka", class)
	}
	for _, name := range []string{"vitistack", "vitistack-resources"} {
		source := read(t, c, schema.GroupVersionKind{Group: "sources.knative.dev", Version: "v1", Kind: "ApiServerSource"}, name)
		if kind, _, _ := unstructured.NestedString(source.Object, "spec", "sink", "ref", "kind"); kind != "Broker" {
			t.Errorf("events of the source %s go to a %s, want the Broker: an EventTransform refuses events of more than 100 kB", name, kind)
		}
	}
	function := read(t, c, schema.GroupVersionKind{Group: "serving.knative.dev", Version: "v1", Kind: "Service"}, "kea-reserve")
	containers, _, _ := unstructured.NestedSlice(function.Object, "spec", "template", "spec", "containers")
	if env := containers[0].(map[string]any)["env"]; !strings.Contains(text(t, env), "http://kea:8000") {
		t.Errorf("kea-reserve has the configuration %v of Kea", env)
	} else if !strings.Contains(text(t, env), "http://gateway-events."+namespace+".svc/api/v1/import/prometheus") {
		t.Errorf("kea-reserve has the configuration %v of the gateway", env)
	}
	policies := policiesOf(t, []*unstructured.Unstructured{read(t, c, schema.GroupVersionKind{Group: "networking.k8s.io", Version: "v1", Kind: "NetworkPolicy"}, "kea-reserve")})
	if got, want := describe(policies[0].Spec.Egress[0]), "TCP/8123 to namespace:"+namespace; got != want {
		t.Errorf("kea-reserve may connect to the pods of the Service at %s, want %s", got, want)
	}
	if role := read(t, c, schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"}, "kea-reserve-secrets"); role == nil {
		t.Error("kea-reserve may not read the Secret of its certificates")
	}
	deployment := read(t, c, schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, "gateway")
	if replicas, _, _ := unstructured.NestedInt64(deployment.Object, "spec", "replicas"); replicas != 2 {
		t.Errorf("the gateway has %d replicas, want 2", replicas)
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	doc, err := (&unstructured.Unstructured{Object: map[string]any{"kind": "x", "apiVersion": "v1", "value": value}}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(doc)
}

func read(t *testing.T, c *cluster, kind schema.GroupVersionKind, name string) *unstructured.Unstructured {
	t.Helper()
	object, err := c.get(t.Context(), kind, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return object
}

func definitionOf(t *testing.T, c *cluster) *unstructured.Unstructured {
	t.Helper()
	crd := read(t, c, schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, "machines.vitistack.io")
	if crd == nil {
		t.Fatal("the definition of Machines does not exist")
	}
	return crd
}

// podsAreAdmitted creates a pod of each template as a dry run, in a namespace that enforces the
// restricted pod security standard.
func podsAreAdmitted(t *testing.T, c *cluster, h *helm) {
	objects, err := files("knative/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := h.run(t.Context(), "template", "vitistack", chart(), "--show-only", "templates/tests/ready.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := decode([]byte(rendered))
	if err != nil {
		t.Fatal(err)
	}
	// A controller creates it elsewhere.
	account := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"}}
	account.SetName("default")
	account.SetNamespace(namespace)
	if err := c.apply(t.Context(), account, false); err != nil {
		t.Fatal(err)
	}
	pods := 0
	for _, object := range append(objects, tests...) {
		spec, found, _ := unstructured.NestedMap(object.Object, "spec", "template", "spec")
		if object.GetKind() == "Pod" {
			spec, found, _ = unstructured.NestedMap(object.Object, "spec")
		}
		if !found {
			continue
		}
		pods++
		for _, field := range []string{"containerConcurrency", "timeoutSeconds", "responseStartTimeoutSeconds"} {
			delete(spec, field)
		}
		container := spec["containers"].([]any)[0].(map[string]any)
		container["name"] = "main"
		for _, probe := range []string{"readinessProbe", "livenessProbe"} {
			delete(container, probe) // Knative adds their ports
		}
		pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec}}
		pod.SetName(object.GetName())
		pod.SetNamespace(namespace)
		if err := c.apply(t.Context(), pod, true); err != nil {
			t.Errorf("a pod of %s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
	if pods < 8 {
		t.Errorf("only %d pods were checked", pods)
	}
}

// variantsApply builds each variant with kustomize, and applies it as a dry run.
func variantsApply(t *testing.T, c *cluster) {
	for variant, kind := range map[string]string{"kafka": "Broker", "authorized": "EventPolicy", "authenticated": "Broker", "node-events": "Service", "without-kubevirt": "ApiServerSource"} {
		objects := kustomize(t, "knative/variants/"+variant)
		if !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind }) {
			t.Errorf("variant %s has no %s", variant, kind)
		}
		checkIdentities(t, objects, namespace, map[string]string{"authenticated": "true"}[variant])
		for _, object := range objects {
			if err := c.apply(t.Context(), object, true); err != nil {
				t.Errorf("variant %s: %s %s: %v", variant, object.GetKind(), object.GetName(), err)
			}
		}
	}
}

// kustomize builds the manifests with a component.
func kustomize(t *testing.T, component string) []*unstructured.Unstructured {
	t.Helper()
	dir := t.TempDir()
	to := func(path string) string {
		resolved, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		relative, err := filepath.Rel(resolved, filepath.Join(engine.Root(), path))
		if err != nil {
			t.Fatal(err)
		}
		return relative
	}
	doc := "resources: [" + to("knative") + "]\ncomponents: [" + to(component) + "]\n"
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := apiserver.Binary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), local, "kubectl", "kustomize", dir)
	out, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize with %s: %v\n%s", component, err, stderr(err))
	}
	objects, err := decode(out)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func stderr(err error) string {
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		return string(failed.Stderr)
	}
	return ""
}

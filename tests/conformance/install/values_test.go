package install

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/tests/stand/engine"
)

// TestWrongValues sets values without an effect, or with another effect than they suggest.
func TestWrongValues(t *testing.T) {
	t.Parallel()
	digest := "sha256:" + strings.Repeat("0", 64)
	tests := map[string]struct{ reason, set, says string }{
		"DigestOfNothing": {"a digest under a wrong name has no effect", "image.digests.gatway=" + digest, "invalid propertyName 'gatway'"},
		"Override":        {"a misspelt kind matches no object", "overrides.Deploymnt/gateway.spec.replicas=9", "overrides.Deploymnt/gateway changes nothing"},
		"OtherBroker":     {"the object belongs to another class of Broker", "overrides.NetworkPolicy/broker-nats.spec.x=y", "changes nothing: the chart has no such object of knative/ with broker.class MTChannelBasedBroker"},
		"Scale":           {"Knative would reject it", "functions.create-vm.minScale=5,functions.create-vm.maxScale=2", "functions.create-vm.minScale is 5, above its maxScale of 2"},
		"ScaleOfResync":   {"the maximum is not a value of the chart", "functions.resync.minScale=2", "functions.resync.minScale is 2, above its maxScale of 1"},
		"RightDigest":     {"a digest of a function is valid", "image.digests.create-vm=" + digest, ""},
		"RightOverride":   {"a disabled policy may be overridden", "networkPolicy.enabled=false,overrides.NetworkPolicy/functions.spec.x=y", ""},
		"RightSelector":   {"namespaces may be selected by label", "eventSource.namespaceSelector.matchLabels.vitistack=enabled", ""},
		"WrongOIDC":       {"YAML parses on as true", "authentication.oidc=on", "value must be one of 'auto', 'enabled', 'disabled'"},
		"WrongPools":      {"an unknown word would have no effect", "networkPools=off", "networkPools"},
		"WrongSelector":   {"a selector that Knative ignores selects nothing", "eventSource.namespaceSelector.labels.vitistack=enabled", "additional properties 'labels' not allowed"},
		"EventsNowhere":   {"nodes would send their events to nothing", "nodeEvents.endpoint=10.0.0.5:9993", "nodeEvents.endpoint needs nodeEvents.enabled"},
		"EventsURL":       {"Talos takes no URL", "nodeEvents.enabled=true,nodeEvents.endpoint=http://10.0.0.5:9993", "nodeEvents/endpoint"},
		"EventsPort":      {"no such port exists", "nodeEvents.enabled=true,nodeEvents.endpoint=10.0.0.5:99999", "nodeEvents/endpoint"},
		"EventsWhere":     {"Talos needs a port", "nodeEvents.enabled=true,nodeEvents.endpoint=10.0.0.5", "nodeEvents/endpoint"},
		"PoolsOfFunction": {"the rights of editors follow networkPools", "functions.provision-network.env.NETWORK_POOLS=optional", "write networkPools: optional"},
		"PoolsOfConfig":   {"the rights of editors follow networkPools", "config.env.NETWORK_POOLS=optional", "is the value networkPools"},
		"TwoDatabases":    {"a variable has one value", "database.existingSecret=db,gateway.env.DATABASE_URL=postgres://db", "database.existingSecret and gateway.env.DATABASE_URL"},
		"RightScale":      {"the maximum is allowed", "functions.create-vm.minScale=2,functions.create-vm.maxScale=2", ""},
	}
	h := newHelm(t, &rest.Config{})
	for name, tc := range tests {
		_, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", tc.set)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q: %s", name, err, tc.says, tc.reason)
		}
	}
}

// TestNamespacesAreChosen checks that both event sources watch the namespaces with a label, with each
// Broker. Without a selector Knative restarts them for each new namespace.
func TestNamespacesAreChosen(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for _, class := range []string{"MTChannelBasedBroker", "Kafka", "NatsJetStreamBroker"} {
		out, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "eventSource.namespaceSelector.matchLabels.vitistack=enabled,broker.class="+class)
		if err != nil {
			t.Fatal(err)
		}
		sources := 0
		for doc := range strings.SplitSeq(out, "\n---\n") {
			var source struct {
				Kind string
				Spec struct {
					NamespaceSelector struct{ MatchLabels map[string]string }
				}
			}
			if err := yaml.Unmarshal([]byte(doc), &source); err != nil {
				t.Fatal(err)
			}
			if source.Kind != "ApiServerSource" {
				continue
			}
			if sources++; source.Spec.NamespaceSelector.MatchLabels["vitistack"] != "enabled" {
				t.Errorf("%s: an ApiServerSource watches %v", class, source.Spec.NamespaceSelector)
			}
		}
		if sources != 2 {
			t.Errorf("%s: %d ApiServerSources, want 2", class, sources)
		}
	}
}

// TestWithoutKubeVirt checks that no event source watches kinds of KubeVirt where that is not installed: Knative's pods of both would
// end. Values of an earlier release lack the setting, and change nothing.
func TestWithoutKubeVirt(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for value, want := range map[string]int{"eventSource.kubevirt=false": 0, "eventSource.kubevirt=true": 4, "eventSource.kubevirt=null": 4} {
		kinds, others := watched(h.render(t, value))
		if kinds != want || others != 14 {
			t.Errorf("%s: the event sources watch %d kinds of KubeVirt and %d others, want %d and 14", value, kinds, others, want)
		}
	}
}

// TestVariantWithoutKubeVirt checks the same for the manifests.
func TestVariantWithoutKubeVirt(t *testing.T) {
	t.Parallel()
	if kinds, others := watched(kustomize(t, "knative/variants/without-kubevirt")); kinds != 0 || others != 14 {
		t.Errorf("the event sources watch %d kinds of KubeVirt and %d others, want 0 and 14", kinds, others)
	}
}

// watched counts the kinds of KubeVirt, and the others, that event sources watch.
func watched(objects []*unstructured.Unstructured) (kinds, others int) {
	for _, u := range objects {
		if u.GetKind() != "ApiServerSource" {
			continue
		}
		resources, _, _ := unstructured.NestedSlice(u.Object, "spec", "resources")
		for _, r := range resources {
			if strings.HasPrefix(fmt.Sprint(r.(map[string]any)["apiVersion"]), "kubevirt.io/") {
				kinds++
			} else {
				others++
			}
		}
	}
	return kinds, others
}

// TestOtherNamespace installs everything in another namespace, and looks for the name of the default one.
func TestOtherNamespace(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	h.namespace = "stack"
	values := "prometheusRule.enabled=true,dashboard.enabled=true,serviceMonitor.enabled=true,nodeEvents.enabled=true,persistence.enabled=true," +
		"secrets.namespaces={a},kea.tlsSecret=kea"
	for _, class := range []string{"MTChannelBasedBroker", "Kafka", "NatsJetStreamBroker"} {
		out, err := h.run(t.Context(), "install", "vitistack", chart(), "--dry-run=client", "--set", values+",broker.class="+class)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out) {
			if strings.Contains(line, namespace) {
				t.Errorf("%s: this line names namespace %s, and the release is in %s: %s", class, namespace, h.namespace, strings.TrimSpace(line))
			}
		}
	}
}

// TestEmptyValues leaves every value empty that is empty by default, as a file does in which all lines below a key are comments.
func TestEmptyValues(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	want, err := h.run(t.Context(), "template", "vitistack", chart())
	if err != nil {
		t.Fatal(err)
	}
	empty := emptyPaths(defaults(t))
	if len(empty) < 20 {
		t.Fatalf("only %d values are empty by default", len(empty))
	}
	got, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", strings.Join(empty, "=null,")+"=null")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a value without content differs from the default (-want +got):\n%s", diff)
	}
}

// TestSectionsWithoutContent removes each section of the values, as a file does in which all lines below the key are comments: Helm installs, or names the section.
func TestSectionsWithoutContent(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	sections := sectionPaths(defaults(t))
	if len(sections) < 50 {
		t.Fatalf("the values have only %d sections", len(sections))
	}
	for _, path := range sections {
		_, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", path+"=null")
		if name := path[strings.LastIndex(path, ".")+1:]; err != nil && !strings.Contains(err.Error(), "missing property '"+name+"'") {
			t.Errorf("%s without content: %v", path, err)
		}
	}
}

// defaults returns the default values of the chart.
func defaults(t *testing.T) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart(), "values.yaml"))
	if err == nil {
		err = yaml.Unmarshal(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// sectionPaths returns the paths of the maps with content.
func sectionPaths(values map[string]any) (paths []string) {
	for key, value := range values {
		if value, isMap := value.(map[string]any); isMap && len(value) > 0 {
			paths = append(paths, key)
			for _, path := range sectionPaths(value) {
				paths = append(paths, key+"."+path)
			}
		}
	}
	return paths
}

// emptyPaths returns the paths of the maps and lists without content.
func emptyPaths(values map[string]any) (paths []string) {
	for key, value := range values {
		switch value := value.(type) {
		case map[string]any:
			if len(value) == 0 {
				paths = append(paths, key)
			}
			for _, path := range emptyPaths(value) {
				paths = append(paths, key+"."+path)
			}
		case []any:
			if len(value) == 0 {
				paths = append(paths, key)
			}
		}
	}
	return paths
}

// TestDefinitionsAreSelected checks that the command of docs/upgrade.md that deletes the definitions finds them, also where they were applied from files.
func TestDefinitionsAreSelected(t *testing.T) {
	t.Parallel()
	definitions, err := files("apis/crds/*.yaml")
	if err != nil || len(definitions) == 0 {
		t.Fatalf("%d definitions: %v", len(definitions), err)
	}
	for _, crd := range definitions {
		if crd.GetLabels()["app.kubernetes.io/part-of"] != "vitistack" {
			t.Errorf("kubectl delete crd -l app.kubernetes.io/part-of=vitistack does not delete %s", crd.GetName())
		}
	}
}

// TestDigestsAreOfImages compares the permitted names of digests with the images.
func TestDigestsAreOfImages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(chart(), "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Image struct {
				Properties struct {
					Digests struct{ PropertyNames struct{ Enum []string } }
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	if names, images := schema.Properties.Image.Properties.Digests.PropertyNames.Enum, images(t); len(images) == 0 || !slices.Equal(names, images) {
		t.Errorf("digests are permitted for %v, the images are %v", names, images)
	}
}

// images returns the sorted names of the stack's images.
func images(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(engine.Root(), "knative", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range regexp.MustCompile(`image: ko://\S*/(\S+)`).FindAllSubmatch(text, -1) {
			names = append(names, string(match[1]))
		}
	}
	slices.Sort(names)
	return names
}

// TestMakeRefuses runs make with arguments that it must reject.
func TestMakeRefuses(t *testing.T) {
	t.Parallel()
	const image, own = "Write make deploy IMG=registry/repository:tag", "make run starts a cluster of its own"
	tests := map[string]struct {
		reason, args, says string
	}{
		"NoImage":    {"the registry is missing", "deploy", image},
		"NoTag":      {"the port of the registry is no tag", "deploy IMG=registry.example.com:5000/vitistack", image},
		"NoPort":     {"the repository is no tag", "deploy IMG=registry.example.com/vitistack", image},
		"Digest":     {"the digest can only be that of one image", "deploy IMG=registry.example.com/vitistack@sha256:0", image},
		"Cluster":    {"make would not use the cluster in KUBECONFIG", "-n run KUBECONFIG=/nowhere", own},
		"OwnCluster": {"an unrelated KUBECONFIG in the environment is ignored", "-n run", ""},
	}
	for name, tc := range tests {
		command := exec.CommandContext(t.Context(), "make", append([]string{"--silent"}, strings.Fields(tc.args)...)...)
		command.Dir = engine.Root()
		command.Env = append(os.Environ(), "KUBECONFIG=/nowhere")
		out, err := command.CombinedOutput()
		if (err == nil) != (tc.says == "") || !strings.Contains(string(out), tc.says) {
			t.Errorf("%s: %v, want %q: %s\n%s", name, err, tc.says, tc.reason, out)
		}
	}
}

// TestReleaseIsPinned packages the chart like a release, after make pin, and checks that every image
// has its digest.
func TestReleaseIsPinned(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	run := func(name string, args ...string) {
		t.Helper()
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir = engine.Root()
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
	}
	run("cp", "-rL", chart()+"/.", folder)
	var digests strings.Builder
	for i, image := range images(t) {
		fmt.Fprintf(&digests, "%s@sha256:%064d\n", image, i)
	}
	file := filepath.Join(t.TempDir(), "digests.txt")
	if err := os.WriteFile(file, []byte(digests.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	run("make", "--silent", "pin", "DIGESTS="+file, "CHART="+folder)
	out, err := newHelm(t, &rest.Config{}).run(t.Context(), "template", "vitistack", folder)
	if err != nil {
		t.Fatal(err)
	}
	for i, image := range images(t) {
		if want := fmt.Sprintf("/%s@sha256:%064d", image, i); !strings.Contains(out, want) {
			t.Errorf("the chart does not run %s", want)
		}
	}
}

// TestPublishedService publishes the gateway. The Broker's port requires no key, so it must remain inside of the cluster.
func TestPublishedService(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	out, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "service.type=LoadBalancer,service.port=443,service.annotations.a=b")
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for doc := range strings.SplitSeq(out, "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		if kind.Kind != "Service" || kind.APIVersion != "v1" {
			continue
		}
		var service corev1.Service
		if err := yaml.Unmarshal([]byte(doc), &service); err != nil {
			t.Fatal(err)
		}
		published := service.Spec.Type == corev1.ServiceTypeLoadBalancer
		if published != (service.Name == "gateway") {
			t.Errorf("Service %s is a %s", service.Name, service.Spec.Type)
		}
		for _, port := range service.Spec.Ports {
			if port.TargetPort.String() == "broker" {
				inside = true
				if published {
					t.Errorf("Service %s publishes the port of the Broker's deliveries", service.Name)
				}
			} else if published && port.Port != 443 {
				t.Errorf("Service %s publishes port %d, want 443", service.Name, port.Port)
			}
		}
	}
	if !inside {
		t.Error("no Service has the port of the Broker's deliveries")
	}
}

// TestNodeEvents enables the event sink of nodes: the gateway listens, its Service keeps the addresses of nodes, only networks of nodes reach it, and
// nodes get the address of the value.
func TestNodeEvents(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	off := h.render(t, "nodeEvents.enabled=false")
	on := h.render(t, "nodeEvents.enabled=true,nodeEvents.endpoint=events.example.com:9993,nodeEvents.service.type=NodePort,"+
		"nodeEvents.service.nodePort=30993,networkPolicy.nodes.cidrs={10.20.0.0/16}")
	for _, o := range off {
		if text := fmt.Sprint(o.Object); strings.Contains(text, "NODE_EVENTS") || strings.Contains(text, "node-events") {
			t.Errorf("%s %s has settings of node events, which are off", o.GetKind(), o.GetName())
		}
	}
	found := map[string]string{}
	for _, o := range on {
		found[o.GetKind()+"/"+o.GetName()] += fmt.Sprint(o.Object)
	}
	for object, parts := range map[string][]string{
		"Service/gateway-node-events":       {"type:NodePort", "externalTrafficPolicy:Local", "nodePort:30993", "targetPort:9993"},
		"NetworkPolicy/gateway-node-events": {"cidr:10.20.0.0/16", "port:9993"},
		"Deployment/gateway":                {"name:NODE_EVENTS_ADDRESS value::9993"},
		"Service/bootstrap-talos":           {"name:NODE_EVENTS_ENDPOINT value:events.example.com:9993"},
	} {
		for _, part := range parts {
			if !strings.Contains(found[object], part) {
				t.Errorf("%s has no %s: %s", object, part, found[object])
			}
		}
	}
	for _, o := range h.render(t, "nodeEvents.enabled=true,networkPolicy.nodes.cidrs=null") {
		if o.GetName() != "gateway-node-events" || o.GetKind() != "NetworkPolicy" {
			continue
		}
		if rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "ingress"); len(rules) > 0 {
			t.Errorf("without networks of nodes the policy admits %v", rules)
		}
	}
}

// TestPreviewSettings checks that previews of the gateway decide by the settings that the functions have.
func TestPreviewSettings(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	names := []string{"NETWORK_POOLS", "SEPARATE_DATACENTERS", "IMAGE_FACTORY", "ALLOWED_IMAGE_HOSTS", "TALOS_VERSION", "ALLOWED_ADDON_HOSTS", "PREVIEW_ALLOWEDENDPOINTS"}
	for name, tc := range map[string]struct {
		reason string
		values []string
		want   map[string]string
	}{
		"Default":   {"the ConfigMap has what there is", nil, map[string]string{}},
		"Values":    {"a value is for functions and gateway", []string{"images.allowedHosts={a.example.com,b.example.com}", "talos.imageFactory=https://factory.example.com", "talos.version=1.12.4", "addons.allowedHosts={c.example.com}"}, map[string]string{"ALLOWED_ADDON_HOSTS": "c.example.com", "ALLOWED_IMAGE_HOSTS": "a.example.com,b.example.com", "IMAGE_FACTORY": "https://factory.example.com", "TALOS_VERSION": "1.12.4"}},
		"Function":  {"a variable of a function decides", []string{"functions.provision-network.env.SEPARATE_DATACENTERS=east", "functions.create-vm.env.ALLOWED_IMAGE_HOSTS=c.example.com"}, map[string]string{"SEPARATE_DATACENTERS": "east", "ALLOWED_IMAGE_HOSTS": "c.example.com"}},
		"Endpoints": {"the gateway connects to others than create-vm", []string{"functions.create-vm.env.ALLOWED_ENDPOINTS=10.0.0.0/8", "gateway.env.ALLOWED_ENDPOINTS=hooks.example.com"}, map[string]string{"PREVIEW_ALLOWEDENDPOINTS": "10.0.0.0/8"}},
		"Common":    {"both have the list of the ConfigMap", []string{"config.env.ALLOWED_ENDPOINTS=10.0.0.0/8"}, map[string]string{}},
		"Own":       {"a variable of the gateway decides", []string{"talos.version=1.12.4", "gateway.env.TALOS_VERSION=1.11.6"}, map[string]string{"TALOS_VERSION": "1.11.6"}},
	} {
		args := []string{"template", "vitistack", chart()}
		for _, value := range tc.values {
			args = append(args, "--set", value)
		}
		out, err := h.run(t.Context(), args...)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]string{}
		for doc := range strings.SplitSeq(out, "\n---\n") {
			var deployment appsv1.Deployment
			if err := yaml.Unmarshal([]byte(doc), &deployment); err != nil || deployment.Kind != "Deployment" || deployment.Name != "gateway" {
				continue
			}
			for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
				if slices.Contains(names, variable.Name) {
					got[variable.Name] = variable.Value
				}
			}
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

// TestGatewayEnvironment checks that a value overrides a variable of the manifest, and that the
// variable occurs once: the API server rejects duplicate names.
func TestGatewayEnvironment(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	out, err := h.run(t.Context(), "template", "vitistack", chart(), "--set-json", `gateway.env={"SERVER_MAXHEADERBYTES": 1048576}`)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for doc := range strings.SplitSeq(out, "\n---\n") {
		var deployment appsv1.Deployment
		if err := yaml.Unmarshal([]byte(doc), &deployment); err != nil || deployment.Kind != "Deployment" || deployment.Name != "gateway" {
			continue
		}
		found = true
		var got []string
		for _, variable := range deployment.Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "SERVER_MAXHEADERBYTES" {
				got = append(got, variable.Value)
			}
		}
		if diff := cmp.Diff([]string{"1048576"}, got); diff != "" {
			t.Errorf("SERVER_MAXHEADERBYTES (-want +got):\n%s", diff)
		}
	}
	if !found {
		t.Error("the chart has no Deployment gateway")
	}
}

// TestServiceMonitorHasAKey checks that Prometheus gets the key for metrics.
func TestServiceMonitorHasAKey(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct{ reason, set, want string }{
		"Open": {"metrics require no key", "", "map[]"},
		"Key":  {"the key is in a Secret", ",serviceMonitor.existingSecret=prometheus", "map[credentials:map[key:key name:prometheus]]"},
	} {
		for _, object := range h.render(t, "serviceMonitor.enabled=true"+tc.set) {
			if object.GetKind() != "ServiceMonitor" {
				continue
			}
			endpoints, _, _ := unstructured.NestedSlice(object.Object, "spec", "endpoints")
			authorization, _, _ := unstructured.NestedMap(endpoints[0].(map[string]any), "authorization")
			if got := fmt.Sprint(authorization); got != tc.want {
				t.Errorf("%s: Prometheus has %s, want %s: %s", name, got, tc.want, tc.reason)
			}
		}
	}
}

// TestPlacement checks the topology spread of the gateway's replicas, and the priority class of all
// pods.
func TestPlacement(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for name, tc := range map[string]struct {
		reason, set string
		spread      []string
		priority    map[string]string
	}{
		"Default": {"replicas are spread over nodes and zones as far as possible", "replicaCount=3,database.existingSecret=db", []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"}, map[string]string{}},
		"Own": {"the platform team's constraints replace the default", "topologySpreadConstraints[0].topologyKey=rack,topologySpreadConstraints[0].maxSkew=1,topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule,priorityClassName=high",
			[]string{"rack"}, map[string]string{"gateway": "high"}},
		"Functions": {"functions get it if Knative permits it", "priorityClassName=high,functions.placement=true", []string{"kubernetes.io/hostname", "topology.kubernetes.io/zone"},
			map[string]string{"gateway": "high", "create-vm": "high"}},
	} {
		out, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", tc.set)
		if err != nil {
			t.Fatal(err)
		}
		priority := map[string]string{}
		for doc := range strings.SplitSeq(out, "\n---\n") {
			var object struct {
				Kind     string
				Metadata struct{ Name string }
				Spec     struct{ Template struct{ Spec corev1.PodSpec } }
			}
			if yaml.Unmarshal([]byte(doc), &object) != nil || object.Metadata.Name != "gateway" && object.Metadata.Name != "create-vm" {
				continue
			}
			pod := object.Spec.Template.Spec
			if pod.PriorityClassName != "" {
				priority[object.Metadata.Name] = pod.PriorityClassName
			}
			if object.Kind != "Deployment" {
				continue
			}
			var spread []string
			for _, c := range pod.TopologySpreadConstraints {
				spread = append(spread, c.TopologyKey)
			}
			if !slices.Equal(spread, tc.spread) {
				t.Errorf("%s: %s: spread over %v, want %v", name, tc.reason, spread, tc.spread)
			}
		}
		if !maps.Equal(priority, tc.priority) {
			t.Errorf("%s: %s: priorities %v, want %v", name, tc.reason, priority, tc.priority)
		}
	}
}

// TestNetworksOfTeams checks that teams may create networks only if NetworkPools bind every namespace.
func TestNetworksOfTeams(t *testing.T) {
	t.Parallel()
	h := newHelm(t, &rest.Config{})
	for pools, want := range map[string]bool{"required": true, "optional": false} {
		out, err := h.run(t.Context(), "template", "vitistack", chart(), "--set", "networkPools="+pools)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for doc := range strings.SplitSeq(out, "\n---\n") {
			var object struct {
				rbacv1.ClusterRole
				Data map[string]string `json:"data"`
			}
			if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
				continue
			}
			if object.Kind == "ConfigMap" && object.Name == "vitistack-config" {
				if found++; object.Data["NETWORK_POOLS"] != pools {
					t.Errorf("networkPools=%s: NETWORK_POOLS is %q", pools, object.Data["NETWORK_POOLS"])
				}
			}
			if object.Kind == "ClusterRole" && object.Name == "vitistack-edit" {
				found++
				makes := slices.ContainsFunc(object.Rules, func(r rbacv1.PolicyRule) bool {
					return slices.Contains(r.Resources, "networknamespaces") || slices.Contains(r.Resources, "networkconfigurations")
				})
				if makes != want || len(object.Rules) < 2 {
					t.Errorf("networkPools=%s: vitistack-edit may create networks: %t, want %t: %v", pools, makes, want, object.Rules)
				}
			}
		}
		if found != 2 {
			t.Errorf("networkPools=%s: found %d of the ConfigMap and the ClusterRole", pools, found)
		}
	}
}

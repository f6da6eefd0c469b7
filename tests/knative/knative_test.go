package knative

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const namespace = "vitistack-system"

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	functions   = schema.GroupVersionResource{Group: "serving.knative.dev", Version: "v1", Resource: "services"}
	triggers    = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}
	// topology lists the kinds in the manifests that must become Ready.
	topology = []schema.GroupVersionResource{
		{Group: "eventing.knative.dev", Version: "v1", Resource: "brokers"},
		triggers,
		{Group: "sources.knative.dev", Version: "v1", Resource: "apiserversources"},
		{Group: "sources.knative.dev", Version: "v1", Resource: "pingsources"},
		{Group: "sources.knative.dev", Version: "v1", Resource: "sinkbindings"},
		functions,
	}
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == inPod {
		if err := runInPod(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestKnative installs the released Knative Eventing with the stack, and creates the smallest cluster.
// VITI_KNATIVE is the folder of Knative's programs.
func TestKnative(t *testing.T) {
	t.Parallel()
	bin := os.Getenv("VITI_KNATIVE")
	if bin == "" {
		t.Skip("make test-knative sets VITI_KNATIVE, and builds the programs in it")
	}
	if out, err := exec.CommandContext(t.Context(), "unshare", "--user", "--net", "true").CombinedOutput(); err != nil {
		t.Fatalf("this machine does not permit network namespaces for this user: %v\n%s\nOn Ubuntu: sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0", err, out)
	}
	r := newRig(t, bin)
	r.installKnative()
	r.setServiceAddresses()
	// The simulated IPAM created its Trigger before the webhook existed that sets defaults.
	r.kubectl("", "annotate", "triggers", "--all", "--namespace", namespace, "seen=true")
	r.kubectl(r.kubectl("", "kustomize", filepath.Join(engine.Root(), "knative")), "apply", "--server-side", "--force-conflicts", "--filename", "-")
	for _, kind := range topology {
		r.awaitReady(kind)
	}
	t.Run("Defaults", r.checkDefaults)
	t.Run("Admission", r.checkRejection)
	t.Run("SinkBindings", r.checkSinkBindings)
	r.restartPrograms()
	t.Run("Cluster", r.checkCluster)
	t.Run("Ping", r.checkResync)
	t.Run("DeadLetter", func(t *testing.T) { r.checkDeadLetter(t, "refused") })
	r.authenticate()
	t.Run("TriggersHaveTokens", r.checkTriggerTokens)
	t.Run("AuthenticatedDeadLetter", func(t *testing.T) { r.checkDeadLetter(t, "refused-again") })
	t.Run("AuthenticatedCluster", r.checkAuthenticatedCluster)
}

// setServiceAddresses writes the address of each Knative Service into its status, as Knative Serving does.
func (r *env) setServiceAddresses() {
	r.t.Helper()
	for _, function := range r.List(functions, namespace, "") {
		status := fmt.Sprintf(`{"status":{"address":{"url":"http://%s.%s.svc.cluster.local"}}}`, function.GetName(), namespace)
		if _, err := r.Client.Resource(functions).Namespace(namespace).Patch(r.t.Context(), function.GetName(), types.MergePatchType,
			[]byte(status), metav1.PatchOptions{}, "status"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// awaitReady waits until all objects of a kind are Ready.
func (r *env) awaitReady(kind schema.GroupVersionResource) {
	r.t.Helper()
	var names []string
	feed.Until(r.t, kind.Resource+" are ready", func() (bool, string) {
		names = nil
		for _, object := range r.List(kind, namespace, "") {
			if conditionOf(&object, "Ready") != "True" {
				return false, fmt.Sprintf("%s: %v", object.GetName(), object.Object["status"])
			}
			names = append(names, object.GetName())
		}
		return len(names) > 0, "there are none"
	})
	r.t.Logf("%s are ready: %s", kind.Resource, strings.Join(names, ", "))
}

// conditionOf returns the status of an object's condition, or an empty string.
func conditionOf(object *unstructured.Unstructured, kind string) string {
	if object == nil {
		return ""
	}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == kind {
			return fmt.Sprint(fields["status"])
		}
	}
	return ""
}

// checkDefaults checks that Knative's webhook has set defaults in the applied objects.
func (r *env) checkDefaults(t *testing.T) {
	for _, trigger := range r.List(triggers, namespace, "") {
		if trigger.GetLabels()["eventing.knative.dev/broker"] != "vitistack" {
			t.Errorf("Trigger %s has no label of its Broker", trigger.GetName())
		}
	}
}

// checkRejection checks that Knative's webhook rejects a Trigger without a subscriber.
func (r *env) checkRejection(t *testing.T) {
	trigger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": map[string]any{"name": "invalid"},
		"spec": map[string]any{"broker": "vitistack"},
	}}
	_, err := r.Client.Resource(triggers).Namespace(namespace).Create(t.Context(), trigger, metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "validation.webhook.eventing.knative.dev") {
		t.Errorf("a Trigger without a subscriber: %v, want Knative's webhook to reject it", err)
	}
}

// checkSinkBindings checks that Knative has set the Broker's address in the senders.
func (r *env) checkSinkBindings(t *testing.T) {
	const want = "http://broker-ingress.knative-eventing.svc.cluster.local/vitistack-system/vitistack"
	subjects := map[string]schema.GroupVersionResource{
		"gateway": deployments, "resync": functions, "allocate-ip": functions, "kea-reserve": functions, "provision-network": functions,
	}
	for name, kind := range subjects {
		feed.Until(t, name+" has the address of the Broker", func() (bool, string) {
			containers, _, _ := unstructured.NestedSlice(r.Get(kind, namespace, name).Object, "spec", "template", "spec", "containers")
			env := fmt.Sprint(containers[0].(map[string]any)["env"])
			return strings.Contains(env, "name:K_SINK value:"+want), env
		})
	}
}

// restartPrograms restarts the gateway and the functions with their new environment, as a new revision
// does.
func (r *env) restartPrograms() {
	r.t.Helper()
	r.RestartFree()
	if err := r.KillProcess("gateway"); err != nil {
		r.t.Fatal(err)
	}
}

func (r *env) checkCluster(t *testing.T) {
	r.Apply("default", r.StaticNetwork("network", 10, 250))
	r.Apply("default", r.Example("simple-kubernetescluster.yaml"))
	r.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	if report := r.Report(); report.Received != 0 || len(report.Triggers) != 0 {
		t.Errorf("the engine's own broker received %d events, want all of them at Knative's", report.Received)
	}
}

// checkResync checks that the PingSource starts the function resync.
func (r *env) checkResync(t *testing.T) {
	feed.Until(t, "resync is started", func() (bool, string) {
		for _, p := range r.Report().Processes {
			if p.Name == "resync" && p.Starts > 0 {
				return true, ""
			}
		}
		return false, "it was not started"
	})
}

// checkDeadLetter creates a Trigger with this name whose subscriber does not exist.
func (r *env) checkDeadLetter(t *testing.T, name string) {
	r.kubectl(`apiVersion: eventing.knative.dev/v1
kind: Trigger
metadata: {name: `+name+`, namespace: vitistack-system}
spec:
  broker: vitistack
  filters: [{exact: {kind: NetworkNamespace}}]
  delivery: {retry: 0}
  subscriber: {uri: http://broker-ingress.knative-eventing.svc.cluster.local/no/`+name+`}
`, "apply", "--filename", "-")
	r.awaitReady(triggers)
	number := 0
	feed.Until(t, "the gateway reports a dead letter", func() (bool, string) {
		number++
		note := fmt.Sprintf(`{"metadata":{"annotations":{"%s":"%d"}}}`, name, number)
		if _, err := r.Client.Resource(engine.NetworkNamespaces).Namespace("default").Patch(t.Context(), "network",
			types.MergePatchType, []byte(note), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		text, err := r.Ask("api/v1/dead-letters")
		if err != nil {
			return false, err.Error()
		}
		return strings.Contains(string(text), "/networknamespaces/network") && strings.Contains(string(text), "no/"+name+"\""), string(text)
	})
}

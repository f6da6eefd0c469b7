package knative

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// authenticate enables authentication-oidc in Knative, and the verification of deliveries in the stack, and waits until both have the identities.
func (r *env) authenticate() {
	r.t.Helper()
	r.kubectl("", "patch", "configmap", "config-features", "--namespace", "knative-eventing", "--type", "merge", "--patch", `{"data":{"authentication-oidc":"enabled"}}`)
	r.kubectl("", "patch", "configmap", "vitistack-config", "--namespace", namespace, "--type", "merge", "--patch", `{"data":{"OIDC_ENABLED":"true"}}`)
	for _, kind := range topology[:len(topology)-1] { // Knative Services have no tokens
		feed.Until(r.t, kind.Resource+" have an identity", func() (bool, string) {
			for _, object := range r.List(kind, namespace, "") {
				account, _, _ := unstructured.NestedString(object.Object, "status", "auth", "serviceAccountName")
				address, _, _ := unstructured.NestedString(object.Object, "status", "address", "audience")
				if account == "" && address == "" || conditionOf(&object, "Ready") != "True" {
					return false, fmt.Sprintf("%s: %v", object.GetName(), object.Object["status"])
				}
			}
			return true, ""
		})
	}
	for _, name := range []string{"resync", "provision-network", "allocate-ip", "kea-reserve"} {
		feed.Until(r.t, name+" has a token for the Broker", func() (bool, string) {
			text := fmt.Sprint(r.Get(functions, namespace, name).Object["spec"])
			return strings.Contains(text, "mountPath:/oidc"), text
		})
	}
	r.restartPrograms()
}

// checkTriggerTokens checks the audience and the ServiceAccount of the tokens of each Trigger of the stack against the configuration of its function.
func (r *env) checkTriggerTokens(t *testing.T) {
	for _, trigger := range r.List(triggers, namespace, "") {
		audience, _, _ := unstructured.NestedString(trigger.Object, "status", "subscriberAudience")
		account, _, _ := unstructured.NestedString(trigger.Object, "status", "auth", "serviceAccountName")
		function := r.Get(functions, namespace, trigger.GetName())
		if function == nil {
			continue // it belongs to the gateway, the simulated IPAM, or this test
		}
		env := fmt.Sprint(function.Object["spec"])
		for _, want := range []string{"value:" + audience + "]", "value:system:serviceaccount:" + namespace + ":" + account + "]"} {
			if audience == "" || !strings.Contains(env, want) {
				t.Errorf("Knative sends to %s as %s for %q, which the function does not expect: %s", trigger.GetName(), account, audience, env)
			}
		}
	}
}

// checkAuthenticatedCluster creates a cluster while each delivery and each event is authenticated.
func (r *env) checkAuthenticatedCluster(t *testing.T) {
	r.Apply("default", strings.ReplaceAll(r.Example("simple-kubernetescluster.yaml"), "simple-cluster", "proven-cluster"))
	r.UntilPhase(engine.KubernetesClusters, "default", "proven-cluster", "Running")
	logs, err := filepath.Glob(filepath.Join(r.Dir, "logs", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("find the logs: %v", err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(text, []byte("not authenticated")); i >= 0 {
			t.Errorf("%s refused a delivery: %s", filepath.Base(path), text[i:min(len(text), i+400)])
		}
	}
	for name, url := range r.urls {
		if name != namespace+"/create-vm" && name != namespace+"/gateway-events" {
			continue
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/events", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answers a request without a token with %s, want 401", name, res.Status)
		}
	}
}

package attack

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestForgedDeliveries has a pod deliver events in the place of the Broker, in a cluster that enforces no network policy. Deliveries of Triggers are
// accepted, so that a cluster becomes Running at the same time.
func TestForgedDeliveries(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--oidc")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", e.Example("simple-kubernetescluster.yaml"))
	e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "Running")
	text, err := os.ReadFile(filepath.Join(e.Dir, "engine.json"))
	if err != nil {
		t.Fatal(err)
	}
	var summary struct{ Functions, Services map[string]string }
	if err := json.Unmarshal(text, &summary); err != nil {
		t.Fatal(err)
	}
	function, gateway := summary.Functions["create-vm"], summary.Services[platform+"/gateway-events"]
	const trigger = "create-vm-oidc-eventing.knative.dev-trigger"
	token := func(account, audience string) string { return "Bearer " + issue(t, e.Client, account, audience) }
	for name, tc := range map[string]struct{ reason, url, authorization, says string }{
		"NoToken":               {"a pod without any token", function, "", "authentication-oidc"},
		"APIServerToken":        {"a pod with a token for the API server", function, token("resync", ""), "the audience"},
		"ForwardedToken":        {"a function that forwards the token of its own delivery", function, token("allocate-ip-oidc-eventing.knative.dev-trigger", platform+"/allocate-ip"), "the audience"},
		"OtherServiceAccount":   {"a ServiceAccount of the namespace that belongs to no Trigger", function, token("create-vm", platform+"/create-vm"), "OIDC_SUBJECTS"},
		"GatewayNoToken":        {"a pod without any token", gateway + "/events", "", "authentication-oidc"},
		"DeadLetter":            {"a pod that sends a dead letter", gateway + "/dead-letters", "", "authentication-oidc"},
		"GatewayForwardedToken": {"a function that forwards the token of its own delivery", gateway + "/events", token(trigger, platform+"/create-vm"), "the audience"},
	} {
		status, answer := deliver(t, tc.url, "forged-"+name, tc.authorization)
		if status != http.StatusUnauthorized || !strings.Contains(answer, tc.says) {
			t.Errorf("%s: %d %s, want 401 with %s: %s", name, status, answer, tc.says, tc.reason)
		}
	}
	if status, answer := deliver(t, function, "delivered", token(trigger, platform+"/create-vm")); status != http.StatusAccepted {
		t.Errorf("the Trigger's own token: %d %s", status, answer)
	}
	var log []byte
	feed.Until(t, "create-vm logs the delivery of its Trigger", func() (bool, string) {
		log, err = os.ReadFile(filepath.Join(e.Dir, "logs", "create-vm.log"))
		return err == nil && bytes.Contains(log, []byte(`"eventId":"delivered"`)), string(log)
	})
	if bytes.Contains(log, []byte(`"eventId":"forged-`)) || bytes.Contains(log, []byte("eyJ")) {
		t.Errorf("create-vm has handled a forged event, or has logged a token:\n%s", log)
	}
}

// TestDeliveriesWithoutTokens has Knative send no tokens while functions require them. The answers name the setting.
func TestDeliveriesWithoutTokens(t *testing.T) {
	t.Parallel()
	e := engine.Start(t, "--config", "OIDC_ENABLED=true")
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	feed.Until(t, "provision-network rejects a delivery", func() (bool, string) {
		log, err := os.ReadFile(filepath.Join(e.Dir, "logs", "provision-network.log"))
		return err == nil && bytes.Contains(log, []byte("set authentication-oidc to enabled in Knative's ConfigMap config-features")), string(log)
	})
	phase, _, _ := unstructured.NestedString(e.Get(engine.NetworkNamespaces, "default", "network").Object, "status", "phase")
	if phase != "" {
		t.Errorf("the network is %s after a delivery without a token", phase)
	}
}

// issue returns a token of a ServiceAccount of the stack for an audience, or for the API server
// itself.
func issue(t *testing.T, admin dynamic.Interface, account, audience string) string {
	t.Helper()
	request := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}}
	if audience != "" {
		request.Object["spec"] = map[string]any{"audiences": []any{audience}}
	}
	request.SetName(account)
	answer, err := admin.Resource(serviceAccounts).Namespace(platform).Create(t.Context(), request, metav1.CreateOptions{}, "token")
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := unstructured.NestedString(answer.Object, "status", "token")
	if err != nil || token == "" {
		t.Fatalf("the API server issues no token for %s: %v", account, err)
	}
	return token
}

// deliver posts an event about a Machine as the Broker does.
func deliver(t *testing.T, url, id, authorization string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Type": {events.TypeRefUpdate}, "Ce-Source": {"https://kubernetes"}, "Ce-Id": {id}, "Content-Type": {"application/json"},
		"Ce-Apiversion": {"vitistack.io/v1alpha1"}, "Ce-Kind": {"Machine"}, "Ce-Namespace": {"default"}, "Ce-Name": {"no-such-machine"},
		"Ce-Subject": {"/apis/vitistack.io/v1alpha1/namespaces/default/machines/no-such-machine"},
	}
	if authorization != "" {
		req.Header.Set("Authorization", authorization)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

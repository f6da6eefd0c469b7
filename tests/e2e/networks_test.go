package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/events/standardwebhooks"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestNetworkOfEachKind creates networks from a slow manager, from NetBox, and from IPAMs that answer
// events: in a reply, and through the gateway.
func TestNetworkOfEachKind(t *testing.T) {
	t.Parallel()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()+rand.Text()))
	e := engine.Start(t, "--config", "INGEST_SECRETS="+secret, "--config", "RESYNC_PERIOD=5s")
	e.Apply("default", e.Example("tour-networks.yaml"))
	e.Apply("default", `apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: corp}
spec: {datacenterIdentifier: no-west-az1, networkProvisioning: {provider: corp-ipam}}
`)
	uid := string(e.UntilPhase(engine.NetworkNamespaces, "default", "corp", "Pending").GetUID())
	if code, body := answer(t, e, secret, `{"uid":"`+uid+`","ipv4Prefix":"10.9.0.0"}`); code != http.StatusUnprocessableEntity && code != http.StatusBadRequest {
		t.Errorf("the gateway must reject an invalid prefix: %d %s", code, body)
	}
	if code, body := answer(t, e, secret, `{"uid":"`+uid+`","provider":"corp-ipam","id":"seg-1","ipv4Prefix":"10.9.0.0/24","ipv4Gateway":"10.9.0.1","vlanId":9}`); code != http.StatusAccepted {
		t.Fatalf("the gateway rejects an answer: %d %s", code, body)
	}
	networks := map[string]string{"default": "corp", "tour-ipam": "external", "tour-netbox": "documented", "tour-nam": "automated"}
	for namespace, name := range networks {
		nn := e.UntilPhase(engine.NetworkNamespaces, namespace, name, "Ready")
		for _, field := range []string{"ipv4Prefix", "ipv4Gateway", "namespaceId"} {
			if text, _, _ := unstructured.NestedString(nn.Object, "status", field); text == "" {
				t.Errorf("%s %s has no %s", namespace, name, field)
			}
		}
		if vlan, _, _ := unstructured.NestedInt64(nn.Object, "status", "vlanId"); vlan == 0 {
			t.Errorf("%s %s has no VLAN", namespace, name)
		}
	}
	for namespace, name := range networks {
		e.Delete(engine.NetworkNamespaces, namespace, name)
	}
	feed.Until(t, "all networks are released", func() (bool, string) {
		left := e.List(engine.NetworkNamespaces, "", "")
		return len(left) == 0, fmt.Sprint(len(left), " are left")
	})
}

// answer sends an IPAM's answer to the gateway, with a signature of Standard Webhooks.
func answer(t *testing.T, e *engine.Engine, key, data string) (int, string) {
	t.Helper()
	secret, err := standardwebhooks.ParseSecret(key)
	if err != nil {
		t.Fatal(err)
	}
	id, now := uuid.NewString(), time.Now()
	body := `{"specversion":"1.0","type":"io.vitistack.network.provisioned","source":"/ipam/corp","id":"` + id + `","datacontenttype":"application/json","data":` + data + `}`
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, strings.TrimSuffix(e.Gateway(), "/")+"/api/v1/events", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/cloudevents+json")
	req.Header.Set(standardwebhooks.HeaderID, id)
	req.Header.Set(standardwebhooks.HeaderTimestamp, fmt.Sprint(now.Unix()))
	req.Header.Set(standardwebhooks.HeaderSignature, secret.Sign(id, now, []byte(body)))
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	said, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(said)
}

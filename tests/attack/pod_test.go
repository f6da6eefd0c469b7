package attack

import (
	"strings"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestForgedDecisions has a pod that reaches the Broker, as every pod of a cluster can, approve a cluster and provide a network.
func TestForgedDecisions(t *testing.T) {
	t.Parallel()
	e := engine.Start(t)
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", strings.Replace(e.Example("simple-kubernetescluster.yaml"), "spec:\n", "spec:\n  approval: {policy: growth}\n", 1))
	e.CreateNamespace("team")
	e.Apply("team", "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: corp}\nspec: {datacenterIdentifier: no-west-az1, networkProvisioning: {provider: corp-ipam}}\n")
	cluster := e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "PendingApproval")
	network := e.UntilPhase(engine.NetworkNamespaces, "team", "corp", "Pending")
	forged := map[string]event.Event{
		"forged-approval": forge(t, "forged-approval", events.TypeWorkorderApproved, map[string]any{"uid": cluster.GetUID(), "generation": cluster.GetGeneration(), "by": "attacker"}),
		"forged-network":  forge(t, "forged-network", events.TypeNetworkProvisioned, map[string]any{"uid": network.GetUID(), "provider": "corp-ipam", "id": "x", "ipv4Prefix": "10.66.0.0/24", "ipv4Gateway": "10.66.0.1", "vlanId": 66}),
	}
	for id, in := range forged {
		e.Send(in)
		feed.Until(t, id+" is dead-lettered", func() (bool, string) {
			text, err := e.Ask("api/v1/dead-letters")
			return err == nil && strings.Contains(string(text), id), string(text)
		})
	}
	if phase, _, _ := unstructured.NestedString(e.Get(engine.KubernetesClusters, "default", "simple-cluster").Object, "status", "phase"); phase != "PendingApproval" {
		t.Errorf("the cluster is %s: an unauthenticated sender can approve it", phase)
	}
	if prefix, _, _ := unstructured.NestedString(e.Get(engine.NetworkNamespaces, "team", "corp").Object, "status", "ipv4Prefix"); prefix != "" {
		t.Errorf("the network has %s: an unauthenticated sender can provide it", prefix)
	}
}

func forge(t *testing.T, id, kind string, data any) event.Event {
	t.Helper()
	e := event.New()
	e.SetID(id)
	e.SetSource("/tickets")
	e.SetType(kind)
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		t.Fatal(err)
	}
	return e
}

package attack

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"

	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

// hook is a ticketing system and an IPAM that receive webhooks.
type hook struct {
	*httptest.Server
	mu       sync.Mutex
	received []event.Event
}

func newHook(t *testing.T) *hook {
	t.Helper()
	h := &hook{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e event.Event
		if err := json.Unmarshal(body, &e); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.received = append(h.received, e)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(h.Close)
	return h
}

// find returns the data of the last webhook of a type, or nothing.
func (h *hook) find(eventType string) (data string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.received {
		if e.Type() == eventType {
			data = string(e.Data())
		}
	}
	return data
}

// TestForgedRequests has a pod that reaches the Broker send what functions request of ticketing systems and IPAMs, with the ids of the
// next genuine requests. The gateway delivers the genuine ones only.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	h := newHook(t)
	e := engine.Start(t, "--config", "HANDLERS_WEBHOOK_ENABLED=true",
		"--config", fmt.Sprintf(`HANDLERS_WEBHOOK_ENDPOINTS=[{"name":"others","url":%q,"types":["io.vitistack.*"]}]`, h.URL))
	e.Apply("default", e.StaticNetwork("network", 10, 250))
	e.Apply("default", strings.Replace(e.Example("simple-kubernetescluster.yaml"), "spec:\n", "spec:\n  approval: {policy: growth}\n", 1))
	e.CreateNamespace("team")
	e.Apply("team", "apiVersion: vitistack.io/v1alpha2\nkind: NetworkNamespace\nmetadata: {name: corp}\nspec: {datacenterIdentifier: no-west-az1, networkProvisioning: {provider: corp-ipam}}\n")
	cluster := e.UntilPhase(engine.KubernetesClusters, "default", "simple-cluster", "PendingApproval")
	network := e.UntilPhase(engine.NetworkNamespaces, "team", "corp", "Pending")
	for _, genuine := range []string{events.TypeWorkorderRequested, events.TypeNetworkRequested} {
		feed.Until(t, "a webhook of "+genuine, func() (bool, string) { return h.find(genuine) != "", "none" })
	}
	shown := h.find(events.TypeWorkorderRequested)
	object := events.Object{UID: string(network.GetUID()), Namespace: "team", Name: "corp"}
	var workorder events.WorkorderRequested
	if err := json.Unmarshal([]byte(shown), &workorder); err != nil {
		t.Fatal(err)
	}
	workorder.Workers = 1
	release := object.UID + ".released.corp-ipam." + fmt.Sprint(network.GetGeneration()+1)
	for id, in := range map[string]event.Event{
		string(cluster.GetUID()) + fmt.Sprintf(".workorder.%d.9999999960", workorder.Generation): forge(t, "", events.TypeWorkorderRequested, workorder),
		object.UID + ".requested.1.9999999990":                                                   forge(t, "", events.TypeNetworkRequested, events.NetworkRequested{Object: object, Provider: "corp-ipam", Parameters: map[string]string{"size": "8"}}),
		release:                                                                                  forge(t, "", events.TypeNetworkReleased, events.NetworkReleased{Object: object, Provider: "corp-ipam"}),
	} {
		in.SetID(id)
		in.SetSource("/functions/provision-network")
		in.SetSubject("/apis/vitistack.io/v1alpha2/namespaces/team/networknamespaces/corp")
		if in.Type() == events.TypeWorkorderRequested {
			in.SetSource("/functions/bootstrap-talos")
			in.SetSubject("/apis/vitistack.io/v1alpha1/namespaces/default/kubernetesclusters/simple-cluster")
		}
		e.Send(in)
		feed.Until(t, id+" is dead-lettered", func() (bool, string) {
			text, err := e.Ask("api/v1/dead-letters")
			return err == nil && strings.Contains(string(text), id), string(text)
		})
	}
	if got := h.find(events.TypeWorkorderRequested); got != shown {
		t.Errorf("the ticketing system was shown %s, and then the forged %s", shown, got)
	}
	if got := h.find(events.TypeNetworkRequested) + h.find(events.TypeNetworkReleased); strings.Contains(got, "size") || h.find(events.TypeNetworkReleased) != "" {
		t.Errorf("the IPAM got a forged request: %s", got)
	}
	e.Delete(engine.NetworkNamespaces, "team", "corp")
	feed.Until(t, "the genuine release", func() (bool, string) {
		return strings.Contains(h.find(events.TypeNetworkReleased), object.UID), "the webhook of the release did not come"
	})
}

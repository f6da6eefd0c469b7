package app

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
)

// signed returns an event with the signature of the gateway.
func (s *env) signed(body string) string {
	s.t.Helper()
	var e event.Event
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		s.t.Fatal(err)
	}
	if err := s.app.signer.Sign(s.t.Context(), &e); err != nil {
		s.t.Fatal(err)
	}
	signature := base64.StdEncoding.EncodeToString(e.Extensions()[dsse.Extension].([]byte))
	return strings.Replace(body, `{`, `{"`+dsse.Extension+`":"`+signature+`",`, 1)
}

// webhookOf starts the receiver of a webhook, and returns what it has received.
func webhookOf(t *testing.T) (url string, received func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var e event.Event
		_ = json.Unmarshal(body, &e)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, e.ID()+" "+string(e.Data()))
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// requestOf returns a request of a function in structured mode.
func requestOf(t *testing.T, eventType, source, subject, id string, data any) string {
	t.Helper()
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/functions/" + source)
	e.SetSubject(subject)
	e.SetID(id)
	if err := e.SetData(event.ApplicationJSON, data); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const (
	shopPath = "/apis/vitistack.io/v1alpha1/namespaces/team-a/kubernetesclusters/shop"
	netPath  = "/apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/net"
)

// TestForgedRequests has the Broker deliver requests to external systems that no function has sent. The receivers of webhooks get the
// genuine requests with the same ids only.
func TestForgedRequests(t *testing.T) {
	t.Parallel()
	url, received := webhookOf(t)
	s := start(t, "--handlers.webhook.enabled=true", fmt.Sprintf(`--handlers.webhook.endpoints=[{"name":"hook","url":%q,"types":["io.vitistack.*"]}]`, url))
	shop := aCluster("team-a", "shop", "PendingApproval")
	shop.Status.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalRequested, Generation: 1, Workorder: "WO-1", Requested: []v1alpha1.ApprovedPool{{Name: v1alpha1.ControlPlanePool, Replicas: 1}, {Name: "w", Replicas: 100}}}
	s.api.Put(t, "kubernetesclusters", shop)
	net := aNetwork("team-a", "net")
	net.Annotations = map[string]string{v1alpha1.AnnotationProvider: "acme"}
	net.Spec.NetworkProvisioning = &v1alpha2.NetworkProvisioning{Provider: "acme"}
	s.api.Put(t, "networknamespaces", net)
	eventually(t, "the network", func() bool { return s.get("/api/v1/networks").Header.Get("X-Total-Count") == "1" })
	deliver := func(body string, want int) {
		t.Helper()
		if r := s.do(http.MethodPost, "/events", body, "Content-Type", structured); r.StatusCode != want {
			t.Errorf("%s: %s %s, want %d", body, r.Status, r.body, want)
		}
	}
	workorder := events.WorkorderRequested{
		Object: events.Object{UID: "uid-shop", Namespace: "team-a", Name: "shop"}, Workorder: "WO-1", Generation: 1, ClusterID: "shop", Version: "1.33", ControlPlanes: 1, Workers: 2,
	}
	object := events.Object{UID: "uid-net", Namespace: "team-a", Name: "net"}
	requested := events.NetworkRequested{Object: object, Provider: "acme", Parameters: map[string]string{"size": "8"}}
	released := events.NetworkReleased{Object: object, Provider: "acme"}
	send := func(want int) {
		t.Helper()
		deliver(requestOf(t, events.TypeWorkorderRequested, "bootstrap-talos", shopPath, "uid-shop.workorder.1.60", workorder), want)
		deliver(requestOf(t, events.TypeNetworkRequested, "provision-network", netPath, "uid-net.requested.1.30", requested), want)
		deliver(requestOf(t, events.TypeNetworkReleased, "provision-network", netPath, "uid-net.released.acme.2", released), want)
	}
	send(http.StatusUnprocessableEntity)
	deliver(`{"specversion":"1.0","id":"uid-shop.workorder.1.60.answer","type":"io.vitistack.workorder.approved","source":"/ticketing","subject":"`+shopPath+`","data":{"uid":"uid-shop","generation":1,"by":"me"}}`, http.StatusUnprocessableEntity)
	deliver(requestOf(t, "io.vitistack.network.other", "provision-network", netPath, "uid-net.released.acme.2", released), http.StatusAccepted)
	if r := s.get("/api/v1/events"); r.Header.Get("X-Total-Count") != "0" {
		t.Errorf("the history has forged events: %s", r.body)
	}
	s.api.FailResource("networknamespaces", http.StatusInternalServerError)
	body := requestOf(t, events.TypeNetworkReleased, "provision-network", netPath, "uid-net.released.acme.2", released)
	if r := s.do(http.MethodPost, "/events", body, "Content-Type", structured); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" {
		t.Errorf("while the API server does not answer: %s %s", r.Status, r.body)
	}
	s.api.FailResource("networknamespaces", 0)

	workorder.Workers, requested.Parameters = 100, nil
	deliver(requestOf(t, events.TypeWorkorderRequested, "bootstrap-talos", shopPath, "uid-shop.workorder.1.60", workorder), http.StatusAccepted)
	deliver(requestOf(t, events.TypeNetworkRequested, "provision-network", netPath, "uid-net.requested.1.30", requested), http.StatusAccepted)
	s.api.Delete("networknamespaces", "team-a", "net")
	deliver(body, http.StatusAccepted)
	eventually(t, "three webhooks", func() bool { return len(received()) >= 3 })
	got := received()
	slices.Sort(got)
	want := []string{
		`uid-net.released.acme.2 {"uid":"uid-net","namespace":"team-a","name":"net","provider":"acme"}`,
		`uid-net.requested.1.30 {"uid":"uid-net","namespace":"team-a","name":"net","provider":"acme"}`,
		`uid-shop.workorder.1.60 {"uid":"uid-shop","namespace":"team-a","name":"shop","workorder":"WO-1","generation":1,"clusterId":"shop","version":"1.33","controlPlanes":1,"workers":100}`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}

// TestLostAnswer has the Broker give up an answer that the gateway has accepted. The sender can send it again, and no one else's dead
// letter makes an accepted answer new.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	key, line := keyLine(t, "ticketing", "events")
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	send := func(id string) reply {
		t.Helper()
		return s.do(http.MethodPost, "/api/v1/events", approved(id, `{"uid":"u","generation":1,"by":"me"}`), "Content-Type", structured, "Authorization", "Bearer "+key)
	}
	for _, id := range []string{"lost", "kept"} {
		if r := send(id); r.object(t)["accepted"] != 1.0 {
			t.Fatalf("%s: %s", r.Status, r.body)
		}
	}
	if r := s.do(http.MethodPost, "/dead-letters?destination=bootstrap-talos", s.signed(approved("lost", `{"uid":"u","generation":1,"by":"me"}`)), "Content-Type", structured); r.StatusCode != http.StatusAccepted {
		t.Fatalf("dead letter: %s %s", r.Status, r.body)
	}
	if r := send("lost"); r.object(t)["accepted"] != 1.0 {
		t.Errorf("the answer that the Broker gave up, again: %s %s", r.Status, r.body)
	}
	if r := send("kept"); r.object(t)["duplicates"] != 1.0 {
		t.Errorf("an answer that was delivered, again: %s %s", r.Status, r.body)
	}
	if diff := cmp.Diff([]string{"lost", "kept", "lost"}, b.ids()); diff != "" {
		t.Errorf("at the broker (-want +got):\n%s", diff)
	}
}

// TestIDsOfOthers has a sender use the sources of the stack, and the id and source of another sender.
func TestIDsOfOthers(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	key, line := keyLine(t, "ticketing", "events")
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	send := func(body string) reply {
		t.Helper()
		return s.do(http.MethodPost, "/api/v1/events", body, "Content-Type", structured, "Authorization", "Bearer "+key)
	}
	event := approved("u.workorder.2", `{"uid":"u","generation":1,"by":"me"}`)
	for _, source := range []string{"/gateway", "/gateway/dead-letters", "/functions/bootstrap-talos", "/Functions/bootstrap-talos", "/gateway/", "/apis/v1/namespaces/vitistack-system/pingsources/heartbeat"} {
		r := send(strings.Replace(event, "/ticketing/corp", source, 1))
		if r.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(r.body), "is a source of the stack: write one of your own system") {
			t.Errorf("source %s: %s %s", source, r.Status, r.body)
		}
	}
	if r := send(event); r.StatusCode != http.StatusAccepted {
		t.Fatalf("%s %s", r.Status, r.body)
	}
	for reason, body := range map[string]string{
		"another subject": strings.Replace(event, "/kubernetesclusters/shop", "/kubernetesclusters/secret", 1),
		"another type":    strings.NewReplacer("workorder.approved", "workorder.rejected", `"by":"me"`, `"by":"me","reason":"no"`).Replace(event),
	} {
		r := send(body)
		if r.StatusCode != http.StatusConflict || !strings.Contains(string(r.body), "with another id, or with a source that no other system has") || strings.Contains(string(r.body), "kubernetesclusters") {
			t.Errorf("%s: %s %s", reason, r.Status, r.body)
		}
	}
	if r := send(event); r.object(t)["duplicates"] != 1.0 {
		t.Errorf("the same again: %s %s", r.Status, r.body)
	}
	if diff := cmp.Diff([]string{"u.workorder.2"}, b.ids()); diff != "" {
		t.Errorf("at the broker (-want +got):\n%s", diff)
	}
}

// TestResendRequests sends dead letters of requests to external systems again, whose destination is the subscriber of a Trigger.
func TestResendRequests(t *testing.T) {
	t.Parallel()
	key, line := keyLine(t, "operator", "read+write")
	b := newBroker(t)
	s := start(t, "--broker.sink="+b.URL, "--auth.keys="+line)
	as := []string{"Authorization", "Bearer " + key}
	for eventType, path := range map[string]string{
		events.TypeNetworkReleased: netPath, events.TypeNetworkRequested: netPath, events.TypeWorkorderRequested: shopPath,
	} {
		headers := []string{"Ce-Specversion", "1.0", "Ce-Id", "id-" + eventType, "Ce-Source", "/functions/f", "Ce-Type", eventType, "Ce-Subject", path, "Content-Type", "application/json", "Ce-Knativeerrordest", "http://acme-ipam.acme.svc"}
		data := `{"uid":"u","namespace":"team-a","name":"net","provider":"acme"}`
		if r := s.do(http.MethodPost, "/dead-letters", data, headers...); r.StatusCode != http.StatusAccepted {
			t.Fatalf("dead letter: %s %s", r.Status, r.body)
		}
		letters := s.get("/api/v1/dead-letters?type="+eventType, as...).object(t)["deadLetters"].([]any)
		one := fmt.Sprintf("/api/v1/dead-letters/%v/resend", letters[0].(map[string]any)["sequence"])
		if r := s.do(http.MethodPost, one, "", as...); r.StatusCode != http.StatusNoContent {
			t.Errorf("%s: %s %s", eventType, r.Status, r.body)
			continue
		}
		eventually(t, "the event at the Broker", func() bool { return slices.Contains(b.ids(), "id-"+eventType) })
		b.mu.Lock()
		e := b.events[len(b.events)-1]
		b.mu.Unlock()
		if e.Type() != eventType || e.Source() != "/functions/f" || e.Subject() != path || e.Extensions()["provider"] != "acme" || e.Extensions()["partitionkey"] != "u" || string(e.Data()) != data {
			t.Errorf("the Broker got %s", e)
		}
	}
}

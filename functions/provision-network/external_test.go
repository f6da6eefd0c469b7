package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/dsse"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// deliverAnswer delivers an answer of an external IPAM.
func (w *env) deliverAnswer(eventType string, data any) error {
	w.t.Helper()
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/ipam")
	e.SetID("7")
	w.must(e.SetData(event.ApplicationJSON, data))
	w.server.Sign(w.t, &e)
	_, err := w.f.handle(w.t.Context(), e)
	return err
}

func TestExternal(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := asks("corp-ipam")
	spec.NetworkProvisioning.Parameters = map[string]string{"size": "24"}
	nn := w.network("net", spec)
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
	var asked events.NetworkRequested
	w.must(json.Unmarshal(w.sent.Events()[0].Data(), &asked))
	want := events.NetworkRequested{Object: events.Object{UID: string(nn.UID), Namespace: nn.Namespace, Name: nn.Name}, Provider: "corp-ipam", DatacenterIdentifier: w.namespace, Parameters: map[string]string{"size": "24"}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	w.reconcile("net")
	if n := len(w.sentTypes()); n != 1 {
		t.Errorf("a pending request must not be repeated at once: %d events", n)
	}
	w.clock.Pass(time.Minute)
	w.reconcile("net")
	if first, again := w.sent.Events()[0], w.sent.Events()[1]; first.ID() == again.ID() {
		t.Errorf("a repeated request has the same ID %s: the gateway accepts one answer to it, which may be lost", first.ID())
	}

	w.must(w.deliverAnswer(events.TypeNetworkFailed, events.NetworkFailed{UID: string(nn.UID), Reason: "NoFreePrefix", Message: "ask for a smaller one"}))
	if message := w.expect(w.get("net"), "Error", "NoFreePrefix"); !strings.Contains(message, "smaller") {
		t.Errorf("message %s", message)
	}
	good := events.NetworkProvisioned{UID: string(nn.UID), ID: "seg-1", IPv4Prefix: "10.20.30.0/24", IPv4Gateway: "10.20.30.1", VLANID: 230}
	for reason, change := range map[string]func(*events.NetworkProvisioned){
		"the gateway is outside":   func(p *events.NetworkProvisioned) { p.IPv4Gateway = "10.20.31.1" },
		"the prefix has host bits": func(p *events.NetworkProvisioned) { p.IPv4Prefix = "10.20.30.9/24" },
	} {
		bad := good
		change(&bad)
		w.must(w.deliverAnswer(events.TypeNetworkProvisioned, bad))
		_, got, message := ready(w.get("net"))
		if got != "SourceUnexpectedAnswer" {
			t.Errorf("%s: got %s %s", reason, got, message)
		}
	}
	foreign := good
	foreign.Provider = "another"
	if err := w.deliverAnswer(events.TypeNetworkProvisioned, foreign); !events.IsPermanent(err) {
		t.Errorf("the answer of another IPAM: got %v", err)
	}
	for range 2 {
		w.must(w.deliverAnswer(events.TypeNetworkProvisioned, good))
	}
	got := w.get("net")
	w.expect(got, "Ready", reasonProvisioned)
	if s := got.Status; s.NamespaceID != "seg-1" || s.IPv4Gateway != "10.20.30.1" || s.VLANID != 230 {
		t.Errorf("status %+v", s)
	}
	w.must(w.deliverAnswer(events.TypeNetworkFailed, events.NetworkFailed{UID: string(nn.UID), Reason: "Late"}))
	w.expect(w.get("net"), "Ready", reasonProvisioned)

	w.delete(got)
	if w.reconcile("net") != nil {
		t.Fatal("the network must be deleted")
	}
	last := w.sent.Events()[len(w.sent.Events())-1]
	var released events.NetworkReleased
	w.must(json.Unmarshal(last.Data(), &released))
	if last.Type() != events.TypeNetworkReleased || released.ID != "seg-1" || released.UID != string(nn.UID) {
		t.Errorf("sent %s %+v", last.Type(), released)
	}
	w.must(w.deliverAnswer(events.TypeNetworkProvisioned, good))
}

// TestUnusableAnswer has an IPAM provide a segment that the network cannot have because of its spec. The event of the status write does not request
// the segment again, so that the condition stays.
func TestUnusableAnswer(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := asks("corp-ipam")
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{VLANID: 4000}}
	nn := w.network("net", spec)
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
	w.must(w.deliverAnswer(events.TypeNetworkProvisioned, events.NetworkProvisioned{UID: string(nn.UID), ID: "seg-1", IPv4Prefix: "10.20.30.0/24", IPv4Gateway: "10.20.30.1", VLANID: 230}))
	w.expect(w.get("net"), "Error", "InvalidSpec")
	requests := len(w.sentTypes())
	w.expect(w.reconcile("net"), "Error", "InvalidSpec")
	if sent := w.sentTypes(); len(sent) != requests {
		t.Errorf("the IPAM is asked again: %v", sent)
	}
	w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.VLANID = 0 })
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
}

// TestAnswerTooLate has an IPAM create a segment after its network was deleted.
func TestAnswerTooLate(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	good := events.NetworkProvisioned{UID: "0f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d10", Provider: "corp-ipam", ID: "seg-1", IPv4Prefix: "10.20.30.0/24"}
	failed := events.NetworkFailed{UID: good.UID, Provider: good.Provider, Reason: "Full", Message: "no room"}
	const subject = "/apis/vitistack.io/v1alpha2/namespaces/team-a/networknamespaces/prod"
	cases := map[string]struct {
		reason, eventType, subject string
		data                       any
		released                   bool
	}{
		"Segment":      {"no other event releases the segment", events.TypeNetworkProvisioned, subject, good, true},
		"Failed":       {"there is no segment to release", events.TypeNetworkFailed, subject, failed, false},
		"NoProvider":   {"without a provider there is no recipient", events.TypeNetworkProvisioned, subject, events.NetworkProvisioned{UID: good.UID, IPv4Prefix: good.IPv4Prefix}, false},
		"NoUID":        {"the answer has no UID of a network", events.TypeNetworkProvisioned, "", good, false},
		"OtherSubject": {"its subject is no network", events.TypeNetworkProvisioned, "/ipam/segments/1", good, false},
	}
	for name, tc := range cases {
		var ids []string
		for range 2 {
			e := event.New()
			e.SetType(tc.eventType)
			e.SetSource("/ipam")
			e.SetID("7")
			e.SetSubject(tc.subject)
			w.must(e.SetData(event.ApplicationJSON, tc.data))
			w.server.Sign(t, &e)
			reply, err := w.f.handle(t.Context(), e)
			w.must(err)
			if (reply != nil) != tc.released {
				t.Fatalf("%s: %s: got %v", name, tc.reason, reply)
			}
			if reply == nil {
				continue
			}
			w.must(reply.Validate())
			ids = append(ids, reply.ID())
			var got events.NetworkReleased
			w.must(json.Unmarshal(reply.Data(), &got))
			want := events.NetworkReleased{
				Object:   events.Object{UID: good.UID, Namespace: "team-a", Name: "prod"},
				Provider: good.Provider, // the sender may have named the segment of another network
			}
			if diff := cmp.Diff(want, got); diff != "" || reply.Type() != events.TypeNetworkReleased || reply.Extensions()["provider"] != good.Provider {
				t.Errorf("%s: %v (-want +got):\n%s", name, reply, diff)
			}
		}
		if tc.released && (ids[0] != ids[1] || !strings.HasPrefix(ids[0], good.UID+".released."+good.Provider+".")) {
			t.Errorf("%s: IDs %v: a repeated answer causes the same event, which differs from the one sent at the deletion", name, ids)
		}
	}
}

// TestAnswerAfterChange has an IPAM answer after the spec names another provider, and before the event
// of that change is delivered.
func TestAnswerAfterChange(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	nn := w.network("net", asks("corp-ipam"))
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = manualSpec("10.41.0.0/24", "", 41).NetworkProvisioning
	})
	w.must(w.deliverAnswer(events.TypeNetworkProvisioned, events.NetworkProvisioned{UID: string(nn.UID), Provider: "corp-ipam", ID: "seg-1", IPv4Prefix: "10.40.0.0/24", VLANID: 40}))
	got := w.get("net")
	if w.expect(got, "Ready", reasonProvisioned); got.Status.IPv4Prefix != "10.41.0.0/24" {
		t.Errorf("got %s, want the segment in the spec", got.Status.IPv4Prefix)
	}
	if types := w.sentTypes(); types[len(types)-1] != events.TypeNetworkReleased {
		t.Errorf("sent %v, want the segment of the IPAM to be released", types)
	}
}

// TestReleasesDiffer releases the segments of two IPAMs that served one network after the other. A receiver takes an ID once.
func TestReleasesDiffer(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.network("net", asks("first-ipam"))
	w.reconcile("net")
	w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.NetworkProvisioning.Provider = "second-ipam" })
	w.reconcile("net")
	w.delete(w.get("net"))
	w.reconcile("net")
	ids := map[string]string{}
	for _, e := range w.sent.Events() {
		if e.Type() == events.TypeNetworkReleased {
			ids[e.ID()], _ = e.Extensions()["provider"].(string)
		}
	}
	if len(ids) != 2 {
		t.Errorf("the releases are %v, want one of each IPAM with an ID of its own", ids)
	}
}

// TestForgedAnswer sends answers as any pod can that reaches the Broker or the function.
func TestForgedAnswer(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	nn := w.network("net", asks("corp-ipam"))
	w.reconcile("net")
	e := event.New()
	e.SetType(events.TypeNetworkProvisioned)
	e.SetSource("/ipam")
	e.SetID("7")
	w.must(e.SetData(event.ApplicationJSON, events.NetworkProvisioned{UID: string(nn.UID), ID: "seg-1", IPv4Prefix: "10.66.0.0/24", IPv4Gateway: "10.66.0.1", VLANID: 66}))
	elsewhere := e.Clone()
	key, err := dsse.NewKey()
	w.must(err)
	w.must(dsse.Sign(&elsewhere, key))
	changed := e.Clone()
	w.server.Sign(t, &changed)
	w.must(changed.SetData(event.ApplicationJSON, events.NetworkProvisioned{UID: string(nn.UID), ID: "seg-1", IPv4Prefix: "10.67.0.0/24", VLANID: 67}))
	for reason, forged := range map[string]event.Event{"it is not signed": e, "another key has signed it": elsewhere, "it was changed after it was signed": changed} {
		if _, err := w.f.handle(t.Context(), forged); !events.IsPermanent(err) || !strings.Contains(err.Error(), "POST /api/v1/events") {
			t.Errorf("%s: %v, want an error that says where to send it", reason, err)
		}
	}
	// The gateway accepts this subject from a key that is limited to the namespace other.
	misplaced := e.Clone()
	misplaced.SetSubject("/apis/vitistack.io/v1alpha2/namespaces/other/networknamespaces/net")
	w.server.Sign(t, &misplaced)
	if _, err := w.f.handle(t.Context(), misplaced); !events.IsPermanent(err) || !strings.Contains(err.Error(), "its subject is") {
		t.Errorf("the answer has the subject of another namespace: %v, want a permanent error", err)
	}
	if got := w.get("net"); got.Status.IPv4Prefix != "" {
		t.Errorf("an unauthenticated sender can choose the prefix %s", got.Status.IPv4Prefix)
	}
}

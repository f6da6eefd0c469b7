package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestMain(m *testing.M) { os.Exit(apiserver.Run(m)) }

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func decode[T any](t *testing.T, doc string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSettled(t *testing.T) {
	t.Parallel()
	ready := `"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]`
	cases := map[string]struct {
		reason string
		kind   kind
		doc    string
		want   bool
	}{
		"Ready":    {reason: "nothing is left to do", doc: `{"metadata":{"generation":1},"status":{` + ready + `}}`, want: true},
		"New":      {reason: "nobody has seen it", doc: `{"metadata":{"generation":1}}`},
		"Changed":  {reason: "the event of the change was lost", doc: `{"metadata":{"generation":2},"status":{` + ready + `}}`},
		"Deleting": {reason: "a finalizer waits", doc: `{"metadata":{"generation":1,"deletionTimestamp":"2026-01-02T03:04:00Z"},"status":{` + ready + `}}`},
		"Due":      {reason: "its time has come", doc: `{"metadata":{"generation":1},"status":{"nextCheckTime":"2026-01-02T03:04:05Z",` + ready + `}}`},
		"NotDue":   {reason: "its time has not come", doc: `{"metadata":{"generation":1},"status":{"nextCheckTime":"2026-01-02T03:04:06Z",` + ready + `}}`, want: true},
		"Waiting":  {reason: "what it waits for may be there", doc: `{"metadata":{"generation":1},"status":{"phase":"Pending","observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`},
		"Resting":  {reason: "it is off because its owner wants it off", kind: kind{rest: []string{"Stopped"}}, doc: `{"metadata":{"generation":1},"status":{"phase":"Stopped","observedGeneration":1,"conditions":[{"type":"Ready","status":"False"}]}}`, want: true},
		"Always":   {reason: "a hypervisor tells nobody how it is", kind: kind{always: true}, doc: `{"metadata":{"generation":1},"status":{` + ready + `}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := settled(tc.kind, decode[object](t, tc.doc), now); got != tc.want {
				t.Errorf("%s: got settled %t", tc.reason, got)
			}
		})
	}
}

func TestForsaken(t *testing.T) {
	t.Parallel()
	const old = `"metadata":{"creationTimestamp":"2026-01-02T03:00:00Z","annotations":{"vitistack.io/address":"10.0.0.5"}}`
	held := map[string]string{"a": "10.0.0.5", "b": "10.0.0.6", "c": ""}
	cases := map[string]struct {
		reason string
		doc    string
		want   bool
	}{
		"Held":      {reason: "its holder has this address", doc: `{` + old + `,"spec":{"holderIdentity":"a"}}`},
		"Gone":      {reason: "nobody would ever give it back", doc: `{` + old + `,"spec":{"holderIdentity":"x"}}`, want: true},
		"Surplus":   {reason: "its holder has settled on another address", doc: `{` + old + `,"spec":{"holderIdentity":"b"}}`, want: true},
		"Undecided": {reason: "its holder has not settled yet", doc: `{` + old + `,"spec":{"holderIdentity":"c"}}`},
		"Fresh":     {reason: "its holder may be about to write its status", doc: `{"metadata":{"creationTimestamp":"2026-01-02T03:04:00Z"},"spec":{"holderIdentity":"x"}}`},
		"Delayed":   {reason: "it must not be given out again yet", doc: `{` + old + `,"spec":{"renewTime":"2026-01-02T03:04:00.000000Z","leaseDurationSeconds":10}}`},
		"Over":      {reason: "its delay is over", doc: `{` + old + `,"spec":{"renewTime":"2026-01-02T03:03:55.000000Z","leaseDurationSeconds":10}}`, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := forsaken(decode[lease](t, tc.doc), held, now); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// pages answers lists out of JSON documents, one for each page.
type pages map[string][]string

func (p pages) ListInto(_ context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	docs := p[resource.Resource]
	i := len(page.Continue)
	if i >= len(docs) {
		return json.Unmarshal([]byte(`{}`), list)
	}
	return json.Unmarshal([]byte(docs[i]), list)
}

type sent []string

func (s *sent) Send(_ context.Context, e event.Event) error {
	ref, err := events.RefOf(e)
	*s = append(*s, ref.Kind+"/"+ref.Name+" "+e.ID())
	return err
}

func TestHandle(t *testing.T) {
	t.Parallel()
	lister := pages{
		"machines": {
			`{"metadata":{"continue":"1"},"items":[{"metadata":{"name":"new","uid":"u1","resourceVersion":"5","generation":1}}]}`,
			`{"items":[{"metadata":{"name":"done","uid":"u2","resourceVersion":"6","generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}},
				{"metadata":{"name":"changed","uid":"u3","resourceVersion":"7","generation":2},"status":{"observedGeneration":1}}]}`,
		},
		"leases": {`{"items":[{"metadata":{"name":"net-10-0-0-5","uid":"l1","resourceVersion":"8","creationTimestamp":"2026-01-02T03:00:00Z"},"spec":{"holderIdentity":"gone"}}]}`},
	}
	ping := event.New()
	ping.SetID("p1")
	var twice [2]sent
	for i := range twice {
		f := &function{lister: lister, sender: &twice[i], now: func() time.Time { return now }}
		if _, err := f.handle(t.Context(), ping); err != nil {
			t.Fatal(err)
		}
	}
	want := sent{"Machine/new u1.5.p1", "Machine/changed u3.7.p1", "Lease/net-10-0-0-5 l1.8.p1"}
	if diff := cmp.Diff(want, twice[0]); diff != "" {
		t.Errorf("all pages, without what is settled (-want +got):\n%s", diff)
	}
	if !slices.Equal(twice[0], twice[1]) {
		t.Errorf("a ping that is delivered twice must send the same events: %v and %v", twice[0], twice[1])
	}
}

// TestRealLists reads lists of a real API server, in several pages.
func TestRealLists(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t)
	client, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	namespace := server.Namespace(t)
	for _, name := range []string{"a", "b", "c"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
		if err := client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var got sent
	f := &function{lister: small{client}, sender: &got, now: time.Now}
	if _, err := f.handle(t.Context(), event.New()); err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	if len(got) != 3 || got[0][:len("Machine/a ")] != "Machine/a " {
		t.Errorf("want each machine once, got %v", got)
	}
}

// small makes pages of one object.
type small struct{ lister }

func (s small) ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	page.Limit = 1
	return s.lister.ListInto(ctx, resource, page, list)
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

func TestNeedsNoReconcile(t *testing.T) {
	t.Parallel()
	const ready = `{"metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}}`
	const resting = `{"metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"Stopped"}]}}`
	for name, tc := range map[string]struct {
		reason string
		kind   kind
		doc    string
		full   bool
		want   bool
	}{
		"Ready":   {reason: "it is Ready and up to date", kind: kind{interval: fullRoundInterval}, doc: ready, want: true},
		"Turn":    {reason: "no event reports a deleted virtual machine", kind: kind{interval: fullRoundInterval}, doc: ready, full: true},
		"NoTurn":  {reason: "nothing of it is outside of the cluster", doc: ready, full: true, want: true},
		"Resting": {reason: "spec.powerState is Stopped", kind: kind{name: machine, interval: fullRoundInterval}, doc: resting, full: true, want: true},
		"Due":     {reason: "it is not Ready", doc: `{"metadata":{"generation":1}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var full *window
			if tc.full {
				full = &window{start: now}
			}
			if got := !needsReconcile(tc.kind, decode[object](t, tc.doc), now, full); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestIsUnused(t *testing.T) {
	t.Parallel()
	const old = `"creationTimestamp":"2026-01-02T03:00:00Z","annotations":{"vitistack.io/address":"10.0.0.5"}`
	by := func(holder string) string {
		return `{"metadata":{` + old + `,"labels":{"vitistack.io/holder":"` + holder + `"}}}`
	}
	held := map[string]string{"a": "10.0.0.5", "b": "10.0.0.6", "c": ""}
	cases := map[string]struct {
		reason string
		doc    string
		want   bool
	}{
		"Held":         {reason: "its holder has this address", doc: by("a")},
		"Gone":         {reason: "its holder does not exist, so no event releases it", doc: by("x"), want: true},
		"OtherAddress": {reason: "its holder has another address", doc: by("b"), want: true},
		"Undecided":    {reason: "its holder has no address yet", doc: by("c")},
		"Fresh":        {reason: "its holder may be about to write its status", doc: `{"metadata":{"creationTimestamp":"2026-01-02T03:04:00Z","labels":{"vitistack.io/holder":"x"}}}`},
		"Delayed":      {reason: "its release delay has not passed", doc: `{"metadata":{` + old + `},"spec":{"renewTime":"2026-01-02T03:04:00.000000Z","leaseDurationSeconds":10}}`},
		"DelayPassed":  {reason: "its release delay has passed", doc: `{"metadata":{` + old + `},"spec":{"renewTime":"2026-01-02T03:03:55.000000Z","leaseDurationSeconds":10}}`, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := isUnused(decode[lease](t, tc.doc), held, now); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// TestIsIncluded includes each Machine in one of the full rounds of an hour, and distributes the
// Machines over the rounds.
func TestIsIncluded(t *testing.T) {
	t.Parallel()
	slots := map[int64]bool{}
	for _, uid := range []string{"a", "b", "c", "d"} {
		times := int64(0)
		for n := range int64(longInterval / fullRoundInterval) {
			var o object
			if o.Metadata.UID = uid; isIncluded(o, longInterval, window{start: now.Add(time.Duration(n) * fullRoundInterval)}) {
				times++
				slots[n] = true
			}
		}
		if times != 1 {
			t.Errorf("Machine %s is in %d full rounds of an hour, want 1", uid, times)
		}
	}
	if len(slots) < 2 {
		t.Errorf("all Machines are in the same full round: %v", slots)
	}
	for asked, want := range map[[2]string]bool{
		{"dhcp", "manual"}:   true, // Kea has reservations
		{"static", "nam"}:    true,
		{"static", "netbox"}: true,
		{"static", "manual"}: false, // it describes itself
		{"static", "corp"}:   false, // an external IPAM sends events
	} {
		doc := `{"metadata":{"annotations":{"vitistack.io/provisioned-by":"` + asked[1] + `"}},"spec":{"ipAllocation":{"type":"` + asked[0] + `"}}}`
		if got := decode[object](t, doc).hasExternalPart(); got != want {
			t.Errorf("%s has a part outside of the cluster: got %t", doc, got)
		}
	}
}

// pages answers lists with JSON documents, one for each page, and records the writes.
type pages struct {
	docs    map[string][]string
	written *[]string
}

func (p pages) ListInto(_ context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	docs := p.docs[resource.Resource]
	switch {
	case resource.Resource == "leases" && !page.Metadata:
		docs = p.docs["leases without holder"]
	case resource.Resource == "leases" && page.Selector == vmidLeases.Selector:
		docs = nil
	}
	if page.Name != "" {
		docs = []string{namedIn(docs, page.Name)}
	}
	i := len(page.Continue)
	if i >= len(docs) {
		return json.Unmarshal([]byte(`{}`), list)
	}
	return json.Unmarshal([]byte(docs[i]), list)
}

// namedIn returns a list of the objects in pages that have a name.
func namedIn(docs []string, name string) string {
	var found []string
	for _, doc := range docs {
		var page struct{ Items []json.RawMessage }
		if json.Unmarshal([]byte(doc), &page) != nil {
			continue
		}
		for _, item := range page.Items {
			if o := (object{}); json.Unmarshal(item, &o) == nil && o.Metadata.Name == name {
				found = append(found, string(item))
			}
		}
	}
	return `{"items":[` + strings.Join(found, ",") + `]}`
}

// Get returns an empty ConfigMap orphans, and finds no other object.
func (p pages) Get(_ context.Context, _, name string, obj kube.Object) error {
	if _, ok := obj.(*corev1.ConfigMap); !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, name)
	}
	obj.SetName(name)
	return nil
}

func (p pages) Create(_ context.Context, obj kube.Object) error {
	*p.written = append(*p.written, "create "+obj.GetName())
	return nil
}

func (p pages) Update(_ context.Context, obj kube.Object) error {
	*p.written = append(*p.written, "update "+obj.GetName())
	return nil
}

func (p pages) Merge(_ context.Context, obj kube.Object, fields map[string]any) error {
	doc, err := json.Marshal(fields)
	*p.written = append(*p.written, obj.GetName()+" "+string(doc))
	return err
}

type sent []string

func (s *sent) Send(_ context.Context, e event.Event) error {
	ref, err := events.RefOf(e)
	*s = append(*s, fmt.Sprintf("%s/%s %s for %s", ref.Kind, ref.Name, e.ID(), e.Extensions()["partitionkey"]))
	return err
}

func TestHandle(t *testing.T) {
	t.Parallel()
	const waits = `"spec":{"networkNamespaceName":"net","networkConfigurationName":"%[1]s"},"status":{"phase":"Pending","observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"PoolExhausted"}]}`
	waiting := func(name, created string) string {
		return fmt.Sprintf(`{"metadata":{"name":"%[1]s-eth0","uid":"%[1]s","resourceVersion":"1","generation":1,"creationTimestamp":"%[2]s"},`+waits+`}`, name, created)
	}
	lister := map[string][]string{
		"ipallocations": {`{"items":[` + waiting("young", "2026-01-02T02:00:00Z") + `,` + waiting("old", "2026-01-02T01:00:00Z") + `]}`},
		"networkconfigurations": {`{"items":[
			{"metadata":{"name":"young","uid":"n1","resourceVersion":"2","generation":1},` + fmt.Sprintf(waits, "") + `},
			{"metadata":{"name":"grown","uid":"n2","resourceVersion":"3","generation":2},` + fmt.Sprintf(waits, "") + `},
			{"metadata":{"name":"served","uid":"n3","resourceVersion":"4","generation":1},` + fmt.Sprintf(waits, "") + `}]}`},
		"machines": {
			`{"metadata":{"continue":"1"},"items":[{"metadata":{"name":"new","uid":"u1","resourceVersion":"5","generation":1}}]}`,
			`{"items":[{"metadata":{"name":"done","uid":"u2","resourceVersion":"6","generation":1},"status":{"provider":"counted","observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}],"nextCheckTime":"2027-01-02T03:04:05Z"}},
				{"metadata":{"name":"asked","uid":"u4","resourceVersion":"6","generation":1,"annotations":{"vitistack.io/reconcile":"now"}},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True"}]}},
				{"metadata":{"name":"changed","uid":"u3","resourceVersion":"7","generation":2},"status":{"observedGeneration":1}}]}`,
		},
		"machineproviders": {`{"items":[
			{"metadata":{"name":"counted","uid":"p2","resourceVersion":"6","generation":1},"status":{"machineCount":1,"observedGeneration":1,"nextCheckTime":"2027-01-02T03:04:05Z"}},
			{"metadata":{"name":"grown","uid":"p3","resourceVersion":"6","generation":1},"status":{"machineCount":1,"observedGeneration":1,"nextCheckTime":"2027-01-02T03:04:05Z"}}]}`},
		"leases":                {`{"items":[{"metadata":{"name":"net-10-0-0-5","uid":"l1","resourceVersion":"8","creationTimestamp":"2026-01-02T03:00:00Z","labels":{"vitistack.io/holder":"gone"}}}]}`},
		"leases without holder": {`{"items":[{"metadata":{"name":"net-10-0-0-6","uid":"l2","resourceVersion":"9","creationTimestamp":"2026-01-02T03:00:00Z"}}]}`},
	}
	ping := newPing("", "p1")
	var twice [2]sent
	var written []string
	for i := range twice {
		f := &function{api: pages{lister, &written}, sender: &twice[i], now: func() time.Time { return now }}
		if _, err := f.handle(t.Context(), ping); err != nil {
			t.Fatal(err)
		}
	}
	want := sent{
		"IPAllocation/old-eth0 old.1.p1 for old",
		"NetworkConfiguration/grown n2.3.p1 for n2", "NetworkConfiguration/served n3.4.p1 for n3",
		"Machine/new u1.5.p1 for u1", "Machine/asked u4.6.p1 for u4", "Machine/changed u3.7.p1 for u3", "MachineProvider/grown p3.6.p1 for p3",
		"Lease/net-10-0-0-5 l1.8.p1 for l1", "Lease/net-10-0-0-6 l2.9.p1 for l2",
		"ConfigMap/orphans orphans.p1 for orphans",
	}
	if diff := cmp.Diff(want, twice[0]); diff != "" {
		t.Errorf("all pages, without objects that need no reconcile, and with the oldest object that waits for an address (-want +got):\n%s", diff)
	}
	if !slices.Equal(twice[0], twice[1]) {
		t.Errorf("a ping that is delivered twice must send the same events: %v and %v", twice[0], twice[1])
	}
	if want := `asked {"metadata":{"annotations":{"vitistack.io/reconcile":null},"uid":"u4"}}`; len(written) != 6 || written[0] != want || !strings.HasPrefix(written[1], "orphans ") || written[2] != "create resync" {
		t.Errorf("wrote %v, want the annotation to be removed, so that it can be set again, the orphaned Lease to be reported, and the round in its Lease", written)
	}
}

// slow is a Broker that does not answer in time for events about one object.
type slow struct {
	sent
	object string
}

func (s *slow) Send(ctx context.Context, e event.Event) error {
	if err := s.sent.Send(ctx, e); err != nil {
		return err
	}
	if ref, _ := events.RefOf(e); ref.Name == s.object {
		return fmt.Errorf("send event %s: %w", e.ID(), events.ErrUnanswered)
	}
	return nil
}

// TestSlowSubscriber goes on after an event that a subscriber does not answer. What requested the reconcile stays.
func TestSlowSubscriber(t *testing.T) {
	t.Parallel()
	asked := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%[1]q,"uid":%[1]q,"resourceVersion":"1","annotations":{"vitistack.io/reconcile":"now"}}}`, name)
	}
	lister := map[string][]string{"machines": {`{"items":[` + asked("a") + `,` + asked("b") + `,` + asked("c") + `]}`}}
	ping := newPing("", "p1")
	var written []string
	broker := &slow{object: "b"}
	f := &function{api: pages{lister, &written}, sender: broker, now: func() time.Time { return now }}
	if _, err := f.handle(t.Context(), ping); err != nil {
		t.Fatal(err)
	}
	if len(broker.sent) != 4 {
		t.Errorf("sent %v, want an event for each Machine, and one for orphans", broker.sent)
	}
	if len(written) < 2 || !strings.HasPrefix(written[0], "a ") || !strings.HasPrefix(written[1], "c ") {
		t.Errorf("wrote %v, want the annotations of a and c to be removed, and that of b to stay", written)
	}
}

// TestRealLists reads lists of a real API server in several pages, and those of Leases with the
// required fields only.
func TestRealLists(t *testing.T) {
	t.Parallel()
	server := apiserver.Start(t)
	server.Install(t)
	client, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme, kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}))
	if err != nil {
		t.Fatal(err)
	}
	namespace := server.Namespace(t)
	for _, name := range []string{"a", "b", "c"} {
		m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1alpha1.MachineSpec{Template: "small"}}
		if name == "a" {
			m.Annotations = map[string]string{v1alpha1.AnnotationReconcile: "now", "else": "stays"}
		}
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"vitistack.io/managed-by": "allocate-ip", labelHolder: name}}}
		if name == "c" {
			delete(l.Labels, labelHolder)
		}
		if err := errors.Join(client.Create(t.Context(), m), client.Create(t.Context(), l)); err != nil {
			t.Fatal(err)
		}
	}
	var got sent
	later := func() time.Time { return time.Now().Add(time.Hour) }
	f := &function{api: small{client}, sender: &got, now: later}
	if _, err := f.handle(t.Context(), requestFor(t, "r0")); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, text := range got {
		name, _, _ := strings.Cut(text, " ")
		names = append(names, name)
	}
	if want := []string{"Machine/a", "Machine/b", "Machine/c", "Lease/a", "Lease/b", "Lease/c"}; !slices.Equal(names, want) {
		t.Errorf("got %v, want each machine and each unused Lease once", names)
	}
	got = nil
	f.api = client
	if _, err := f.handle(t.Context(), requestFor(t, "r1", events.DueObject{Kind: machine, Namespace: namespace, Name: "b"}, events.DueObject{Kind: machine, Namespace: namespace, Name: "gone"},
		events.DueObject{Kind: machineProvider, Name: "gone"})); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || !strings.HasPrefix(got[0], "Machine/b ") {
		t.Errorf("a request that names a Machine, and objects that do not exist, sent %v", got)
	}
	m := &v1alpha1.Machine{}
	if err := client.Get(t.Context(), namespace, "a", m); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"else": "stays"}; !maps.Equal(m.Annotations, want) {
		t.Errorf("annotations are %v, want %v", m.Annotations, want)
	}
}

// small reads pages of one object.
type small struct{ api }

func (s small) ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	page.Limit = 1
	return s.api.ListInto(ctx, resource, page, list)
}

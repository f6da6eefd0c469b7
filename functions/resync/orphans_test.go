package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/stand/apiserver"
)

func TestAddressOrphans(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, doc string
		isNotFull   bool
		want        int
	}{
		"Held":      {"its IPAllocation exists", `{"metadata":{"name":"l","uid":"l","creationTimestamp":"2026-01-02T03:00:00Z","labels":{"vitistack.io/holder":"m"}}}`, false, 0},
		"Gone":      {"its IPAllocation does not exist", `{"metadata":{"name":"l","uid":"l","creationTimestamp":"2026-01-02T03:00:00Z","labels":{"vitistack.io/holder":"x"}}}`, false, 1},
		"Young":     {"its IPAllocation may be newer than the list", `{"metadata":{"creationTimestamp":"2026-01-02T03:04:00Z","labels":{"vitistack.io/holder":"x"}}}`, false, 0},
		"Requested": {"only full rounds check for orphans", `{"metadata":{"name":"l","uid":"l","creationTimestamp":"2026-01-02T03:00:00Z","labels":{"vitistack.io/holder":"x"}}}`, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			known := newAllocations("")
			known.exists["m"], known.held["m"] = true, ""
			p := round{full: !tc.isNotFull, function: &function{sender: &sent{}, now: func() time.Time { return now }}, all: map[string]*allocations{"": known}}
			if err := p.inspectAddress(t.Context(), decode[lease](t, tc.doc)); err != nil || len(p.progress.Orphans) != tc.want {
				t.Errorf("%s: got %v, %v", tc.reason, p.progress.Orphans, err)
			}
		})
	}
}

// rounds runs full rounds on a real API server, with a clock of its own.
type rounds struct {
	*testing.T
	client    *kube.Client
	namespace string
	sent      sent
	ahead     time.Duration
	// lists counts the pages that were read.
	lists int
}

// counting counts the pages that are read.
type counting struct {
	api
	lists *int
}

func (c counting) ListInto(ctx context.Context, resource schema.GroupVersionResource, page kube.Page, list any) error {
	*c.lists++
	return c.api.ListInto(ctx, resource, page, list)
}

func newRounds(t *testing.T) *rounds {
	t.Helper()
	server := apiserver.StartAnother(t)
	server.Install(t)
	client, err := kube.New(server.Config(), "test", v1alpha1.AddToScheme, v1alpha2.AddToScheme,
		kube.Kinds(coordinationv1.SchemeGroupVersion, &coordinationv1.Lease{}), kube.Kinds(corev1.SchemeGroupVersion, &corev1.ConfigMap{}))
	if err != nil {
		t.Fatal(err)
	}
	return &rounds{T: t, client: client, namespace: server.Namespace(t)}
}

func (r *rounds) round(kind string) error {
	in := newPing(r.namespace, fmt.Sprint("p", r.ahead))
	in.SetType(kind)
	f := &function{api: counting{r.client, &r.lists}, sender: &r.sent, now: func() time.Time { return time.Now().Add(r.ahead) }, namespace: r.namespace}
	_, err := f.handle(r.Context(), in)
	return err
}

// report returns the report on Leases in the ConfigMap, with its resourceVersion.
func (r *rounds) report() (report v1alpha1.OrphanReport, version string) {
	r.Helper()
	c := &corev1.ConfigMap{}
	if err := r.client.Get(r.Context(), r.namespace, v1alpha1.ConfigMapOrphans, c); err != nil {
		r.Fatal(err)
	}
	if text := c.Data[v1alpha1.OrphansInLeases]; text != "" {
		if err := json.Unmarshal([]byte(text), &report); err != nil {
			r.Fatal(err)
		}
	}
	return report, c.ResourceVersion
}

func (r *rounds) lease(name, manager, holder string) *coordinationv1.Lease {
	r.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy: manager, labelHolder: holder,
	}, Annotations: map[string]string{v1alpha1.LabelMachine: r.namespace + "/m"}}}
	if err := r.client.Create(r.Context(), l); err != nil {
		r.Fatal(err)
	}
	return l
}

// TestOrphanedLeases orphans Leases. The checks report them and do not delete them.
func TestOrphanedLeases(t *testing.T) {
	t.Parallel()
	r := newRounds(t)
	m := &v1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: "m"}, Spec: v1alpha1.MachineSpec{Template: "small"}}
	if err := r.client.Create(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	r.lease("vmid-kept", "create-vm", string(m.UID))
	left := []*coordinationv1.Lease{r.lease("net-10-0-0-5", "allocate-ip", "gone"), r.lease("vmid-left", "create-vm", "gone")}
	r.lease("foreign", "other", "gone")
	r.ahead = 10 * time.Minute
	if err := r.round(events.TypePing); err == nil || !strings.Contains(err.Error(), "apply the manifests of the stack again") {
		t.Errorf("without the ConfigMap: %v", err)
	}
	if err := r.client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: v1alpha1.ConfigMapOrphans}}); err != nil {
		t.Fatal(err)
	}
	check := func(kind string) (v1alpha1.OrphanReport, string) {
		t.Helper()
		if err := r.round(kind); err != nil {
			t.Fatal(err)
		}
		return r.report()
	}
	if found, _ := check(events.TypeResyncRequested); len(found.Orphans) != 0 {
		t.Errorf("a round that is not full has checked for orphans: %+v", found)
	}
	if found, _ := check(events.TypePing); len(found.Orphans) != 2 || found.Orphans[0].Confirmed || found.Message != "" {
		t.Errorf("one check confirms no orphan: %+v", found)
	}
	r.ahead += 10 * time.Minute
	found, version := check(events.TypePing)
	if len(found.Orphans) != 2 || found.Orphans[0].ID != r.namespace+"/net-10-0-0-5" || found.Orphans[1].ID != r.namespace+"/vmid-left" || !found.Orphans[1].Confirmed {
		t.Errorf("got %+v", found)
	}
	if want := "kubectl --namespace " + r.namespace + " delete lease net-10-0-0-5"; !strings.Contains(found.Message, want) || !strings.Contains(found.Message, "vmid-left") {
		t.Errorf("the message has to name both orphans, and the command: %s", found.Message)
	}
	r.ahead += 10 * time.Minute
	if _, again := check(events.TypePing); again != version {
		t.Error("a check with an unchanged result has written")
	}
	if slices.ContainsFunc(r.sent, func(s string) bool { return strings.HasPrefix(s, "Lease/vmid-") }) || !slices.ContainsFunc(r.sent, func(s string) bool { return strings.HasPrefix(s, "Lease/net-10-0-0-5 ") }) {
		t.Errorf("only the Lease of allocate-ip must be requeued: %v", r.sent)
	}
	for _, l := range left {
		if err := r.client.Delete(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	if found, _ := check(events.TypePing); len(found.Orphans) != 0 {
		t.Errorf("the orphans are removed, but reported: %+v", found)
	}
}

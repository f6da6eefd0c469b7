package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/tests/stand/engine"
	"github.com/vitistack/stack/tests/stand/feed"
)

const externalNetwork = `apiVersion: vitistack.io/v1alpha2
kind: NetworkNamespace
metadata: {name: external}
spec:
  datacenterIdentifier: no-west-az1
  networkProvisioning: {provider: tour-ipam, parameters: {prefixLength: "25"}}
  ipAllocation: {type: static}
---
apiVersion: vitistack.io/v1alpha2
kind: IPAllocation
metadata: {name: kept}
spec: {networkNamespaceName: external}
`

var triggers = schema.GroupVersionResource{Group: "eventing.knative.dev", Version: "v1", Resource: "triggers"}

// shareIPAM has the Broker of the second engine send the events for the IPAM to the one of the first engine.
func (p pair) shareIPAM(t *testing.T) {
	t.Helper()
	uri, _, _ := unstructured.NestedString(p.from.Get(triggers, "vitistack-system", "tour-ipam").Object, "spec", "subscriber", "uri")
	patch := fmt.Appendf(nil, `{"spec":{"subscriber":{"uri":%q}}}`, uri)
	if _, err := p.to.Client.Resource(triggers).Namespace("vitistack-system").Patch(t.Context(), "tour-ipam", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// bookedSegments returns the IDs of the segments that the IPAM of an engine has given and not taken back, by the UIDs of their networks.
func bookedSegments(e *engine.Engine) (map[string]string, error) {
	var books map[string]struct {
		Segment struct{ ID string }
		GoneAt  time.Time
	}
	text, err := os.ReadFile(filepath.Join(e.Dir, "sim", "ipam.json"))
	if err == nil {
		err = json.Unmarshal(text, &books)
	}
	segments := map[string]string{}
	for uid, s := range books {
		if s.GoneAt.IsZero() {
			segments[uid] = s.Segment.ID
		}
	}
	return segments, err
}

// moveIPAM moves a network of an IPAM that answers by events, with an address in it. The answer counts at the second management
// cluster as well: it requests no other segment, and the IPAM gets a release only when the network is deleted there, with the first UID, by
// which it knows the segment.
func (p pair) moveIPAM(t *testing.T) {
	const namespace = "ipam"
	p.from.Apply(namespace, externalNetwork)
	nn := p.from.UntilPhase(engine.NetworkNamespaces, namespace, "external", "Ready")
	segment, uid := segmentOf(nn), string(nn.GetUID())
	address := addressOf(p.from.UntilPhase(engine.IPAllocations, namespace, "kept", "Allocated"))
	given, err := bookedSegments(p.from)
	if err != nil || given[uid] == "" {
		t.Fatalf("the IPAM has the segments %v, want one of %s: %v", given, uid, err)
	}
	before := given[uid]
	end := watchSegment(p.from, uid)
	if out, ok := p.move(t, namespace); !ok {
		t.Fatalf("kubectl viti move: %s", out)
	}
	moved := p.to.UntilPhase(engine.NetworkNamespaces, namespace, "external", "Ready")
	if diff := cmp.Diff(segment, segmentOf(moved)); diff != "" {
		t.Errorf("the segment (-before +after):\n%s", diff)
	}
	if now := addressOf(p.to.UntilPhase(engine.IPAllocations, namespace, "kept", "Allocated")); now != address || now == "" {
		t.Errorf("the IPAllocation has %s, had %s", now, address)
	}
	p.to.Apply(namespace, "apiVersion: vitistack.io/v1alpha2\nkind: IPAllocation\nmetadata: {name: more}\nspec: {networkNamespaceName: external}\n")
	if other := addressOf(p.to.UntilPhase(engine.IPAllocations, namespace, "more", "Allocated")); other == address {
		t.Errorf("two IPAllocations have %s", other)
	}
	if seen := end(); !slices.Equal(seen, []string{before}) {
		t.Errorf("while the network moved, the IPAM had the segments %q for its first UID, want %q all the time", seen, before)
	}
	newUID := string(moved.GetUID())
	for name, e := range map[string]*engine.Engine{"the IPAM": p.from, "the IPAM of the second engine": p.to} {
		if all, err := bookedSegments(e); err == nil && all[newUID] != "" {
			t.Errorf("%s was asked for a segment of the new UID: %v", name, all)
		}
	}
	for _, name := range []string{"kept", "more"} {
		p.to.Delete(engine.IPAllocations, namespace, name)
	}
	p.to.Delete(engine.NetworkNamespaces, namespace, "external")
	feed.Until(t, "the second management cluster releases the segment", func() (bool, string) {
		all, err := bookedSegments(p.from)
		left := len(p.to.List(engine.NetworkNamespaces, namespace, ""))
		return err == nil && all[uid] == "" && left == 0, fmt.Sprint(slices.Collect(maps.Keys(all)), left, err)
	})
}

// addressOf returns the address of an IPAllocation.
func addressOf(a *unstructured.Unstructured) string {
	address, _, _ := unstructured.NestedString(a.Object, "status", "address")
	return address
}

// watchSegment reads the segment of a UID every 100 ms until the returned function is called, which returns the different segments that
// the IPAM had for it, in their order.
func watchSegment(e *engine.Engine, uid string) (end func() []string) {
	stop, done := make(chan struct{}), make(chan []string, 1)
	go func() {
		var seen []string
		for {
			// A file that is being written cannot be read, and is read again.
			if all, err := bookedSegments(e); err == nil && (len(seen) == 0 || seen[len(seen)-1] != all[uid]) {
				seen = append(seen, all[uid])
			}
			select {
			case <-stop:
				done <- seen
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() []string { close(stop); return <-done }
}

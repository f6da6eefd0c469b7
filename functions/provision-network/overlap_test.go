package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

// TestOverlap has a younger network wait for an older one.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.network("a", manualSpec("10.3.0.0/16", "", 7))
	w.expect(w.reconcile("a"), "Ready", reasonProvisioned)
	w.network("b", manualSpec("10.3.4.0/24", "", 7))
	w.network("other-vlan", manualSpec("10.3.4.0/24", "", 8))
	nn := w.reconcile("b")
	if message := w.expect(nn, "Error", plan.ReasonOverlap); !strings.Contains(message, w.namespace+"/a") || nn.Status.IPv4Prefix != "" {
		t.Errorf("the message names the network with the prefix: %s; prefix %q", message, nn.Status.IPv4Prefix)
	}
	w.expect(w.reconcile("other-vlan"), "Ready", reasonProvisioned)
	w.change("a", func(nn *v1alpha2.NetworkNamespace) { nn.Labels = map[string]string{"seen": "again"} })
	w.expect(w.reconcile("a"), "Ready", reasonProvisioned)

	w.delete(w.get("a"))
	if w.reconcile("a") != nil {
		t.Fatal("a must go")
	}
	w.must(w.deliver(kindNetwork, "a", events.TypeRefDelete))
	w.expect(w.get("b"), "Ready", reasonProvisioned)
}

// TestOverlapOfProvider has NetBox provide a prefix that a manual network has. A network that is only created again gets the same
// prefix; after what the message says it is Ready.
func TestOverlapOfProvider(t *testing.T) {
	t.Parallel()
	l := newLibrary(t)
	w := newEnv(t, map[string]provider.Interface{"netbox": l.netbox})
	spec := netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}})
	spec.DatacenterIdentifier = ""
	w.network("old", manualSpec("10.51.0.0/26", "10.51.0.1", 0))
	w.expect(w.reconcile("old"), "Ready", reasonProvisioned)
	for range 2 {
		w.network("new", spec)
		const says = "delete this network, have the network team mark 10.51.0.0/26 as used at provider netbox, which has chosen the segment, and create this network again, or delete that network"
		if message := w.expect(w.reconcile("new"), "Error", plan.ReasonOverlap); !strings.HasSuffix(message, says) {
			t.Errorf("got %q, want that it ends with %q", message, says)
		}
		w.delete(w.get("new"))
		if w.reconcile("new") != nil {
			t.Fatal("the network is deleted")
		}
	}
	l.create(t, "/api/ipam/prefixes/2/available-prefixes/", map[string]any{"prefix_length": 26, "status": "reserved", "description": "old"})
	w.network("new", spec)
	if nn := w.reconcile("new"); nn.Status.IPv4Prefix != "10.51.0.64/26" {
		t.Errorf("got prefix %q", nn.Status.IPv4Prefix)
	}
	w.expect(w.get("new"), "Ready", reasonProvisioned)
}

// TestUnusableSegmentIsNotRequestedAgain has a provider provide a segment that the network cannot have, because of its spec, or of another
// network. The events of the own status writes request nothing, and neither the provider nor the API server is kept busy. A change of the spec, and the
// deletion of the other network, end the delay.
func TestUnusableSegmentIsNotRequestedAgain(t *testing.T) {
	t.Parallel()
	m, l := newManager(t, 0), newLibrary(t)
	static := &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{VLANID: 4000}}
	for name, tc := range map[string]struct {
		spec   v1alpha2.NetworkNamespaceSpec
		reason string
		fix    func(*env)
	}{
		"NAM": {namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26}), "InvalidSpec", func(w *env) {
			w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.IPAllocation.Static.VLANID = 0 })
			w.reconcile("net")
		}},
		"NetBox": {netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}), plan.ReasonOverlap, func(w *env) {
			w.delete(w.get("old"))
			w.reconcile("old")
			w.must(w.deliver(kindNetwork, "old", events.TypeRefDelete))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnv(t, map[string]provider.Interface{"nam": m.nam, "netbox": l.netbox})
			tc.spec.DatacenterIdentifier = ""
			if tc.reason == plan.ReasonOverlap {
				w.network("old", manualSpec("10.51.0.0/26", "10.51.0.1", 0))
				w.expect(w.reconcile("old"), "Ready", reasonProvisioned)
			} else {
				tc.spec.IPAllocation = static
			}
			w.network("net", tc.spec)
			nn := w.reconcile("net")
			w.expect(nn, "Error", tc.reason)
			for range 3 {
				if again := w.reconcile("net"); again.ResourceVersion != nn.ResourceVersion {
					t.Errorf("an event of its own status write has the segment requested again: %+v", again.Status)
				}
			}
			tc.fix(w)
			w.expect(w.get("net"), "Ready", reasonProvisioned)
		})
	}
}

// meeting delays the first status write of each participant until all are about to write. Each has
// then checked for conflicts and found none.
type meeting struct {
	http.RoundTripper
	once  sync.Once
	group *sync.WaitGroup
}

func (m *meeting) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status") {
		m.once.Do(func() { m.group.Done(); m.group.Wait() })
	}
	return m.RoundTripper.RoundTrip(req)
}

// TestOverlapRace has networks with the same segment become Ready concurrently.
func TestOverlapRace(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	const rivals = 4
	var met, done sync.WaitGroup
	met.Add(rivals)
	names := []string{}
	for i := range rivals {
		names = append(names, fmt.Sprintf("n%d", i))
		w.network(names[i], asks("racing"))
	}
	for _, name := range names {
		config := rest.CopyConfig(w.config)
		config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &meeting{RoundTripper: rt, group: &met} })
		f := &function{kube: w.client(config), sender: w.f.sender, now: w.f.now, datacenters: w.separateDataCentres(), optionalPools: true, providers: map[string]provider.Interface{
			"racing": always{segment.Segment{IPv4: netip.MustParsePrefix("10.4.0.0/24"), VLAN: 9}},
		}}
		done.Go(func() {
			err := errRedeliver
			for errors.Is(err, errRedeliver) {
				err = kube.OnConflict(func() error { return f.reconcileNetwork(t.Context(), w.namespace, name, reconcileOptions{}) })
			}
			if err != nil && !kube.Conflict(err) {
				t.Error(err)
			}
		})
	}
	done.Wait()
	var holders []string
	for _, name := range names {
		if isReady(w.get(name)) {
			holders = append(holders, name)
		}
	}
	if len(holders) != 1 {
		t.Errorf("%v have the same segment, want exactly one", holders)
	}
}

// TestClaimIsFound has a process die after it claims a segment and before it checks for conflicts. The
// claim holds until the next reconciliation.
func TestClaimIsFound(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.network("a", manualSpec("10.4.0.0/24", "", 9))
	dying, _ := w.countingClient(2) // the annotation, and the claim
	whole := w.f.kube
	w.f.kube = dying
	_ = w.deliver(kindNetwork, "a", events.TypeRefAdd)
	w.f.kube = whole
	a := w.get("a")
	if a.Status.ProvisioningPhase != "Pending" || a.Status.IPv4Prefix != "10.4.0.0/24" {
		t.Fatalf("got status %+v, want a claim", a.Status)
	}
	w.network("b", asks("sure"))
	w.f.providers["sure"] = always{segment.Segment{IPv4: netip.MustParsePrefix("10.4.0.0/25"), VLAN: 9}}
	w.expect(w.reconcile("b"), "Error", plan.ReasonOverlap)
	w.expect(w.reconcile("a"), "Ready", reasonProvisioned)
	w.expect(w.reconcile("b"), "Error", plan.ReasonOverlap)
}

// TestBothReady has two Ready networks with the same segment, as an earlier version may have left
// them. The younger one reports it, and both keep their addresses.
func TestBothReady(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	for _, name := range []string{"a", "b"} {
		nn := w.network(name, manualSpec("10.4.0.0/24", "", 9))
		before := nn.DeepCopy()
		setSegmentResult(nn, segment.Segment{IPv4: netip.MustParsePrefix("10.4.0.0/24"), VLAN: 9}, nil, w.clock.Now())
		_, err := w.kube.PatchStatus(t.Context(), before, nn)
		w.must(err)
		w.change(name, func(nn *v1alpha2.NetworkNamespace) { nn.Spec.SupervisorIdentifier = "seen-again" })
	}
	reasons := map[string]int{}
	for _, name := range []string{"a", "b"} {
		nn := w.reconcile(name)
		_, reason, _ := ready(nn)
		reasons[reason]++
		if !isReady(nn) || nn.Status.IPv4Prefix != "10.4.0.0/24" || nn.Status.VLANID != 9 {
			t.Errorf("%s: status %+v, want its allocated segment", name, nn.Status)
		}
	}
	if reasons[plan.ReasonOverlap] != 1 || reasons[reasonProvisioned] != 1 {
		t.Errorf("got reasons %v, want the younger one to report the overlap", reasons)
	}
}

// TestDataCentres has tenants name different data centres for the same segment. They are separate only
// if the platform team says that the data centres share no bridge.
func TestDataCentres(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.f.datacenters = nil
	in := func(datacenter v1alpha2.Identifier) v1alpha2.NetworkNamespaceSpec {
		spec := manualSpec("10.203.4.0/24", "", 2203)
		spec.DatacenterIdentifier = datacenter + "-" + v1alpha2.Identifier(w.namespace[len(w.namespace)-6:])
		return spec
	}
	w.network("west", in("west"))
	w.expect(w.reconcile("west"), "Ready", reasonProvisioned)
	w.network("east", in("east"))
	w.expect(w.reconcile("east"), "Error", plan.ReasonOverlap)
	w.f.datacenters = plan.ParseDatacenters(" " + string(in("east").DatacenterIdentifier) + ", other")
	w.expect(w.reconcile("east"), "Ready", reasonProvisioned)
}

// TestHeldAddresses has objects keep addresses after their network was deleted by force. No other
// network gets these addresses on their VLAN.
func TestHeldAddresses(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.configuration("machine", "gone", "", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.30.0.5"}, VLAN: "30"})
	old := w.configuration("old", "gone", "", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.33.0.5"}, VLAN: "33"})
	former := old.DeepCopy()
	old.Status.VLANID = nil // as an older version has written it
	_, err := w.kube.PatchStatus(t.Context(), former, old)
	w.must(err)
	a := w.allocation("reserved", "gone", "", "10.31.0.5")
	before := a.DeepCopy()
	a.Status.VLANID = 31
	_, err = w.kube.PatchStatus(t.Context(), before, a)
	w.must(err)
	for name, tc := range map[string]struct {
		prefix string
		vlan   v1alpha2.VLANID
		says   string
	}{
		"a": {"10.30.0.0/24", 30, "10.30.0.5, which NetworkConfiguration " + w.namespace + "/machine has"},
		"b": {"10.31.0.0/16", 31, "10.31.0.5, which IPAllocation " + w.namespace + "/reserved has"},
		"c": {"10.30.0.0/24", 32, ""},
		"e": {"10.33.0.0/24", 33, "10.33.0.5, which NetworkConfiguration " + w.namespace + "/old has"},
		"d": {"10.32.0.0/24", 30, ""},
	} {
		w.network(name, manualSpec(tc.prefix, "", tc.vlan))
		nn := w.reconcile(name)
		if tc.says == "" {
			w.expect(nn, "Ready", reasonProvisioned)
			continue
		}
		if message := w.expect(nn, "Error", plan.ReasonOverlap); !strings.Contains(message, tc.says) {
			t.Errorf("%s: message %s, want it to name the holder of the address", name, message)
		}
		client, counted := w.countingClient(-1)
		w.f.kube = client
		w.reconcile(name)
		if w.f.kube = w.kube; counted.n > 0 {
			t.Errorf("%s: a waiting network is written to %d times", name, counted.n)
		}
	}
	nc := &v1alpha1.NetworkConfiguration{}
	w.must(w.kube.Get(t.Context(), w.namespace, "machine", nc))
	w.delete(nc)
	w.must(w.deliver(kindNetwork, "a", events.TypeResync))
	w.expect(w.get("a"), "Ready", reasonProvisioned)
}

// always is a source that provides the same segment to every network.
type always struct{ segment segment.Segment }

func (a always) Provide(context.Context, *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	return a.segment, nil
}

func (a always) Release(context.Context, *v1alpha2.NetworkNamespace) error { return nil }

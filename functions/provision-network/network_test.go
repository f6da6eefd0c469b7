package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/tests/sim/faults"
)

// TestSeed is the example of the specification, and its result.
func TestSeed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	spec := manualSpec("192.168.10.0/24", "192.168.10.1", 200)
	spec.SupervisorIdentifier = "lab-01"
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static", Provider: "static-ip-operator", Static: &v1alpha2.StaticPool{
		IPv4CIDR: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", IPv4RangeStart: "192.168.10.10", IPv4RangeEnd: "192.168.10.200", VLANID: 200, DNS: []string{"192.168.10.1"},
	}}
	nn := w.network("lab-network", spec)
	got := w.look("lab-network")
	want := v1alpha2.NetworkNamespaceStatus{
		ProvisioningPhase: "Ready", IPv4Prefix: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", VLANID: 200, Phase: "Active", Status: "OK",
		DatacenterIdentifier: nn.Spec.DatacenterIdentifier, SupervisorIdentifier: "lab-01", ObservedGeneration: 1,
		IPAllocationSummary: &v1alpha2.IPAllocationSummary{Type: "static", Provider: "static-ip-operator", AvailableCount: 191, TotalCount: 191},
	}
	if diff := cmp.Diff(want, got.Status, cmpopts.IgnoreFields(v1alpha2.NetworkNamespaceStatus{}, "Conditions")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if again := w.look("lab-network"); again.ResourceVersion != got.ResourceVersion {
		t.Error("looking again must write nothing")
	}
}

func TestDualStack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	spec := manualSpec("10.1.0.0/30", "10.1.0.1", 0)
	spec.NetworkProvisioning.Manual.IPv6CIDR, spec.NetworkProvisioning.Manual.IPv6Gateway = "2001:db8:1::/64", "2001:db8:1::1"
	w.network("both", spec)
	six := v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &v1alpha2.ManualSegment{IPv6CIDR: "2001:db8:2::/64"}},
		IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static"}}
	w.network("six", six)
	if s := w.look("both").Status; s.IPv6Prefix != "2001:db8:1::/64" || s.IPv6Gateway != "2001:db8:1::1" || s.IPAllocationSummary.TotalCount != 1 {
		t.Errorf("both: %+v", s)
	}
	if s := w.look("six").Status; s.ProvisioningPhase != "Ready" || s.IPAllocationSummary == nil || s.IPAllocationSummary.TotalCount != mostCounted {
		t.Errorf("six: %+v, summary %+v", s, s.IPAllocationSummary)
	}
}

// TestSlowManager follows a segment that takes fifteen seconds.
func TestSlowManager(t *testing.T) {
	t.Parallel()
	m := newManager(t, 15*time.Second)
	w := newWorld(t, map[string]source{"nam": m.nam})
	w.clock, w.f.now = m.clock, m.clock.read
	w.network("slow", asks("nam"))
	if err := w.deliver(kindNetwork, "slow", events.TypeRefAdd); err != nil {
		t.Fatal(err)
	}
	nn := w.get("slow")
	w.expect(nn, "Pending", reasonWorking)
	if nn.Annotations[v1alpha1.AnnotationProvider] != "nam" || nn.Status.NextCheckTime == nil {
		t.Fatalf("who was asked and when to ask again must be kept: %v, %v", nn.Annotations, nn.Status.NextCheckTime)
	}
	if again := w.look("slow"); again.ResourceVersion != nn.ResourceVersion {
		t.Error("before its time nothing is asked and nothing written")
	}
	w.clock.pass(10 * time.Second)
	if err := w.deliver(kindNetwork, "slow", events.TypeResync); !errors.Is(err, errEarly) {
		t.Errorf("what is due in a moment is delivered again by the broker, got %v", err)
	}
	w.clock.pass(20 * time.Second)
	w.must(w.deliver(kindNetwork, "slow", events.TypeResync))
	w.expect(w.get("slow"), "Ready", reasonProvisioned)
}

func TestFaultsAreTold(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newWorld(t, map[string]source{"nam": m.nam})
	w.must(m.plan.Set(faults.Rule{Operation: "PUT /segments", Error: "401"}))
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	if message := w.expect(w.look("net"), "Error", "SourceUnauthorized"); !strings.Contains(message, "NAM_TOKEN") || strings.Contains(message, namToken) {
		t.Errorf("the message says what to change: %s", message)
	}
	w.must(m.plan.Set())
	w.expect(w.look("net"), "Error", "SourceUnauthorized") // it is left alone for a while
	w.clock.pass(longestWait + 2*time.Second)
	w.expect(w.look("net"), "Ready", reasonProvisioned)

	w.must(m.plan.Set(faults.Rule{Error: "503"}))
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Annotations[v1alpha1.AnnotationReconcile] = "now"
	})
	nn := w.look("net")
	w.expect(nn, "Ready", "SourceUnavailable")
	if nn.Status.IPv4Prefix == "" || kube.AskedFor(nn) {
		t.Errorf("a segment stays when its source is down, and who asked is answered once: %+v", nn)
	}
	w.must(m.plan.Set(faults.Rule{Error: "lie-taken"}))
	w.clock.pass(longestWait)
	if message := w.expect(w.look("net"), "Ready", "SourceChanged"); !strings.Contains(message, "10.98.0.0/24") {
		t.Errorf("a source that changes its mind is told of: %s", message)
	}
}

func TestNotConfigured(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	if message := w.expect(w.look("net"), "Error", "ProviderNotConfigured"); !strings.Contains(message, "NAM_URL") {
		t.Errorf("the message says what to set: %s", message)
	}
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = manualSpec("10.2.0.0/24", "", 5).NetworkProvisioning
	})
	nn := w.look("net")
	w.expect(nn, "Ready", reasonProvisioned)
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = asks("corp-ipam").NetworkProvisioning
	})
	if message := w.expect(w.look("net"), "Ready", "ProviderChanged"); !strings.Contains(message, "manual") || len(w.sent.types()) > 0 {
		t.Errorf("a network that is in use keeps its provider: %s, sent %v", message, w.sent.types())
	}
	w.delete(nn)
	if w.look("net") != nil {
		t.Error("it must go")
	}
}

// TestOverlap is a younger network that waits for an older one.
func TestOverlap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.network("a", manualSpec("10.3.0.0/16", "", 7))
	w.expect(w.look("a"), "Ready", reasonProvisioned)
	w.network("b", manualSpec("10.3.4.0/24", "", 7))
	w.network("other-vlan", manualSpec("10.3.4.0/24", "", 8))
	elsewhere := manualSpec("10.3.4.0/24", "", 7)
	elsewhere.DatacenterIdentifier = "elsewhere-" + v1alpha2.Identifier(w.namespace[len(w.namespace)-6:])
	w.network("other-datacenter", elsewhere)
	nn := w.look("b")
	if message := w.expect(nn, "Error", reasonOverlap); !strings.Contains(message, w.namespace+"/a") || nn.Status.IPv4Prefix != "" {
		t.Errorf("the message names who holds it: %s; prefix %q", message, nn.Status.IPv4Prefix)
	}
	w.expect(w.look("other-vlan"), "Ready", reasonProvisioned)
	w.expect(w.look("other-datacenter"), "Ready", reasonProvisioned)
	w.change("a", func(nn *v1alpha2.NetworkNamespace) { nn.Labels = map[string]string{"seen": "again"} })
	w.expect(w.look("a"), "Ready", reasonProvisioned)

	w.delete(w.get("a"))
	if w.look("a") != nil {
		t.Fatal("a must go")
	}
	w.must(w.deliver(kindNetwork, "a", events.TypeRefDelete))
	w.expect(w.get("b"), "Ready", reasonProvisioned)
}

// TestOverlapRace has ten networks become Ready at the same moment that all want the
// same segment.
func TestOverlapRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const rivals = 10
	var group sync.WaitGroup
	for i := range rivals {
		group.Go(func() {
			name := fmt.Sprintf("n%d", i)
			w.network(name, manualSpec("10.4.0.0/24", "", v1alpha2.VLANID(9)))
			for range 3 {
				if err := w.deliver(kindNetwork, name, events.TypeRefAdd); err != nil && !kube.Conflict(err) {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	var holders []string
	for i := range rivals {
		if nn := w.get(fmt.Sprintf("n%d", i)); isReady(nn) {
			holders = append(holders, nn.Name)
		}
	}
	if len(holders) > 1 {
		t.Errorf("%v have the same segment", holders)
	}
	for i := range rivals {
		w.look(fmt.Sprintf("n%d", i))
	}
	ready := 0
	for i := range rivals {
		if isReady(w.get(fmt.Sprintf("n%d", i))) {
			ready++
		}
	}
	if ready != 1 {
		t.Errorf("%d networks are Ready in the end, want one", ready)
	}
}

func TestRivals(t *testing.T) {
	t.Parallel()
	make := func(name string, age time.Duration, ready bool) v1alpha2.NetworkNamespace {
		nn := someNetwork(name, manualSpec("10.5.0.0/24", "", 1))
		nn.CreationTimestamp.Time = noon.Add(-age)
		if ready {
			nn.Status.ProvisioningPhase, nn.Status.IPv4Prefix, nn.Status.VLANID = "Ready", "10.5.0.0/24", 1
		}
		return *nn
	}
	for name, tc := range map[string]struct {
		reason      string
		nn, other   v1alpha2.NetworkNamespace
		holder      bool
		gives, same bool
	}{
		"BothNew":        {reason: "the older one comes first", nn: make("a", 1, false), other: make("b", 2, false), holder: true},
		"BothNewAgain":   {reason: "the older one comes first", nn: make("b", 2, false), other: make("a", 1, false)},
		"SameSecond":     {reason: "of two of the same second one comes first", nn: make("b", 1, false), other: make("a", 1, false), holder: true},
		"InUse":          {reason: "machines use the younger one's segment", nn: make("a", 2, false), other: make("b", 1, true), holder: true},
		"BothReady":      {reason: "two that became Ready at once: the younger gives way", nn: make("a", 2, true), other: make("b", 1, true), gives: true},
		"BothReadyAgain": {reason: "two that became Ready at once: the younger gives way", nn: make("b", 1, true), other: make("a", 2, true), holder: true},
		"ReadyAgainst":   {reason: "who waits does not push out who has it", nn: make("a", 1, true), other: make("b", 2, false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seg, err := manualSegment(&tc.nn)
			if err != nil {
				t.Fatal(err)
			}
			holder, losers := rivals(&tc.nn, seg, []v1alpha2.NetworkNamespace{tc.nn, tc.other})
			if (holder != nil) != tc.holder || (len(losers) > 0) != tc.gives {
				t.Errorf("%s: holder %v, losers %v", tc.reason, holder, losers)
			}
		})
	}
}

func TestDeletionWaitsForUsers(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newWorld(t, map[string]source{"nam": m.nam})
	w.network("net", asks("nam"))
	w.expect(w.look("net"), "Ready", reasonProvisioned)
	nc := w.configuration("vm", "net", "", v1alpha1.InterfaceStatus{})
	a := w.allocation("reserved", "net", "", "10.64.0.9")
	cluster := &v1alpha1.KubernetesCluster{}
	cluster.Namespace, cluster.Name = w.namespace, "shop"
	cluster.Spec.NetworkNamespaceName = "net"
	cluster.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.33", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	w.must(w.kube.Create(t.Context(), cluster))
	w.delete(w.get("net"))
	message := w.expect(w.look("net"), "Ready", reasonInUse)
	if want := "waits for IPAllocation reserved, KubernetesCluster shop, NetworkConfiguration vm to be deleted"; message != want {
		t.Errorf("got %q, want %q", message, want)
	}
	for _, user := range []kube.Object{nc, a, cluster} {
		if len(m.Segments()) != 1 {
			t.Fatal("the segment was given back although it is in use")
		}
		w.delete(user)
		w.must(w.deliver("NetworkConfiguration", user.GetName(), events.TypeRefDelete))
	}
	if nn := w.get("net"); nn != nil {
		t.Errorf("it must go with its last user: %+v", nn.Status)
	}
	if n := len(m.Segments()); n != 0 {
		t.Errorf("%d segments are left at the manager", n)
	}
}

func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newWorld(t, map[string]source{"nam": m.nam})
	nn := w.network("net", asks("nam"))
	w.look("net")
	m.SetInUse(string(nn.UID), true)
	w.delete(nn)
	got := w.look("net")
	if message := w.expect(got, "Ready", "SourceConflict"); !strings.Contains(message, "load balancer") || got.Status.Phase != phaseDeleting {
		t.Errorf("phase %s, message %s", got.Status.Phase, message)
	}
	m.SetInUse(string(nn.UID), false)
	if w.look("net") == nil {
		t.Error("the source is left alone for a while")
	}
	w.clock.pass(longestWait + 2*time.Second)
	if w.look("net") != nil {
		t.Error("it must go now")
	}
}

// TestProcessDies kills the function after each of its writes.
func TestProcessDies(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newWorld(t, map[string]source{"nam": m.nam})
	whole := w.f.kube
	for left := range 4 {
		name := fmt.Sprintf("n%d", left)
		w.network(name, asks("nam"))
		w.f.kube, _ = w.counting(left)
		_ = w.deliver(kindNetwork, name, events.TypeRefAdd)
		w.f.kube = whole
		w.expect(w.look(name), "Ready", reasonProvisioned)
		if n := len(m.Segments()); n != 1 {
			t.Errorf("after %d writes: %d segments, want 1", left, n)
		}
		w.delete(w.get(name))
		w.f.kube, _ = w.counting(0)
		_ = w.deliver(kindNetwork, name, events.TypeRefUpdate)
		w.f.kube = whole
		if w.look(name) != nil || len(m.Segments()) != 0 {
			t.Errorf("after %d writes: network or segment are left", left)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	static := manualSpec("10.6.0.0/24", "10.6.0.1", 1)
	static.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static", Static: &v1alpha2.StaticPool{IPv4RangeStart: "10.6.0.10", IPv4RangeEnd: "10.6.0.19"}}
	w.network("static", static)
	w.network("dhcp", manualSpec("10.7.0.0/29", "10.7.0.1", 1))
	summary := func(name string) v1alpha2.IPAllocationSummary { return *w.get(name).Status.IPAllocationSummary }
	w.look("static")
	w.look("dhcp")
	if got := summary("dhcp"); got != (v1alpha2.IPAllocationSummary{Type: "dhcp", Provider: "kea", TotalCount: 5, AvailableCount: 5}) {
		t.Errorf("dhcp, empty: %+v", got)
	}
	w.configuration("one", "static", "shop", v1alpha1.InterfaceStatus{})
	w.allocation("one-eth0", "static", "one", "10.6.0.10")
	w.allocation("kept", "static", "", "10.6.0.200") // from before the pool was made smaller
	w.configuration("two", "dhcp", "shop", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.7.0.3"}, DHCPReserved: true})
	w.configuration("three", "dhcp", "books", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.7.0.4"}})
	client, counted := w.counting(-1)
	w.f.kube = client
	w.must(w.deliver("NetworkConfiguration", "two", events.TypeRefUpdate))
	if got := summary("static"); got != (v1alpha2.IPAllocationSummary{Type: "static", Provider: "static-ip-operator", AllocatedCount: 2, TotalCount: 10, AvailableCount: 9}) {
		t.Errorf("static: %+v", got)
	}
	if got := summary("dhcp"); got.AllocatedCount != 1 || got.AvailableCount != 4 {
		t.Errorf("dhcp: %+v", got)
	}
	if got := w.get("dhcp").Status.AssociatedKubernetesClusterIDs; !slices.Equal(got, []string{"books", "shop"}) {
		t.Errorf("clusters of dhcp: %v", got)
	}
	before := counted.n
	w.allocation("two-eth0", "static", "two", "10.6.0.11")
	for range 20 {
		w.must(w.deliver("IPAllocation", "two-eth0", events.TypeRefUpdate))
	}
	if counted.n != before {
		t.Errorf("a burst is counted a few times, and not for each event: %d writes", counted.n-before)
	}
	w.clock.pass(recount + 2*time.Second)
	w.must(w.deliver(kindNetwork, "static", events.TypeResync))
	if got := summary("static"); got.AllocatedCount != 3 || w.get("static").Status.NextCheckTime != nil {
		t.Errorf("the last count: %+v, next at %v", got, w.get("static").Status.NextCheckTime)
	}
	w.must(w.deliver(kindNetwork, "dhcp", events.TypeResync))
	before = counted.n
	for range 3 {
		w.must(w.deliver(kindNetwork, "static", events.TypeResync))
		w.must(w.deliver(kindNetwork, "dhcp", events.TypeResync))
		w.must(w.deliver("IPAllocation", "one-eth0", events.TypeRefUpdate))
	}
	if counted.n != before {
		t.Errorf("a system in which nothing happens is written to %d times", counted.n-before)
	}
}

// answers delivers what an external IPAM says.
func (w *world) answers(eventType string, data any) error {
	w.t.Helper()
	e := event.New()
	e.SetType(eventType)
	e.SetSource("/ipam")
	e.SetID("7")
	w.must(e.SetData(event.ApplicationJSON, data))
	_, err := w.f.handle(w.t.Context(), e)
	return err
}

func TestExternal(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	spec := asks("corp-ipam")
	spec.NetworkProvisioning.Parameters = map[string]string{"size": "24"}
	nn := w.network("net", spec)
	w.expect(w.look("net"), "Pending", reasonWorking)
	var asked events.NetworkRequested
	w.must(json.Unmarshal(w.sent.events[0].Data(), &asked))
	want := events.NetworkRequested{Object: object(nn), Provider: "corp-ipam", DatacenterIdentifier: w.namespace, Parameters: map[string]string{"size": "24"}}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("the request (-want +got):\n%s", diff)
	}
	w.look("net")
	if n := len(w.sent.types()); n != 1 {
		t.Errorf("an IPAM is not asked again at once: %d events", n)
	}
	w.clock.pass(time.Minute)
	w.look("net")
	if first, again := w.sent.events[0], w.sent.events[1]; first.ID() != again.ID() {
		t.Errorf("asking again is the same event: %s and %s", first.ID(), again.ID())
	}

	w.must(w.answers(events.TypeNetworkFailed, events.NetworkFailed{UID: string(nn.UID), Reason: "NoFreePrefix", Message: "ask for a smaller one"}))
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
		w.must(w.answers(events.TypeNetworkProvisioned, bad))
		_, got, message := ready(w.get("net"))
		if got != "SourceUnexpectedAnswer" {
			t.Errorf("%s: got %s %s", reason, got, message)
		}
	}
	foreign := good
	foreign.Provider = "another"
	if err := w.answers(events.TypeNetworkProvisioned, foreign); !events.IsPermanent(err) {
		t.Errorf("the answer of another IPAM: got %v", err)
	}
	for range 2 {
		w.must(w.answers(events.TypeNetworkProvisioned, good))
	}
	got := w.get("net")
	w.expect(got, "Ready", reasonProvisioned)
	if s := got.Status; s.NamespaceID != "seg-1" || s.IPv4Gateway != "10.20.30.1" || s.VLANID != 230 {
		t.Errorf("status %+v", s)
	}
	w.must(w.answers(events.TypeNetworkFailed, events.NetworkFailed{UID: string(nn.UID), Reason: "Late"}))
	w.expect(w.get("net"), "Ready", reasonProvisioned)

	w.delete(got)
	if w.look("net") != nil {
		t.Fatal("it must go")
	}
	last := w.sent.events[len(w.sent.events)-1]
	var released events.NetworkReleased
	w.must(json.Unmarshal(last.Data(), &released))
	if last.Type() != events.TypeNetworkReleased || released.ID != "seg-1" || released.UID != string(nn.UID) {
		t.Errorf("sent %s %+v", last.Type(), released)
	}
	w.must(w.answers(events.TypeNetworkProvisioned, good))
}

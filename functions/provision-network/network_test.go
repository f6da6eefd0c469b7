package main

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/network"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/sim/faults"
	"github.com/vitistack/stack/tests/stand/feed"
)

// TestSeed provisions the network of the specification's example.
func TestSeed(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("192.168.10.0/24", "192.168.10.1", 200)
	spec.SupervisorIdentifier = "lab-01"
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static", Provider: "static-ip-operator", Static: &v1alpha2.StaticPool{
		IPv4CIDR: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", IPv4RangeStart: "192.168.10.10", IPv4RangeEnd: "192.168.10.200", VLANID: 200, DNS: []string{"192.168.10.1"},
	}}
	nn := w.network("lab-network", spec)
	got := w.reconcile("lab-network")
	want := v1alpha2.NetworkNamespaceStatus{
		ProvisioningPhase: "Ready", IPv4Prefix: "192.168.10.0/24", IPv4Gateway: "192.168.10.1", VLANID: 200, Phase: "Active", Status: "OK",
		DatacenterIdentifier: nn.Spec.DatacenterIdentifier, SupervisorIdentifier: "lab-01", ObservedGeneration: 1,
		IPAllocationSummary: &v1alpha2.IPAllocationSummary{Type: "static", Provider: "static-ip-operator", AvailableCount: 191, Available: "191", TotalCount: 191},
	}
	if diff := cmp.Diff(want, got.Status, cmpopts.IgnoreFields(v1alpha2.NetworkNamespaceStatus{}, "Conditions")); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if again := w.reconcile("lab-network"); again.ResourceVersion != got.ResourceVersion {
		t.Error("a repeated delivery must write nothing")
	}
}

func TestDualStack(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("10.1.0.0/30", "10.1.0.1", 0)
	spec.NetworkProvisioning.Manual.IPv6CIDR, spec.NetworkProvisioning.Manual.IPv6Gateway = "2001:db8:1::/64", "2001:db8:1::1"
	w.network("both", spec)
	six := v1alpha2.NetworkNamespaceSpec{NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "manual", Manual: &v1alpha2.ManualSegment{IPv6CIDR: "2001:db8:2::/64"}},
		IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static"}}
	w.network("six", six)
	if s := w.reconcile("both").Status; s.IPv6Prefix != "2001:db8:1::/64" || s.IPv6Gateway != "2001:db8:1::1" || s.IPAllocationSummary.TotalCount != 1 {
		t.Errorf("both: %+v", s)
	}
	if s := w.reconcile("six").Status; s.ProvisioningPhase != "Ready" || s.IPAllocationSummary == nil || s.IPAllocationSummary.TotalCount != maxCount {
		t.Errorf("six: %+v, summary %+v", s, s.IPAllocationSummary)
	}
}

// TestSlowManager provisions a segment that takes fifteen seconds.
func TestSlowManager(t *testing.T) {
	t.Parallel()
	m := newManager(t, 15*time.Second)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	w.clock, w.f.now = m.clock, m.clock.Now
	w.network("slow", asks("nam"))
	if err := w.deliver(kindNetwork, "slow", events.TypeRefAdd); err != nil {
		t.Fatal(err)
	}
	nn := w.get("slow")
	w.expect(nn, "Pending", provider.ReasonWorking)
	if nn.Annotations[v1alpha1.AnnotationProvider] != "nam" || nn.Status.NextCheckTime == nil {
		t.Fatalf("the provider and the next check must be recorded: %v, %v", nn.Annotations, nn.Status.NextCheckTime)
	}
	if again := w.reconcile("slow"); again.ResourceVersion != nn.ResourceVersion {
		t.Error("before the next check, nothing may be requested or written")
	}
	w.clock.Pass(10 * time.Second)
	if err := w.deliver(kindNetwork, "slow", events.TypeResync); !errors.Is(err, errRedeliver) {
		t.Errorf("a check that is due soon must be redelivered by the broker, got %v", err)
	}
	w.clock.Pass(20 * time.Second)
	w.must(w.deliver(kindNetwork, "slow", events.TypeResync))
	w.expect(w.get("slow"), "Ready", reasonProvisioned)
}

// TestWorkAfterOutage has a manager accept the request only after minutes, and then take time for the
// work.
func TestWorkAfterOutage(t *testing.T) {
	t.Parallel()
	m := newManager(t, 15*time.Second)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	w.clock, w.f.now = m.clock, m.clock.Now
	w.must(m.plan.Set(faults.Rule{Error: "503"}))
	w.network("net", asks("nam"))
	w.expect(w.reconcile("net"), "Pending", "SourceUnavailable")
	w.clock.Pass(provider.MaxDelay - time.Minute)
	w.expect(w.reconcile("net"), "Pending", "SourceUnavailable")
	w.must(m.plan.Set())
	w.clock.Pass(provider.MaxDelay)
	nn := w.reconcile("net")
	w.expect(nn, "Pending", provider.ReasonWorking)
	if late := nextCheck(nn).Sub(m.clock.Now()); late > provider.MaxWorkDelay+time.Second {
		t.Errorf("the next check is in %s, which must not depend on the earlier outage", late)
	}
	w.clock.Pass(provider.MaxWorkDelay + time.Second)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
}

func TestFaultsAreTold(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	w.must(m.plan.Set(faults.Rule{Operation: "PUT /segments", Error: "401"}))
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	if message := w.expect(w.reconcile("net"), "Error", "SourceUnauthorized"); !strings.Contains(message, "NAM_TOKEN") || strings.Contains(message, namToken) {
		t.Errorf("the message says what to change: %s", message)
	}
	w.must(m.plan.Set())
	w.expect(w.reconcile("net"), "Error", "SourceUnauthorized") // no check is due for a while
	w.clock.Pass(provider.MaxDelay + 2*time.Second)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)

	w.must(m.plan.Set(faults.Rule{Error: "503"}))
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Annotations[v1alpha1.AnnotationReconcile] = "now"
	})
	nn := w.reconcile("net")
	w.expect(nn, "Ready", "SourceUnavailable")
	if nn.Status.IPv4Prefix == "" || kube.ReconcileRequested(nn) {
		t.Errorf("a segment is kept while its source is down, and a requested reconcile is answered once: %+v", nn)
	}
	w.must(m.plan.Set(faults.Rule{Error: "lie-taken"}))
	w.clock.Pass(provider.MaxDelay)
	if message := w.expect(w.reconcile("net"), "Ready", "SourceChanged"); !strings.Contains(message, "10.98.0.0/24") {
		t.Errorf("a changed answer of the source must be reported: %s", message)
	}
}

func TestNotConfigured(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.network("net", v1alpha2.NetworkNamespaceSpec{})
	if message := w.expect(w.reconcile("net"), "Error", "ProviderNotConfigured"); !strings.Contains(message, "NAM_URL") {
		t.Errorf("the message says what to set: %s", message)
	}
	w.change("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = manualSpec("10.2.0.0/24", "", 5).NetworkProvisioning
	})
	nn := w.reconcile("net")
	w.expect(nn, "Ready", reasonProvisioned)
	w.changeUnvalidated("net", func(nn *v1alpha2.NetworkNamespace) {
		nn.Spec.NetworkProvisioning = asks("corp-ipam").NetworkProvisioning
	})
	if message := w.expect(w.reconcile("net"), "Ready", "ProviderChanged"); !strings.Contains(message, "manual") || len(w.sentTypes()) > 0 {
		t.Errorf("a network in use keeps its provider: %s, sent %v", message, w.sentTypes())
	}
	w.delete(nn)
	if w.reconcile("net") != nil {
		t.Error("the network must be deleted")
	}
}

// TestDeletedIsCounted deletes a network with machines, and expects their number in the status.
func TestDeletedIsCounted(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("10.16.0.0/24", "10.16.0.1", 16)
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
	w.network("net", spec)
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	users := []*v1alpha2.IPAllocation{w.allocation("one", "net", "", "10.16.0.10"), w.allocation("two", "net", "", "10.16.0.11")}
	w.delete(w.get("net"))
	for left := len(users); left > 0; left-- {
		nn := w.reconcile("net")
		if w.expect(nn, "Deleting", reasonInUse); nn.Status.Phase != phaseDeleting || nn.Status.IPAllocationSummary.AllocatedCount != int64(left) {
			t.Errorf("phase %s, summary %+v, want Deleting and %d", nn.Status.Phase, nn.Status.IPAllocationSummary, left)
		}
		w.delete(users[left-1])
	}
	w.network("next", spec)
	w.expect(w.reconcile("next"), "Error", plan.ReasonOverlap)
	if w.reconcile("net") != nil {
		t.Error("the network must be deleted with its last user")
	}
	w.must(w.deliver(kindNetwork, "net", events.TypeRefDelete))
	w.expect(w.get("next"), "Ready", reasonProvisioned)
}

// TestSegmentStays has a spec describe a segment other than the allocated one. An earlier version of
// the API server accepted that. Machines keep the segment, and the remedy in the message leads back to
// Ready.
func TestSegmentStays(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha2.ManualSegment){
		"Prefix":  func(m *v1alpha2.ManualSegment) { m.IPv4CIDR, m.IPv4Gateway = "10.18.0.0/24", "10.18.0.1" },
		"VLAN":    func(m *v1alpha2.ManualSegment) { m.VLANID = 18 },
		"Gateway": func(m *v1alpha2.ManualSegment) { m.IPv4Gateway = "10.17.0.9" },
		"Family":  func(m *v1alpha2.ManualSegment) { m.IPv6CIDR = "2001:db8:17::/64" },
		"Overlap": func(m *v1alpha2.ManualSegment) { m.IPv4CIDR, m.IPv4Gateway, m.VLANID = "10.19.0.0/24", "", 19 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnv(t, nil)
			w.network("other", manualSpec("10.19.0.0/16", "", 19))
			w.expect(w.reconcile("other"), "Ready", reasonProvisioned)
			w.network("net", manualSpec("10.17.0.0/24", "10.17.0.1", 17))
			was := w.reconcile("net")
			w.expect(was, "Ready", reasonProvisioned)
			w.changeUnvalidated("net", func(nn *v1alpha2.NetworkNamespace) { change(nn.Spec.NetworkProvisioning.Manual) })
			now := w.reconcile("net")
			message := w.expect(now, "Ready", "SegmentChanged")
			if !strings.Contains(message, "10.17.0.0/24 (gateway 10.17.0.1, VLAN 17)") || !strings.Contains(message, "write that back") {
				t.Errorf("the message says what to write: %s", message)
			}
			if has, _ := segment.FromStatus(now); now.Status.IPv4Prefix != was.Status.IPv4Prefix || has.String() != "10.17.0.0/24 (gateway 10.17.0.1, VLAN 17)" {
				t.Errorf("status %+v, want the allocated segment", now.Status)
			}
			w.network("newcomer", manualSpec("10.17.0.0/25", "", 17))
			w.expect(w.reconcile("newcomer"), "Error", plan.ReasonOverlap)
			w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec = was.Spec })
			w.clock.Pass(2 * provider.MaxDelay)
			w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
		})
	}
}

// TestLinkLocalGateway writes the link-local IPv6 gateway that most routers announce, in both fields
// that accept it.
func TestLinkLocalGateway(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	block := manualSpec("", "", 23)
	block.NetworkProvisioning.Manual.IPv6CIDR, block.NetworkProvisioning.Manual.IPv6Gateway = "2001:db8:23::/64", "fe80::1"
	block.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
	inferred := v1alpha2.NetworkNamespaceSpec{IPAllocation: &v1alpha2.IPAllocationPolicy{Type: "static", Static: &v1alpha2.StaticPool{
		IPv4CIDR: "10.24.0.0/24", IPv4Gateway: "10.24.0.1", IPv6CIDR: "2001:db8:24::/64", IPv6Gateway: "fe80::1", VLANID: 24,
	}}}
	for name, spec := range map[string]v1alpha2.NetworkNamespaceSpec{"block": block, "inferred": inferred} {
		w.network(name, spec)
		nn := w.reconcile(name)
		if w.expect(nn, "Ready", reasonProvisioned); nn.Status.IPv6Gateway != "fe80::1" {
			t.Errorf("%s: status %+v", name, nn.Status)
		}
	}
}

// TestUnusable has networks without a usable address. Each message says what to write instead, and
// that leads to Ready.
func TestUnusable(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	w.f.providers["corp"] = always{segment.Segment{IPv4: netip.MustParsePrefix("10.20.0.0/24"), VLAN: 20}}
	w.f.providers["tiny"] = always{segment.Segment{IPv4: netip.MustParsePrefix("10.21.0.0/32"), VLAN: 21}}
	w.f.providers["six"] = always{segment.Segment{IPv6: netip.MustParsePrefix("2001:db8:22::/64"), VLAN: 22}}
	of := func(provider string, pool v1alpha2.StaticPool) v1alpha2.NetworkNamespaceSpec {
		spec := asks(provider)
		spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static", Static: &pool}
		return spec
	}
	for name, tc := range map[string]struct {
		spec         v1alpha2.NetworkNamespaceSpec
		reason, says string
		fix          func(*v1alpha2.NetworkNamespaceSpec)
	}{
		"range":   {of("corp", v1alpha2.StaticPool{IPv4RangeStart: "10.99.0.10", IPv4RangeEnd: "10.99.0.20"}), "InvalidPool", "range 10.99.0.10-10.99.0.20 is not inside 10.20.0.0/24", func(s *v1alpha2.NetworkNamespaceSpec) { s.IPAllocation.Static = nil }},
		"gateway": {of("corp", v1alpha2.StaticPool{IPv4Gateway: "10.99.0.1"}), "InvalidPool", "gateway 10.99.0.1 is outside of 10.20.0.0/24", func(s *v1alpha2.NetworkNamespaceSpec) { s.IPAllocation.Static.IPv4Gateway = "10.20.0.1" }},
		"last":    {of("corp", v1alpha2.StaticPool{IPv4Gateway: "10.20.0.255"}), "InvalidPool", "the broadcast address", func(s *v1alpha2.NetworkNamespaceSpec) { s.IPAllocation.Static.IPv4Gateway = "10.20.0.254" }},
		"nothing": {of("corp", v1alpha2.StaticPool{ExcludedAddresses: []string{"10.20.0.0/24"}}), plan.ReasonNoAddress, "exclude fewer addresses", func(s *v1alpha2.NetworkNamespaceSpec) { s.IPAllocation.Static.ExcludedAddresses[0] = "10.20.0.0/25" }},
		"six":     {asks("six"), plan.ReasonNoAddress, "set spec.ipAllocation.type to static", func(s *v1alpha2.NetworkNamespaceSpec) { s.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"} }},
		"tiny":    {asks("tiny"), plan.ReasonNoAddress, "use a larger prefix", nil},
	} {
		w.network(name, tc.spec)
		nn := w.reconcile(name)
		if message := w.expect(nn, "Error", tc.reason); !strings.Contains(message, tc.says) || nn.Status.IPv4Prefix != "" {
			t.Errorf("%s: message %s, status %+v", name, message, nn.Status)
		}
		if tc.fix != nil {
			w.change(name, func(nn *v1alpha2.NetworkNamespace) { tc.fix(&nn.Spec) })
			w.expect(w.reconcile(name), "Ready", reasonProvisioned)
		}
		w.delete(w.get(name))
		w.reconcile(name)
	}
}

func TestDeletionWaitsForUsers(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	w.network("net", asks("nam"))
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	nc := w.configuration("vm", "net", "", v1alpha1.InterfaceStatus{})
	a := w.allocation("reserved", "net", "", "10.64.0.9")
	cluster := &v1alpha1.KubernetesCluster{}
	cluster.Namespace, cluster.Name = w.namespace, "shop"
	cluster.Spec.NetworkNamespaceName = "net"
	cluster.Spec.Topology = v1alpha1.ClusterTopology{Version: "1.33", ControlPlane: v1alpha1.ControlPlaneTopology{Replicas: 1}}
	w.must(w.kube.Create(t.Context(), cluster))
	w.delete(w.get("net"))
	message := w.expect(w.reconcile("net"), "Deleting", reasonInUse)
	if want := "waiting for IPAllocation reserved, KubernetesCluster shop, NetworkConfiguration vm to be deleted"; message != want {
		t.Errorf("got %q, want %q", message, want)
	}
	for _, user := range []kube.Object{nc, a, cluster} {
		if len(m.Segments()) != 1 {
			t.Fatal("the segment was released although it is in use")
		}
		w.delete(user)
		w.must(w.deliver("NetworkConfiguration", user.GetName(), events.TypeRefDelete))
	}
	if nn := w.get("net"); nn != nil {
		t.Errorf("the network must be deleted with its last user: %+v", nn.Status)
	}
	if n := len(m.Segments()); n != 0 {
		t.Errorf("%d segments are left at the manager", n)
	}
}

func TestReleaseIsRefused(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	nn := w.network("net", asks("nam"))
	w.reconcile("net")
	m.SetInUse(string(nn.UID), true)
	w.delete(nn)
	got := w.reconcile("net")
	if message := w.expect(got, "Deleting", "SourceConflict"); !strings.Contains(message, "load balancer") || got.Status.Phase != phaseDeleting {
		t.Errorf("phase %s, message %s", got.Status.Phase, message)
	}
	m.SetInUse(string(nn.UID), false)
	if w.reconcile("net") == nil {
		t.Error("no check of the source is due")
	}
	w.clock.Pass(provider.MaxDelay + 2*time.Second)
	if w.reconcile("net") != nil {
		t.Error("the network must be deleted")
	}
}

// TestProcessDies kills the function after each of its writes.
func TestProcessDies(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	whole := w.f.kube
	for left := range 5 {
		name := fmt.Sprintf("n%d", left)
		w.network(name, asks("nam"))
		w.f.kube, _ = w.countingClient(left)
		_ = w.deliver(kindNetwork, name, events.TypeRefAdd)
		w.f.kube = whole
		w.clock.Pass(requestTimeout + 2*time.Second)
		w.expect(w.reconcile(name), "Ready", reasonProvisioned)
		if n := len(m.Segments()); n != 1 {
			t.Errorf("after %d writes: %d segments, want 1", left, n)
		}
		w.delete(w.get(name))
		w.f.kube, _ = w.countingClient(0)
		_ = w.deliver(kindNetwork, name, events.TypeRefUpdate)
		w.f.kube = whole
		if w.reconcile(name) != nil || len(m.Segments()) != 0 {
			t.Errorf("after %d writes: network or segment are left", left)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	static := manualSpec("10.6.0.0/24", "10.6.0.1", 1)
	static.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static", Static: &v1alpha2.StaticPool{IPv4RangeStart: "10.6.0.10", IPv4RangeEnd: "10.6.0.19"}}
	w.network("static", static)
	w.network("dhcp", manualSpec("10.7.0.0/29", "10.7.0.1", 1))
	summary := func(name string) v1alpha2.IPAllocationSummary { return *w.get(name).Status.IPAllocationSummary }
	w.reconcile("static")
	w.reconcile("dhcp")
	if got := summary("dhcp"); got != (v1alpha2.IPAllocationSummary{Type: "dhcp", Provider: "kea", TotalCount: 5, AvailableCount: 5, Available: "5"}) {
		t.Errorf("dhcp, empty: %+v", got)
	}
	w.configuration("one", "static", "shop", v1alpha1.InterfaceStatus{})
	w.allocation("one-eth0", "static", "one", "10.6.0.10")
	w.allocation("kept", "static", "", "10.6.0.200") // allocated before the pool was reduced
	w.configuration("two", "dhcp", "shop", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.7.0.3"}, DHCPReserved: true})
	w.configuration("three", "dhcp", "books", v1alpha1.InterfaceStatus{IPv4Addresses: []string{"10.7.0.4"}})
	client, counted := w.countingClient(-1)
	w.f.kube = client
	w.must(w.deliver("NetworkConfiguration", "two", events.TypeRefUpdate))
	if got := summary("static"); got != (v1alpha2.IPAllocationSummary{Type: "static", Provider: "static-ip-operator", AllocatedCount: 2, TotalCount: 10, AvailableCount: 9, Available: "9"}) {
		t.Errorf("static: %+v", got)
	}
	if got := summary("dhcp"); got.AllocatedCount != 1 || got.AvailableCount != 4 {
		t.Errorf("dhcp: %+v", got)
	}
	if got := w.get("dhcp").Status.AssociatedKubernetesClusterIDs; !slices.Equal(got, []string{"books", "shop"}) {
		t.Errorf("clusters of dhcp: %v", got)
	}
	w.allocation("two-eth0", "static", "two", "10.6.0.11")
	before := counted.n
	for range 20 {
		w.must(w.deliver("IPAllocation", "two-eth0", events.TypeRefUpdate))
	}
	if got := summary("static"); got.AllocatedCount != 3 || counted.n-before > 2 {
		t.Errorf("many duplicates of an event: %+v after %d writes", got, counted.n-before)
	}
	before = counted.n
	for range 3 {
		w.must(w.deliver(kindNetwork, "static", events.TypeResync))
		w.must(w.deliver(kindNetwork, "dhcp", events.TypeResync))
		w.must(w.deliver("IPAllocation", "one-eth0", events.TypeRefUpdate))
	}
	if counted.n != before {
		t.Errorf("an idle system is written to %d times", counted.n-before)
	}
}

// TestBurstIsCounted allocates many addresses at once.
func TestBurstIsCounted(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("10.8.0.0/24", "", 1)
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
	w.network("net", spec)
	w.reconcile("net")
	client, counted := w.countingClient(-1)
	w.f.kube, w.f.pause = client, 300*time.Millisecond
	const burst = 40
	var group sync.WaitGroup
	for i := range burst {
		group.Go(func() {
			name := fmt.Sprintf("a%d", i)
			w.allocation(name, "net", "", fmt.Sprintf("10.8.0.%d", 10+i))
			if err := w.deliver("IPAllocation", name, events.TypeRefUpdate); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if s := w.get("net").Status; s.IPAllocationSummary.AllocatedCount != burst || s.NextCheckTime != nil {
		t.Errorf("%+v, next at %v", s.IPAllocationSummary, s.NextCheckTime)
	}
	if counted.done > burst/4 {
		t.Errorf("%d addresses caused %d writes", burst, counted.done)
	}
	nn := w.get("net")
	before := nn.DeepCopy()
	nn.Status.NextCheckTime, nn.Status.IPAllocationSummary.AllocatedCount = checkTime(w.clock.Now(), countTimeout), 7
	_, err := w.kube.PatchStatus(t.Context(), before, nn)
	w.must(err)
	w.must(w.deliver("IPAllocation", "a1", events.TypeRefUpdate))
	if got := w.get("net").Status.IPAllocationSummary.AllocatedCount; got != 7 {
		t.Errorf("the recorded count must prevent another count, but there were %d", got)
	}
	w.clock.Pass(countTimeout + 2*time.Second)
	w.must(w.deliver(kindNetwork, "net", events.TypeResync))
	if s := w.get("net").Status; s.IPAllocationSummary.AllocatedCount != burst || s.NextCheckTime != nil {
		t.Errorf("after a process died: %+v, next at %v", s.IPAllocationSummary, s.NextCheckTime)
	}
}

// TestManyAreCounted fills so many networks at once that some deliveries leave the count to others, which end before they
// count. Resync counts then.
func TestManyAreCounted(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("10.9.0.0/24", "", 1)
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
	w.network("net", spec)
	w.reconcile("net")
	w.f.pause = time.Hour
	w.f.recounts.waiting = maxWaiting
	for i := range 2 {
		name := fmt.Sprintf("a%d", i)
		w.allocation(name, "net", "", fmt.Sprintf("10.9.0.%d", 10+i))
		w.must(w.deliver("IPAllocation", name, events.TypeRefUpdate))
	}
	if s := w.get("net").Status; s.IPAllocationSummary.AllocatedCount != 1 || s.NextCheckTime == nil {
		t.Errorf("%+v, next at %v: want the first count, and the next check for resync", s.IPAllocationSummary, s.NextCheckTime)
	}
	w.clock.Pass(countTimeout + 2*time.Second)
	w.must(w.deliver(kindNetwork, "net", events.TypeResync))
	if s := w.get("net").Status; s.IPAllocationSummary.AllocatedCount != 2 || s.NextCheckTime != nil {
		t.Errorf("after resync: %+v, next at %v", s.IPAllocationSummary, s.NextCheckTime)
	}
	if n := w.f.recounts.waiting; n != maxWaiting {
		t.Errorf("%d deliveries wait, want %d", n, maxWaiting)
	}
}

// TestLeftCounts has a delivery leave the count of a network to another one, which waits to count a network.
func TestLeftCounts(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	for i, name := range []string{"a", "b"} {
		spec := manualSpec(fmt.Sprintf("10.%d.0.0/24", i+1), "", v1alpha2.VLANID(i+1))
		spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
		w.network(name, spec)
		w.reconcile(name)
	}
	w.f.pause, w.f.recounts.waiting = 4*time.Second, maxWaiting-1
	var group sync.WaitGroup
	w.allocation("a0", "a", "", "10.1.0.10")
	group.Go(func() {
		if err := w.deliver("IPAllocation", "a0", events.TypeRefUpdate); err != nil {
			t.Error(err)
		}
	})
	isWaiting := func() bool {
		w.f.recounts.mu.Lock()
		defer w.f.recounts.mu.Unlock()
		return w.f.recounts.waiting == maxWaiting
	}
	for !isWaiting() {
		time.Sleep(10 * time.Millisecond)
	}
	w.allocation("b0", "b", "", "10.2.0.10")
	w.must(w.deliver("IPAllocation", "b0", events.TypeRefUpdate))
	if s := w.get("b").Status; s.NextCheckTime == nil {
		t.Errorf("%+v: want the count of b to be left to the first delivery", s.IPAllocationSummary)
	}
	group.Wait()
	for _, name := range []string{"a", "b"} {
		if s := w.get(name).Status; s.IPAllocationSummary.AllocatedCount != 1 || s.NextCheckTime != nil {
			t.Errorf("%s: %+v, next at %v: want it counted without resync", name, s.IPAllocationSummary, s.NextCheckTime)
		}
	}
	if w.f.recounts.waiting != maxWaiting-1 || len(w.f.recounts.left) > 0 {
		t.Errorf("%d deliveries wait, and %d networks are left", w.f.recounts.waiting, len(w.f.recounts.left))
	}
}

// TestEventsOfCounts delivers the event of a count, which requires nothing, and then that of a user's change.
func TestEventsOfCounts(t *testing.T) {
	t.Parallel()
	w := newEnv(t, nil)
	spec := manualSpec("10.9.0.0/24", "", 1)
	spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: "static"}
	w.network("net", spec)
	w.reconcile("net")
	time.Sleep(time.Second) // managed fields have times of whole seconds
	w.allocation("a", "net", "", "10.9.0.10")
	w.must(w.deliver("IPAllocation", "a", events.TypeRefUpdate))
	isUsageEvent := func() bool {
		e := event.New()
		e.SetType(events.TypeUpdate)
		w.must(feed.Carry(&e, w.get("net")))
		return network.IsUsageEvent(e)
	}
	if !isUsageEvent() {
		t.Errorf("the event of a count: managed fields %+v", w.get("net").ManagedFields)
	}
	time.Sleep(time.Second)
	w.change("net", func(nn *v1alpha2.NetworkNamespace) { metav1.SetMetaDataAnnotation(&nn.ObjectMeta, "owner", "shop") })
	if isUsageEvent() {
		t.Errorf("the event of a user's change: managed fields %+v", w.get("net").ManagedFields)
	}
}

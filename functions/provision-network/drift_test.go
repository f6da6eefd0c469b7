package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/stack/apis/segment/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/sim/faults"
	namsim "github.com/vitistack/stack/tests/sim/nam"
)

// TestRecheck checks networks that are Ready against their source: unchanged, down, without the
// segment, with the segment again, and with another segment. A lost segment is never replaced.
func TestRecheck(t *testing.T) {
	t.Parallel()
	manager, library := newManager(t, 0), newLibrary(t)
	for name, tc := range map[string]struct {
		source provider.Interface
		spec   v1alpha2.NetworkNamespaceSpec
		plan   *faults.Plan
		// left returns how many segments the source has.
		left func() int
	}{
		"NAM": {manager.nam, namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26}), manager.plan, func() int { return len(manager.Segments()) }},
		"NetBox": {library.netbox, netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}), library.plan, func() int {
			prefixes, addresses, vlans := library.Taken()
			return len(prefixes) + len(addresses) + len(vlans)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newEnv(t, map[string]provider.Interface{"nam": tc.source, "netbox": tc.source})
			tc.spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			w.network("net", tc.spec)
			nn := w.reconcile("net")
			w.expect(nn, "Ready", reasonProvisioned)
			version := nn.ResourceVersion
			again := func() *v1alpha2.NetworkNamespace {
				w.must(w.deliver(kindNetwork, "net", events.TypeResync))
				return w.get("net")
			}
			unwritten := func(why string) {
				if got := again(); got.ResourceVersion != version {
					t.Errorf("%s: status was written: %+v", why, got.Status)
				}
			}
			unwritten("an unchanged segment")
			w.must(tc.plan.Set(faults.Rule{Error: "503"}))
			unwritten("the source is down")
			w.must(tc.plan.Set(faults.Rule{Error: "401"}))
			w.expect(again(), "Ready", "SourceUnauthorized")
			w.must(tc.plan.Set())
			w.clock.Pass(2 * provider.MaxDelay)
			w.expect(w.reconcile("net"), "Ready", reasonProvisioned)

			w.must(tc.source.Release(t.Context(), nn))
			for range 2 {
				got := again()
				if message := w.expect(got, "Ready", provider.ReasonGone); !strings.Contains(message, string(nn.UID)) || got.Status.IPv4Prefix != nn.Status.IPv4Prefix {
					t.Errorf("the segment is kept, and the message says what to restore: %s %+v", message, got.Status)
				}
				w.clock.Pass(2 * provider.MaxDelay)
			}
			w.changeUnvalidated("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.SupervisorIdentifier = "moved" })
			if got := w.reconcile("net"); got.Status.IPv4Prefix != nn.Status.IPv4Prefix || got.Status.ObservedGeneration != got.Generation {
				t.Errorf("a changed spec changes nothing about a lost segment: %+v", got.Status)
			}
			w.expect(w.get("net"), "Ready", provider.ReasonGone)
			w.clock.Pass(2 * provider.MaxDelay)
			if n := tc.left(); n != 0 {
				t.Errorf("%d segments were created in place of the lost one", n)
			}
			provide := func(nn *v1alpha2.NetworkNamespace) {
				_, err := tc.source.Provide(t.Context(), nn)
				w.must(err)
			}
			provide(nn)
			w.expect(again(), "Ready", reasonProvisioned)

			w.must(tc.source.Release(t.Context(), nn))
			provide(someNetwork(uidA, tc.spec))
			provide(nn)
			got := again()
			if message := w.expect(got, "Ready", "SourceChanged"); !strings.Contains(message, nn.Status.IPv4Prefix) || got.Status.IPv4Prefix != nn.Status.IPv4Prefix {
				t.Errorf("the message names the earlier segment, which is kept: %s %+v", message, got.Status)
			}
		})
	}
}

// TestNewSettings has an administrator of the manager change the DNS servers and the egress address of a Ready network. The
// status has them after one write, and the network keeps its segment.
func TestNewSettings(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	spec := namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26})
	spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
	w.network("net", spec)
	nn := w.reconcile("net")
	w.expect(nn, "Ready", reasonProvisioned)
	for _, dns := range [][]string{{"192.0.2.53", "192.0.2.54"}, nil} {
		m.Edit(string(nn.UID), func(s *namsim.Segment) { s.DNS, s.IPv4EgressIP = dns, "192.0.2.1" })
		w.must(w.deliver(kindNetwork, "net", events.TypeResync))
		got := w.get("net")
		w.expect(got, "Ready", reasonProvisioned)
		if s := got.Status; !slices.Equal(s.DNS, dns) || s.IPv4EgressIP != "192.0.2.1" || s.IPv4Prefix != nn.Status.IPv4Prefix || s.NamespaceID != nn.Status.NamespaceID {
			t.Errorf("the manager has DNS servers %v and egress address 192.0.2.1, and the status %+v", dns, s)
		}
		w.must(w.deliver(kindNetwork, "net", events.TypeResync))
		if again := w.get("net"); again.ResourceVersion != got.ResourceVersion {
			t.Errorf("an unchanged status was written: %+v", again.Status)
		}
	}
}

// TestRequestedDuringAWrite has a user request a reconcile of a Ready network, which another delivery writes at the same time. The status has the new
// settings of the manager after that, and the annotation is removed.
func TestRequestedDuringAWrite(t *testing.T) {
	t.Parallel()
	m := newManager(t, 0)
	touch := func() {}
	w := newEnv(t, map[string]provider.Interface{"nam": overtaken{Server: m.nam, beforeFind: func() { touch() }}})
	spec := namSpec(v1alpha2.SegmentRequest{IPv4PrefixLength: 26})
	spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
	w.network("net", spec)
	nn := w.reconcile("net")
	w.expect(nn, "Ready", reasonProvisioned)
	m.Edit(string(nn.UID), func(s *namsim.Segment) { s.DNS = []string{"192.0.2.53"} })
	w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Annotations[v1alpha1.AnnotationReconcile] = "now" })
	touch = func() {
		touch = func() {}
		w.must(w.kube.Merge(t.Context(), w.get("net"), map[string]any{"metadata": map[string]any{"labels": map[string]string{"touched": "true"}}}))
	}
	got := w.reconcile("net")
	if w.expect(got, "Ready", reasonProvisioned); !slices.Equal(got.Status.DNS, []string{"192.0.2.53"}) || kube.ReconcileRequested(got) {
		t.Errorf("the status has DNS servers %v, and the annotations are %v", got.Status.DNS, got.Annotations)
	}
}

// TestRestored has an administrator restore a lost prefix in NetBox, which by then has another prefix
// of the same network with a lower ID.
func TestRestored(t *testing.T) {
	t.Parallel()
	library := newLibrary(t)
	w := newEnv(t, map[string]provider.Interface{"netbox": library.netbox})
	request := v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}
	spec := netboxSpec(request)
	spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
	w.network("net", spec)
	nn := w.reconcile("net")
	w.expect(nn, "Ready", reasonProvisioned)
	provide := func(nn *v1alpha2.NetworkNamespace) {
		t.Helper()
		_, err := library.netbox.Provide(t.Context(), nn)
		w.must(err)
	}
	holder := someNetwork(uidA, nn.Spec)
	w.must(library.netbox.Release(t.Context(), nn))
	provide(holder)
	provide(nn)
	w.must(library.netbox.Release(t.Context(), holder))
	mark := map[string]string{"vitistack_uid": string(nn.UID)}
	library.create(t, "/api/ipam/prefixes/2/available-prefixes/", map[string]any{"prefix_length": 26, "status": "active", "custom_fields": mark})
	library.create(t, "/api/ipam/ip-addresses/", map[string]any{"address": nn.Status.IPv4Gateway + "/26", "status": "active", "custom_fields": mark})
	library.create(t, fmt.Sprintf("/api/ipam/vlan-groups/%d/available-vlans/", library.onlyID(t, "vlan-groups", "")), map[string]any{"name": "restored", "custom_fields": mark})

	before, addresses, vlans := library.Taken()
	if len(before) != 2 || before[1] != nn.Status.IPv4Prefix || len(vlans) != 2 || vlans[1] != int(nn.Status.VLANID) {
		t.Fatalf("NetBox has %v, %v, %v, want the restored ones last", before, addresses, vlans)
	}
	w.must(w.deliver(kindNetwork, "net", events.TypeResync))
	w.expect(w.get("net"), "Ready", reasonProvisioned)
	if after, _, left := library.Taken(); !slices.Equal(after, before) || !slices.Equal(left, vlans) {
		t.Errorf("the check has left prefixes %v of %v, and VLANs %v of %v", after, before, left, vlans)
	}
	w.must(library.netbox.Release(t.Context(), nn))
	if after, _, left := library.Taken(); len(after)+len(left) > 0 {
		t.Errorf("left in NetBox: %v, %v", after, left)
	}
}

// TestEditedInNetBox has an administrator edit the prefix or the gateway of a network in NetBox, and take that back. The check
// deletes nothing, so the network is as before.
func TestEditedInNetBox(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason, kind, field string
		// edited returns the new value of the field.
		edited func(netip.Prefix) string
		ready  string
	}{
		"Prefix":  {"the segment is another one", "prefixes", "prefix", func(p netip.Prefix) string { return netip.PrefixFrom(p.Addr(), 27).String() }, "SourceChanged"},
		"Host":    {"the prefix is that of one address, so that the gateway is outside", "prefixes", "prefix", func(p netip.Prefix) string { return netip.PrefixFrom(p.Addr(), 32).String() }, "SourceChanged"},
		"Gateway": {"the gateway is another address", "ip-addresses", "address", func(p netip.Prefix) string { return p.Addr().Next().Next().String() + "/26" }, provider.ReasonGone},
		"Mask":    {"the gateway is the same address", "ip-addresses", "address", func(p netip.Prefix) string { return p.Addr().Next().String() + "/24" }, reasonProvisioned},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			library := newLibrary(t)
			w := newEnv(t, map[string]provider.Interface{"netbox": library.netbox})
			spec := netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}})
			spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			w.network("net", spec)
			nn := w.reconcile("net")
			w.expect(nn, "Ready", reasonProvisioned)
			prefix := netip.MustParsePrefix(nn.Status.IPv4Prefix)
			path := fmt.Sprintf("/api/ipam/%s/%d/", tc.kind, library.onlyID(t, tc.kind, string(nn.UID)))
			check := func(value, ready string) {
				t.Helper()
				library.edit(t, path, map[string]any{tc.field: value})
				_, before, _ := library.Taken()
				w.clock.Pass(2 * provider.MaxDelay)
				w.must(w.deliver(kindNetwork, "net", events.TypeResync))
				w.expect(w.get("net"), "Ready", ready)
				if _, after, _ := library.Taken(); !slices.Equal(after, before) {
					t.Errorf("%s: the check has left addresses %v of %v", tc.reason, after, before)
				}
			}
			first := map[string]string{"prefixes": prefix.String(), "ip-addresses": prefix.Addr().Next().String() + "/26"}[tc.kind]
			check(tc.edited(prefix), tc.ready)
			check(first, reasonProvisioned)
		})
	}
}

// TestRequestChanged changes the request of a network that is Ready, as the API server accepted it in an
// earlier version. It accepts that the change is taken back.
func TestRequestChanged(t *testing.T) {
	t.Parallel()
	both := []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6}
	nam := func(change func(*v1alpha2.SegmentRequest)) func(*v1alpha2.NetworkNamespace) {
		return func(nn *v1alpha2.NetworkNamespace) { change(nn.Spec.NetworkProvisioning.NAM) }
	}
	netbox := func(change func(*v1alpha2.NetBoxRequest)) func(*v1alpha2.NetworkNamespace) {
		return func(nn *v1alpha2.NetworkNamespace) { change(nn.Spec.NetworkProvisioning.NetBox) }
	}
	small := v1alpha2.SegmentRequest{IPv4PrefixLength: 26}
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha2.NetworkNamespaceSpec
		change func(*v1alpha2.NetworkNamespace)
		says   string
	}{
		"NAMLength":     {"the size of a segment is immutable", namSpec(small), nam(func(r *v1alpha2.SegmentRequest) { r.IPv4PrefixLength = 25 }), "is not a /25"},
		"NAMFamily":     {"no family is added", namSpec(small), nam(func(r *v1alpha2.SegmentRequest) { r.IPFamilies = both }), "IPv6 prefix that was requested is missing"},
		"NAMOther":      {"the segment is the same", namSpec(small), func(nn *v1alpha2.NetworkNamespace) { nn.Spec.SupervisorIdentifier = "team-b" }, ""},
		"NetBoxLength":  {"the size of a segment is immutable", netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: small}), netbox(func(r *v1alpha2.NetBoxRequest) { r.IPv4PrefixLength = 25 }), "is not a /25"},
		"NetBoxFamily":  {"no family is added", netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: small}), netbox(func(r *v1alpha2.NetBoxRequest) { r.IPFamilies = both }), "IPv6 prefix that was requested is missing"},
		"NetBoxFewer":   {"no family is released", netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPFamilies: both}}), netbox(func(r *v1alpha2.NetBoxRequest) { r.IPFamilies = both[:1] }), "only one of"},
		"NetBoxVLAN":    {"no VLAN is added", netboxSpec(v1alpha2.NetBoxRequest{}), netbox(func(r *v1alpha2.NetBoxRequest) { r.VLANGroup = "leafs" }), "group leafs"},
		"NetBoxNoVLAN":  {"the VLAN is not released", netboxSpec(v1alpha2.NetBoxRequest{VLANGroup: "leafs"}), netbox(func(r *v1alpha2.NetBoxRequest) { r.VLANGroup = "" }), "VLAN 300"},
		"NetBoxAnother": {"the parent matters for new segments only", netboxSpec(v1alpha2.NetBoxRequest{}), netbox(func(r *v1alpha2.NetBoxRequest) { r.Role = "tenants" }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			manager, library := newManager(t, 0), newLibrary(t)
			w := newEnv(t, map[string]provider.Interface{"nam": manager.nam, "netbox": library.netbox})
			if tc.spec.NetworkProvisioning.NetBox != nil {
				tc.spec.NetworkProvisioning.NetBox.Site = "az1"
			}
			tc.spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			w.network("net", tc.spec)
			nn := w.reconcile("net")
			w.expect(nn, "Ready", reasonProvisioned)
			taken := func() string {
				prefixes, addresses, vlans := library.Taken()
				return fmt.Sprint(len(manager.Segments()), prefixes, addresses, vlans)
			}
			had := taken()
			w.changeUnvalidated("net", tc.change)
			reason := reasonProvisioned
			if tc.says != "" {
				reason = "RequestChanged"
			}
			for range 2 {
				got := w.reconcile("net")
				if message := w.expect(got, "Ready", reason); !strings.Contains(message, tc.says) || got.Status.IPv4Prefix != nn.Status.IPv4Prefix || got.Status.IPv6Prefix != nn.Status.IPv6Prefix {
					t.Errorf("%s: message %s, status %+v", tc.reason, message, got.Status)
				}
				w.clock.Pass(2 * provider.MaxDelay)
				w.must(w.deliver(kindNetwork, "net", events.TypeResync))
			}
			if now := taken(); now != had {
				t.Errorf("%s: the sources have %s, and had %s", tc.reason, now, had)
			}
			if tc.says == "" {
				return
			}
			w.change("net", func(got *v1alpha2.NetworkNamespace) { got.Spec = nn.Spec })
			w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
		})
	}
}

// TestNetBoxRequestChanges has a network whose segment no NetworkPool allows, or no machine could use. The remedies in
// the message lead to another segment.
func TestNetBoxRequestChanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		pool    *v1alpha1.NetworkPoolSpec
		exclude []string
		change  func(*v1alpha2.NetBoxRequest)
		want    string
	}{
		plan.ReasonNotInPool: {"another site is in the pool", &v1alpha1.NetworkPoolSpec{Prefixes: []string{"10.53.0.0/16"}}, nil, func(r *v1alpha2.NetBoxRequest) { r.Site = "az2" }, "10.53.0.0/26"},
		plan.ReasonNoAddress: {"a larger prefix has addresses that are not excluded", nil, []string{"10.51.0.0/26"}, func(r *v1alpha2.NetBoxRequest) { r.IPv4PrefixLength = 25 }, "10.52.0.0/25"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			library := newLibrary(t)
			w := newEnv(t, map[string]provider.Interface{"netbox": library.netbox})
			if tc.pool != nil {
				w.pool("netbox", *tc.pool)
			}
			spec := netboxSpec(v1alpha2.NetBoxRequest{Role: "tenants", Site: "az1", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}})
			spec.DatacenterIdentifier = v1alpha2.Identifier(w.namespace)
			spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &v1alpha2.StaticPool{ExcludedAddresses: tc.exclude}}
			w.network("net", spec)
			w.expect(w.reconcile("net"), "Error", name)
			w.change("net", func(nn *v1alpha2.NetworkNamespace) { tc.change(nn.Spec.NetworkProvisioning.NetBox) })
			w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
			w.clock.Pass(provider.MaxWorkDelay)
			nn := w.reconcile("net")
			w.expect(nn, "Ready", reasonProvisioned)
			prefixes, addresses, vlans := library.Taken()
			if nn.Status.IPv4Prefix != tc.want || !slices.Equal(prefixes, []string{tc.want}) || len(addresses) != 1 || len(vlans) != 1 {
				t.Errorf("%s: status %s, and NetBox has %v, %v, %v, want %s", tc.reason, nn.Status.IPv4Prefix, prefixes, addresses, vlans, tc.want)
			}
		})
	}
}

// TestNAMRequestChanges edits a spec while its segment is being created, and after it was allocated.
// Only the first edit leads to another segment.
func TestNAMRequestChanges(t *testing.T) {
	t.Parallel()
	m := newManager(t, 15*time.Second)
	w := newEnv(t, map[string]provider.Interface{"nam": m.nam})
	spec := asks("nam")
	spec.SupervisorIdentifier = "team-a"
	w.network("net", spec)
	w.expect(w.reconcile("net"), "Pending", provider.ReasonWorking)
	w.change("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.SupervisorIdentifier = "team-b" })
	for range 5 {
		w.reconcile("net")
		m.clock.Pass(15 * time.Second)
		w.clock.Pass(provider.MaxWorkDelay)
	}
	w.expect(w.reconcile("net"), "Ready", reasonProvisioned)
	given := w.get("net").Status.IPv4Prefix
	if _, err := m.nam.Provide(t.Context(), w.get("net")); err != nil || len(m.Segments()) != 1 {
		t.Errorf("the manager has %+v, want one segment for the present spec: %v", m.Segments(), err)
	}
	w.changeUnvalidated("net", func(nn *v1alpha2.NetworkNamespace) { nn.Spec.SupervisorIdentifier = "team-c" })
	w.reconcile("net")
	if got := w.get("net").Status.IPv4Prefix; got != given || len(m.Segments()) != 1 {
		t.Errorf("a network in use has %s, but had %s", got, given)
	}
}

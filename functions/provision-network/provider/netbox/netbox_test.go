package netbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
	"github.com/vitistack/stack/tests/sim/faults"
	sim "github.com/vitistack/stack/tests/sim/netbox"
)

const netboxToken = "0123456789abcdef0123456789abcdef01234567"

// library is a simulated NetBox.
type library struct {
	*sim.Server
	plan   *faults.Plan
	url    string
	netbox Provider
}

func newLibrary(t *testing.T, o sim.Options) *library {
	t.Helper()
	l := &library{plan: &faults.Plan{}}
	o.Faults = l.plan
	if o.Token == "" {
		o.Token = netboxToken
	}
	var err error
	if l.Server, err = sim.New(o); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(l.Server)
	t.Cleanup(server.Close)
	l.url = server.URL
	l.netbox = reader(t, l.url, o.Token)
	return l
}

func reader(t *testing.T, url, token string) Provider {
	t.Helper()
	c, err := httpclient.New(httpclient.Config{URL: url, Token: token, TokenScheme: TokenScheme(token), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	return Provider{api{c}}
}

// shelves returns two parent prefixes of one site. The first has room for two /26.
func shelves() sim.Options {
	return sim.Options{
		Parents: []sim.Parent{
			{Prefix: netip.MustParsePrefix("10.50.0.0/24"), Role: "tenants", Site: "az1", Status: "active"},
			{Prefix: netip.MustParsePrefix("10.51.0.0/25"), Role: "tenants", Site: "az1"},
			{Prefix: netip.MustParsePrefix("10.52.0.0/23"), Role: "tenants", Site: "az1", CustomFields: map[string]any{"tier": "gold"}},
			{Prefix: netip.MustParsePrefix("10.53.0.0/16"), Role: "tenants", Site: "az2"},
			{Prefix: netip.MustParsePrefix("10.54.0.0/16"), Role: "tenants", Site: "az3", Location: "room-7"},
			{Prefix: netip.MustParsePrefix("2001:db8:50::/56"), Site: "az1"},
		},
		Groups: []sim.Group{{Slug: "leafs", Min: 300, Max: 302}},
	}
}

func netboxSpec(r v1alpha2.NetBoxRequest) v1alpha2.NetworkNamespaceSpec {
	return v1alpha2.NetworkNamespaceSpec{DatacenterIdentifier: "az1", NetworkProvisioning: &v1alpha2.NetworkProvisioning{Provider: "netbox", NetBox: &r}}
}

func uid(n int) string { return fmt.Sprintf("%08d-8f6e-4a55-9a31-0c5f6f3a7d10", n) }

func TestProvide(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]sim.Options{"Now": shelves(), "BeforeScopes": func() sim.Options { o := shelves(); o.Sites = true; return o }(),
		"NewToken":   func() sim.Options { o := shelves(); o.Token = "nbt_abc.def"; return o }(),
		"SmallPages": func() sim.Options { o := shelves(); o.MaxPage = 1; return o }()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, o)
			request := v1alpha2.NetBoxRequest{Role: "tenants", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}
			var got []string
			for n := range 3 {
				nn := someNetwork(uid(n), netboxSpec(request))
				first, err := l.netbox.Provide(t.Context(), nn)
				if err != nil {
					t.Fatal(err)
				}
				again, err := l.netbox.Provide(t.Context(), nn)
				if err != nil || !first.Same(again) {
					t.Errorf("the second call provides %+v, and the first provided %+v: %v", again, first, err)
				}
				got = append(got, fmt.Sprintf("%s %s %d", first.IPv4, first.IPv4Gateway, first.VLAN))
			}
			want := []string{"10.51.0.0/26 10.51.0.1 300", "10.51.0.64/26 10.51.0.65 301", "10.52.0.0/26 10.52.0.1 302"}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the next parent is used once the first is full (-want +got):\n%s", diff)
			}
			if _, err := l.netbox.Provide(t.Context(), someNetwork(uid(3), netboxSpec(request))); reasonIn(err) != "VLANGroupFull" {
				t.Errorf("got %v, want an error about a full VLAN group", err)
			}
			prefixes, addresses, vlans := l.Taken()
			if len(prefixes) != 3 || len(addresses) != 3 || len(vlans) != 3 {
				t.Errorf("NetBox has %v, %v, %v", prefixes, addresses, vlans)
			}
			for n := range 3 {
				for range 2 {
					if err := l.netbox.Release(t.Context(), someNetwork(uid(n), netboxSpec(request))); err != nil {
						t.Error(err)
					}
				}
			}
			if prefixes, addresses, vlans := l.Taken(); len(prefixes)+len(addresses)+len(vlans) > 0 {
				t.Errorf("left in NetBox: %v, %v, %v", prefixes, addresses, vlans)
			}
		})
	}
}

// TestAdopt creates a network again with another UID: it gets its segment, once, and the former one releases nothing.
func TestAdopt(t *testing.T) {
	t.Parallel()
	for name, adopt := range map[string]func(Provider, *v1alpha2.NetworkNamespace) error{
		"Provide": func(p Provider, nn *v1alpha2.NetworkNamespace) error {
			_, err := p.Provide(t.Context(), nn)
			return err
		},
		"Find": func(p Provider, nn *v1alpha2.NetworkNamespace) error { _, err := p.Find(t.Context(), nn); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, shelves())
			request := v1alpha2.NetBoxRequest{Role: "tenants", VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}
			old, again, late := someNetwork(uid(1), netboxSpec(request)), someNetwork(uid(2), netboxSpec(request)), someNetwork(uid(3), netboxSpec(request))
			first, err := l.netbox.Provide(t.Context(), old)
			if err != nil {
				t.Fatal(err)
			}
			for _, nn := range []*v1alpha2.NetworkNamespace{again, late} {
				nn.Annotations = map[string]string{v1alpha1.AnnotationFormerUIDs: uid(1)}
				segment.SetStatus(nn, first)
			}
			for range 2 {
				if err := adopt(l.netbox, again); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.netbox.Find(t.Context(), late); err == nil {
				t.Error("a second network adopts the segment")
			}
			for _, nn := range []*v1alpha2.NetworkNamespace{old, late} {
				if err := l.netbox.Release(t.Context(), nn); err != nil {
					t.Fatal(err)
				}
			}
			got, err := l.netbox.Find(t.Context(), again)
			if err != nil || !got.Same(first) {
				t.Errorf("got %+v, want %+v: %v", got, first, err)
			}
			if err := l.netbox.Release(t.Context(), again); err != nil {
				t.Error(err)
			}
			if prefixes, addresses, vlans := l.Taken(); len(prefixes)+len(addresses)+len(vlans) > 0 {
				t.Errorf("left in NetBox: %v, %v, %v", prefixes, addresses, vlans)
			}
		})
	}
}

// TestPages lists more objects than fit on a page, from a server with a page size of its own.
func TestPages(t *testing.T) {
	t.Parallel()
	const many = 250
	parents := make([]sim.Parent, many)
	for i := range parents {
		parents[i].Prefix = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 24)
	}
	for _, size := range []int{0, 1, 100, many, many + 1} {
		l := newLibrary(t, sim.Options{Parents: parents, MaxPage: size})
		seen := map[string]bool{}
		for _, p := range l.parents(t) {
			seen[p.Prefix] = true
		}
		if len(seen) != many {
			t.Errorf("in pages of %d: %d of %d are listed", size, len(seen), many)
		}
	}
	for name, tc := range map[string]struct {
		reason, want string
		objects      int
	}{
		"Endless": {"a server that ignores offset repeats the first page", "TooManyObjects", pageSize},
		"Empty":   {"an empty page leaves the rest unknown", "SourceUnexpectedAnswer", 0},
	} {
		page, err := json.Marshal(map[string]any{"count": 1, "next": "https://netbox/", "results": make([]object, tc.objects)})
		if err != nil {
			t.Fatal(err)
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(page) }))
		t.Cleanup(server.Close)
		if _, err := list[object](t.Context(), reader(t, server.URL, "").api, "prefixes", nil); reasonIn(err) != tc.want {
			t.Errorf("%s: %s: got %v", name, tc.reason, err)
		}
	}
}

// TestListsTwice moves an object to the next page while pages are read. The object must not count as a
// duplicate of itself.
func TestListsTwice(t *testing.T) {
	t.Parallel()
	nn := someNetwork(uidA, v1alpha2.NetworkNamespaceSpec{})
	object := map[string]any{"id": 7, "prefix": "10.51.0.0/24", "vid": 300, "custom_fields": map[string]any{fieldUID: uidA}}
	page, err := json.Marshal(map[string]any{"count": 2, "results": []any{object, object}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("%s %s: nothing is surplus", r.Method, r.URL.Path)
		}
		_, _ = w.Write(page)
	}))
	t.Cleanup(server.Close)
	n := reader(t, server.URL, "")
	if p, err := n.ownPrefix(t.Context(), nn, v1alpha2.IPv4); err != nil || p == nil || p.ID != 7 {
		t.Errorf("got prefix %+v, %v", p, err)
	}
	if v, err := n.ownVLAN(t.Context(), nn); err != nil || v == nil || v.ID != 7 {
		t.Errorf("got VLAN %+v, %v", v, err)
	}
}

// reasonIn returns the reason of an error, or an empty string.
func reasonIn(err error) string {
	var f provider.Error
	if errors.As(err, &f) {
		return f.Reason
	}
	return ""
}

// TestLongObjects has as many parents as NetBox shows on a page, each with long notes.
func TestLongObjects(t *testing.T) {
	t.Parallel()
	o := sim.Options{}
	for i := range 1000 {
		o.Parents = append(o.Parents, sim.Parent{
			Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i / 256), byte(i), 0}), 24), Site: "az1",
			CustomFields: map[string]any{"notes": strings.Repeat("Who has what? ", 400)},
		})
	}
	l := newLibrary(t, o)
	got, err := l.netbox.Provide(t.Context(), someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}})))
	if err != nil || got.Prefixes() != "10.0.0.0/26" {
		t.Errorf("got %s, %v", got.Prefixes(), err)
	}
}

// TestFieldIsGone has an administrator delete the custom field of NetBox. What a network has is unknown then: it is neither gone nor released.
func TestFieldIsGone(t *testing.T) {
	t.Parallel()
	o := shelves()
	o.Fields = []string{}
	l := newLibrary(t, o)
	nn := someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{}))
	if err := l.netbox.Release(t.Context(), nn); err != nil {
		t.Errorf("a network that never had a segment: %v", err)
	}
	nn.Status.IPv4Prefix = "10.52.0.0/24"
	if err := l.netbox.Release(t.Context(), nn); reasonIn(err) != "SourceNotPrepared" {
		t.Errorf("the release returns %v", err)
	}
	if _, err := l.netbox.Find(t.Context(), nn); reasonIn(err) != "SourceNotPrepared" {
		t.Errorf("the check returns %v", err)
	}
}

func TestChooses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason  string
		request v1alpha2.NetBoxRequest
		prefix  string
		refuse  string
		says    string
	}{
		"Field":     {reason: "a custom field selects the parent", request: v1alpha2.NetBoxRequest{CustomFields: map[string]string{"tier": "gold"}}, prefix: "10.52.0.0/24"},
		"Site":      {reason: "a site takes precedence over the data centre", request: v1alpha2.NetBoxRequest{Site: "az2"}, prefix: "10.53.0.0/24"},
		"Location":  {reason: "a parent may be scoped to a location in the site", request: v1alpha2.NetBoxRequest{Site: "az3"}, prefix: "10.54.0.0/24"},
		"DualStack": {reason: "both families", request: v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 25, IPFamilies: []v1alpha2.IPFamily{"IPv4", "IPv6"}}}, prefix: "10.52.0.0/25 and 2001:db8:50::/64"},
		"SameSize":  {reason: "a parent of the same size has no room", request: v1alpha2.NetBoxRequest{Role: "tenants", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 25}}, prefix: "10.52.0.0/25"},
		"OnlySame":  {reason: "the only parent has the same size", request: v1alpha2.NetBoxRequest{Site: "az2", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 16}}, refuse: "ParentPrefixesFull", says: "/16"},
		"NoRole":    {reason: "the role does not exist", request: v1alpha2.NetBoxRequest{Role: "guests"}, refuse: "NoParentPrefix", says: "NetBox has no role guests: create it, or write the slug of an existing role into spec.networkProvisioning.netbox.role"},
		"NoSite":    {reason: "the site does not exist", request: v1alpha2.NetBoxRequest{Site: "az9"}, refuse: "NoParentPrefix", says: "NetBox has no site az9: create it, or write the slug of an existing site into spec.networkProvisioning.netbox.site, which replaces spec.datacenterIdentifier"},
		"Neither":   {reason: "neither exists", request: v1alpha2.NetBoxRequest{Site: "az9", Role: "guests"}, refuse: "NoParentPrefix", says: "NetBox has no site az9"},
		"NoPrefix":  {reason: "the site has no prefix of the family", request: v1alpha2.NetBoxRequest{Site: "az2", SegmentRequest: v1alpha2.SegmentRequest{IPFamilies: []v1alpha2.IPFamily{"IPv6"}}}, refuse: "NoParentPrefix", says: "NetBox has no IPv6 prefix of status container with site az2"},
		"Unknown":   {reason: "NetBox ignores unknown filters", request: v1alpha2.NetBoxRequest{CustomFields: map[string]string{"colour": "red"}}, refuse: "NoParentPrefix", says: "colour red"},
		"TooLarge":  {reason: "no parent is that large", request: v1alpha2.NetBoxRequest{SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 22}}, refuse: "ParentPrefixesFull", says: "/22"},
		"NoGroup":   {reason: "the VLAN group does not exist", request: v1alpha2.NetBoxRequest{VLANGroup: "spines"}, refuse: "NoVLANGroup", says: "spines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, shelves())
			got, err := l.netbox.Provide(t.Context(), someNetwork(uidA, netboxSpec(tc.request)))
			if reasonIn(err) != tc.refuse || (err != nil && !strings.Contains(err.Error(), tc.says)) || got.Prefixes() != tc.prefix {
				t.Errorf("%s: got %s, %v", tc.reason, got.Prefixes(), err)
			}
		})
	}
}

// TestChoosesByField selects a parent by a custom field of each type.
func TestChoosesByField(t *testing.T) {
	t.Parallel()
	rack := func(id float64) any { return map[string]any{"id": id, "display": "rack", "name": "rack"} }
	for name, tc := range map[string]struct {
		has  any
		text string
		want bool
	}{
		"Text":      {"gold", "gold", true},
		"Similar":   {"gold-2", "gold", false},
		"Integer":   {float64(42), "42", true},
		"Million":   {float64(1234567), "1234567", true},
		"Decimal":   {10.5, "10.50", true},
		"Other":     {float64(1234567), "1234568", false},
		"Boolean":   {true, "true", true},
		"Selection": {[]any{"gold", "silver"}, "silver", true},
		"NotOne":    {[]any{"gold", "silver"}, "bronze", false},
		"Object":    {rack(1500000), "1500000", true},
		"Objects":   {[]any{rack(7), rack(8)}, "8", true},
		"Empty":     {nil, "gold", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, sim.Options{Parents: []sim.Parent{
				{Prefix: netip.MustParsePrefix("10.60.0.0/16"), Site: "az1", CustomFields: map[string]any{"kind": tc.has}},
			}})
			got, err := l.netbox.Provide(t.Context(), someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{CustomFields: map[string]string{"kind": tc.text}})))
			if tc.want && (err != nil || got.Prefixes() != "10.60.0.0/24") || !tc.want && reasonIn(err) != "NoParentPrefix" {
				t.Errorf("field %v, requested %q: got %s, %v", tc.has, tc.text, got.Prefixes(), err)
			}
		})
	}
}

// TestFaults checks the error of each way in which NetBox can fail.
func TestFaults(t *testing.T) {
	t.Parallel()
	const list, take = "GET /api/ipam/prefixes/", "POST /api/ipam/prefixes/*/available-prefixes/"
	for name, tc := range map[string]struct {
		operation, fault, reason string
		final                    bool
		says                     string
	}{
		"400":       {take, "400", "SourceRejected", true, "fails as planned"},
		"401":       {list, "401", "SourceUnauthorized", true, "NETBOX_TOKEN"},
		"403":       {take, "403", "SourceUnauthorized", true, "NETBOX_TOKEN"},
		"404":       {list, "404", "SourceNotFound", true, "NETBOX_URL"},
		"409":       {"PATCH /api/ipam/prefixes/*/", "409", "SourceConflict", true, "fails as planned"},
		"422":       {take, "422", "SourceRejected", true, "fails as planned"},
		"429":       {take, "429", "SourceThrottled", false, "later"},
		"500":       {take, "500", "SourceUnavailable", false, "500"},
		"503":       {list, "503", "SourceUnavailable", false, "503"},
		"302":       {list, "302", "SourceNotFound", true, "NETBOX_URL"},
		"Dropped":   {take, "drop", "SourceUnavailable", false, "closed the connection"},
		"Malformed": {list, "garbage", "SourceUnexpectedAnswer", true, "not JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLibrary(t, shelves())
			nn := someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 26}}))
			if err := l.plan.Set(faults.Rule{Operation: tc.operation, Error: tc.fault, Times: 1}); err != nil {
				t.Fatal(err)
			}
			_, err := l.netbox.Provide(t.Context(), nn)
			var f provider.Error
			if !errors.As(err, &f) || f.Reason != tc.reason || f.Permanent != tc.final || !strings.Contains(f.Message, tc.says) {
				t.Errorf("got %+v (%v), want %s, final %t, with %q in it", f, err, tc.reason, tc.final, tc.says)
			}
			if _, err := l.netbox.Provide(t.Context(), nn); err != nil {
				t.Errorf("asked again: %v", err)
			}
			if prefixes, addresses, vlans := l.Taken(); len(prefixes) != 1 || len(addresses) != 1 || len(vlans) != 1 {
				t.Errorf("a repeated request must have created one of each: %v, %v, %v", prefixes, addresses, vlans)
			}
		})
	}
	unprepared := shelves()
	unprepared.Fields = []string{}
	l := newLibrary(t, unprepared)
	if _, err := l.netbox.Provide(t.Context(), someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{}))); reasonIn(err) != "SourceNotPrepared" {
		t.Errorf("a NetBox without the custom field: got %v", err)
	}
	if err := l.netbox.Release(t.Context(), someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{}))); err != nil || len(l.parents(t)) == 0 {
		t.Errorf("without the custom field NetBox lists every object, and none may be deleted: %v", err)
	}
	if _, err := reader(t, l.url, "wrong").Provide(t.Context(), someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{}))); reasonIn(err) != "SourceUnauthorized" {
		t.Errorf("a wrong token: got %v", err)
	}
}

// parents returns the prefixes that existed before the test.
func (l *library) parents(t *testing.T) []prefix {
	t.Helper()
	all, err := list[prefix](t.Context(), l.netbox.api, "prefixes", nil)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLosesAnswers loses the answer to each request that was carried out.
func TestLosesAnswers(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, shelves())
	nn := someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{VLANGroup: "leafs"}))
	lost := func(operation string) {
		if err := l.plan.Set(faults.Rule{Operation: operation, Error: "drop", After: true, Times: 1}); err != nil {
			t.Fatal(err)
		}
	}
	for _, operation := range []string{
		"POST /api/ipam/vlan-groups/*/available-vlans/", "POST /api/ipam/prefixes/*/available-prefixes/", "PATCH /api/ipam/prefixes/*/",
	} {
		lost(operation)
		if _, err := l.netbox.Provide(t.Context(), nn); err == nil {
			t.Errorf("%s: its answer should have been lost", operation)
		}
	}
	lost("POST /api/ipam/ip-addresses/")
	if _, err := l.netbox.Provide(t.Context(), nn); err != nil {
		t.Error(err)
	}
	if prefixes, addresses, vlans := l.Taken(); len(prefixes) != 1 || len(addresses) != 1 || len(vlans) != 1 {
		t.Errorf("exactly one of each must exist: %v, %v, %v", prefixes, addresses, vlans)
	}
	for range 3 {
		lost("DELETE /api/ipam/*/*/")
		_ = l.netbox.Release(t.Context(), nn)
	}
	if err := l.netbox.Release(t.Context(), nn); err != nil {
		t.Error(err)
	}
	if prefixes, addresses, vlans := l.Taken(); len(prefixes)+len(addresses)+len(vlans) > 0 {
		t.Errorf("left in NetBox: %v, %v, %v", prefixes, addresses, vlans)
	}
}

// TestRace requests the segment of one network many times concurrently.
func TestRace(t *testing.T) {
	t.Parallel()
	l := newLibrary(t, shelves())
	nn := someNetwork(uidA, netboxSpec(v1alpha2.NetBoxRequest{VLANGroup: "leafs", SegmentRequest: v1alpha2.SegmentRequest{IPv4PrefixLength: 28}}))
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			_, err := l.netbox.Provide(t.Context(), nn)
			if f := reasonIn(err); err != nil && f != "SourceRejected" && f != "SourceNotFound" && f != "SourceConflict" {
				t.Error(err)
			}
		})
	}
	group.Wait()
	seg, err := l.netbox.Provide(t.Context(), nn)
	if err != nil {
		t.Fatal(err)
	}
	prefixes, addresses, vlans := l.Taken()
	if len(prefixes) != 1 || len(vlans) != 1 || prefixes[0] != seg.IPv4.String() || vlans[0] != int(seg.VLAN) || len(addresses) == 0 {
		t.Errorf("got %+v of %v, %v, %v", seg, prefixes, addresses, vlans)
	}
}

const uidA = "0f5b3b9e-8f6e-4a55-9a31-0c5f6f3a7d10"

func someNetwork(uid string, spec v1alpha2.NetworkNamespaceSpec) *v1alpha2.NetworkNamespace {
	return &v1alpha2.NetworkNamespace{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "prod", UID: types.UID(uid)}, Spec: spec}
}

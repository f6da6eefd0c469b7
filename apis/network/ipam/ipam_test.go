package ipam

import (
	"math"
	"net/netip"
	"strings"
	"testing"
	"testing/quick"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// networked returns a provisioned network with a static pool.
func networked(v4, gateway string, static v1alpha2.StaticPool) *v1alpha2.NetworkNamespace {
	nn := &v1alpha2.NetworkNamespace{}
	nn.Name = "net"
	nn.Spec.IPAllocation = &v1alpha2.IPAllocationPolicy{Type: v1alpha2.AllocationStatic, Static: &static}
	nn.Status = v1alpha2.NetworkNamespaceStatus{ProvisioningPhase: v1alpha2.ProvisioningReady, IPv4Prefix: v4, IPv4Gateway: gateway}
	return nn
}

func TestNew(t *testing.T) {
	t.Parallel()
	v6 := networked("", "", v1alpha2.StaticPool{})
	v6.Status.IPv6Prefix, v6.Status.IPv6Gateway = "2001:db8::/64", "2001:db8::1"
	linkLocal := networked("", "", v1alpha2.StaticPool{IPv6Gateway: "fe80::1"})
	linkLocal.Status.IPv6Prefix = "2001:db8::/64"
	pair := networked("", "", v1alpha2.StaticPool{IPv6RangeStart: "2001:db8::"})
	pair.Status.IPv6Prefix, pair.Status.IPv6Gateway = "2001:db8::/127", "2001:db8::1"
	cases := map[string]struct {
		reason      string
		nn          *v1alpha2.NetworkNamespace
		family      v1alpha2.IPFamily
		size        uint64
		first, last string
		err         string
	}{
		"Range":      {reason: "the range is the one in the spec", nn: networked("192.168.10.0/24", "192.168.10.1", v1alpha2.StaticPool{IPv4RangeStart: "192.168.10.10", IPv4RangeEnd: "192.168.10.200"}), size: 191, first: "192.168.10.10", last: "192.168.10.200"},
		"Default":    {reason: "without a range all but the network address, the first host and the broadcast address are allocated", nn: networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{}), size: 253, first: "10.0.0.2", last: "10.0.0.254"},
		"Gateway":    {reason: "the gateway is never allocated, whatever its address", nn: networked("10.0.0.0/24", "10.0.0.254", v1alpha2.StaticPool{}), size: 252, first: "10.0.0.2", last: "10.0.0.253"},
		"Router":     {reason: "machines may use another gateway than the one of the provider, which has its address nevertheless", nn: networked("10.0.0.0/24", "10.0.0.254", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.2"}), size: 251, first: "10.0.0.3", last: "10.0.0.253"},
		"Edges":      {reason: "a range must not include the network and broadcast addresses", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.0", IPv4RangeEnd: "10.0.0.255"}), size: 254, first: "10.0.0.1", last: "10.0.0.254"},
		"Smallest":   {reason: "a /30 has one address in addition to its gateway", nn: networked("10.0.0.0/30", "10.0.0.1", v1alpha2.StaticPool{}), size: 1, first: "10.0.0.2", last: "10.0.0.2"},
		"Largest":    {reason: "a /8 is not scanned", nn: networked("10.0.0.0/8", "10.0.0.1", v1alpha2.StaticPool{}), size: 1<<24 - 3, first: "10.0.0.2", last: "10.255.255.254"},
		"IPv6":       {reason: "a /64 is not scanned, and has no broadcast address", nn: v6, family: v1alpha2.IPv6, size: math.MaxUint64 - 1, first: "2001:db8::2", last: "2001:db8::ffff:ffff:ffff:ffff"},
		"Part":       {reason: "a pool may be a part of the segment", nn: networked("10.0.0.0/16", "10.0.0.1", v1alpha2.StaticPool{IPv4CIDR: "10.0.7.0/24"}), size: 253, first: "10.0.7.2", last: "10.0.7.254"},
		"Excluded":   {reason: "addresses, prefixes and ranges can be excluded", nn: networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{ExcludedAddresses: []string{"10.0.0.2", "10.0.0.128/25", "10.0.0.10-10.0.0.19"}}), size: 253 - 1 - 127 - 10, first: "10.0.0.3", last: "10.0.0.127"},
		"Full":       {reason: "every address is excluded", nn: networked("10.0.0.0/30", "10.0.0.1", v1alpha2.StaticPool{ExcludedAddresses: []string{"10.0.0.2"}})},
		"Outside":    {reason: "the pool is outside of the segment", nn: networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{IPv4CIDR: "10.1.0.0/24"}), err: "spec.ipAllocation.static: prefix 10.1.0.0/24 is outside of the provisioned segment 10.0.0.0/24"},
		"Larger":     {reason: "the pool is larger than the segment", nn: networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/16"}), err: "spec.ipAllocation.static: prefix 10.0.0.0/16 is outside of the provisioned segment 10.0.0.0/24"},
		"Reversed":   {reason: "the end of a range is not before its start", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.9", IPv4RangeEnd: "10.0.0.5"}), err: "spec.ipAllocation.static: range 10.0.0.9-10.0.0.5 is not inside 10.0.0.0/24"},
		"NoFamily":   {reason: "the network has no IPv6", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{}), family: v1alpha2.IPv6, err: "NetworkNamespace net has no IPv6 prefix"},
		"LinkLocal":  {reason: "an IPv6 router announces itself with a link-local address", nn: linkLocal, family: v1alpha2.IPv6, size: math.MaxUint64 - 1, first: "2001:db8::2", last: "2001:db8::ffff:ffff:ffff:ffff"},
		"Far":        {reason: "machines could not reach their gateway", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.1.0.1"}), err: "spec.ipAllocation.static: gateway 10.1.0.1 is outside of 10.0.0.0/24"},
		"Broadcast":  {reason: "no host can have the broadcast address", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{IPv4Gateway: "10.0.0.255"}), err: "spec.ipAllocation.static: gateway 10.0.0.255 is the broadcast address of 10.0.0.0/24, which no host can have"},
		"BadSpan":    {reason: "an invalid exclusion could allocate an excluded address", nn: networked("10.0.0.0/24", "", v1alpha2.StaticPool{ExcludedAddresses: []string{"10.0.0.9-5"}}), err: `spec.ipAllocation.static.excludedAddresses: "10.0.0.9-5" is not an address, a prefix or a range`},
		"TwoRouted":  {reason: "a /31 has two hosts and no broadcast address (RFC 3021)", nn: networked("10.0.0.0/31", "", v1alpha2.StaticPool{}), size: 1, first: "10.0.0.1", last: "10.0.0.1"},
		"FirstOfTwo": {reason: "a range may start at the first address of a /31, whose second one is the gateway", nn: networked("10.0.0.0/31", "10.0.0.1", v1alpha2.StaticPool{IPv4RangeStart: "10.0.0.0"}), size: 1, first: "10.0.0.0", last: "10.0.0.0"},
		"FirstOf127": {reason: "a /127 has two hosts (RFC 6164)", nn: pair, family: v1alpha2.IPv6, size: 1, first: "2001:db8::", last: "2001:db8::"},
		"LastPair":   {reason: "the last address of a /31 is the broadcast address of the segment", nn: networked("10.0.0.0/24", "10.0.0.1", v1alpha2.StaticPool{IPv4CIDR: "10.0.0.254/31", IPv4RangeStart: "10.0.0.254"}), size: 1, first: "10.0.0.254", last: "10.0.0.254"},
		"FirstPair":  {reason: "the first address of a /31 is the network address of the segment", nn: networked("10.0.0.0/24", "10.0.0.9", v1alpha2.StaticPool{IPv4CIDR: "10.0.0.0/31", IPv4RangeStart: "10.0.0.0"}), size: 1, first: "10.0.0.1", last: "10.0.0.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.family == "" {
				tc.family = v1alpha2.IPv4
			}
			p, err := New(tc.nn, tc.family)
			if err != nil || tc.err != "" {
				if err == nil || err.Error() != tc.err {
					t.Fatalf("%s: got error %v, want %q", tc.reason, err, tc.err)
				}
				return
			}
			if p.Size() != tc.size {
				t.Errorf("%s: got %d addresses, want %d", tc.reason, p.Size(), tc.size)
			}
			if tc.size > 0 && (p.At(0).String() != tc.first || p.At(tc.size-1).String() != tc.last) {
				t.Errorf("%s: got %s to %s, want %s to %s", tc.reason, p.At(0), p.At(tc.size-1), tc.first, tc.last)
			}
		})
	}
}

func TestWhole(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason          string
		prefix, gateway string
		size            uint64
		without         []string
	}{
		"IPv4":      {reason: "every address but network, gateway and broadcast is usable", prefix: "10.0.0.0/24", gateway: "10.0.0.1", size: 253, without: []string{"10.0.0.0", "10.0.0.1", "10.0.0.255"}},
		"NoGateway": {reason: "without a gateway the first address is usable", prefix: "10.0.0.0/24", size: 254, without: []string{"10.0.0.0", "10.0.0.255"}},
		"IPv6":      {reason: "IPv6 has no broadcast address", prefix: "2001:db8::/120", gateway: "2001:db8::1", size: 254, without: []string{"2001:db8::", "2001:db8::1"}},
		"TwoRouted": {reason: "a /31 has two hosts (RFC 3021)", prefix: "10.0.0.0/31", size: 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gateway, _ := netip.ParseAddr(tc.gateway)
			p := Whole(netip.MustParsePrefix(tc.prefix), gateway)
			if p.Size() != tc.size {
				t.Errorf("%s: got %d addresses, want %d", tc.reason, p.Size(), tc.size)
			}
			for _, a := range tc.without {
				if p.Contains(netip.MustParseAddr(a)) {
					t.Errorf("%s: %s is in it", tc.reason, a)
				}
			}
		})
	}
}

func TestPoolProperties(t *testing.T) {
	t.Parallel()
	p, err := New(networked("10.0.0.0/22", "10.0.0.1", v1alpha2.StaticPool{ExcludedAddresses: []string{"10.0.1.0/24", "10.0.2.7"}}), v1alpha2.IPv4)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[netip.Addr]bool{}
	for i := range p.Size() {
		a := p.At(i)
		if seen[a] || !p.Contains(a) {
			t.Fatalf("address %d, %s: seen before %t, contained %t", i, a, seen[a], p.Contains(a))
		}
		seen[a] = true
	}
	inside := func(holder string) bool {
		first, again := p.Start(holder), p.Start(holder)
		return first < p.Size() && first == again
	}
	if err := quick.Check(inside, nil); err != nil {
		t.Errorf("a search starts inside the pool, and at the same place each time: %v", err)
	}
	taken := map[netip.Addr]bool{}
	isTaken := func(a netip.Addr) bool { return taken[a] }
	for range p.Size() {
		a, ok := p.FirstFree(p.Start("x"), isTaken)
		if !ok || taken[a] || !p.Contains(a) {
			t.Fatalf("after %d addresses: got %s, %t", len(taken), a, ok)
		}
		taken[a] = true
	}
	if a, ok := p.FirstFree(0, isTaken); ok {
		t.Errorf("a full pool allocated %s", a)
	}
}

// TestOutsidePool checks that the error names what can be requested, in few words.
func TestOutsidePool(t *testing.T) {
	t.Parallel()
	p := Whole(netip.MustParsePrefix("10.0.0.0/28"), netip.MustParseAddr("10.0.0.1"))
	holes := map[netip.Addr]bool{}
	for _, tc := range []struct{ hole, want string }{
		{"10.0.0.0", "request one of 10.0.0.2-10.0.0.14, or"},
		{"10.0.0.4", "request one of 10.0.0.2-10.0.0.3, 10.0.0.5-10.0.0.14, or"},
		{"10.0.0.6", "request one of 10.0.0.2-10.0.0.3, 10.0.0.5, 10.0.0.7-10.0.0.14, or"},
		{"10.0.0.10", "request one of 10.0.0.2-10.0.0.3, 10.0.0.5, 10.0.0.7-10.0.0.9, or of further ranges, or"},
	} {
		holes[netip.MustParseAddr(tc.hole)] = true
		if _, err := p.Without(holes).Requested(tc.hole); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("without %s: got %v, want %q", tc.hole, err, tc.want)
		}
	}
}

func FuzzParseSpan(f *testing.F) {
	for _, s := range []string{"10.0.0.1", "10.0.0.0/8", "10.0.0.1-10.0.0.9", "::1", "2001:db8::-2001:db8::9", "a-b", "-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if r, err := parseSpan(s); err == nil && !r.IsValid() {
			t.Errorf("%q: got the invalid range %v without an error", s, r)
		}
	})
}

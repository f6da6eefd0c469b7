// Package ipam computes the addresses that a network may allocate.
package ipam

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/bits"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"github.com/vitistack/stack/apis/v1alpha2"
)

// Pool has the addresses of one family that may be allocated, as disjoint ranges in ascending
// order. The time of its methods depends on the number of ranges, not on their size.
type Pool struct {
	// Prefix is the segment's, and Gateway its gateway, which may be invalid.
	Prefix  netip.Prefix
	Gateway netip.Addr
	ranges  []netipx.IPRange
}

// New returns the pool of a family of a provisioned network, without the network address, the
// broadcast address, the gateways and the excluded addresses. The error of an invalid pool
// says what to change.
func New(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (Pool, error) {
	o, err := optionsOf(nn, family)
	if err != nil {
		return Pool{}, err
	}
	var b netipx.IPSetBuilder
	b.AddRange(netipx.IPRangeFrom(o.start, o.end))
	removeEdges(&b, o.prefix)
	removeEdges(&b, o.segment)
	for _, router := range []netip.Addr{o.gateway, o.announced} {
		if router.IsValid() {
			b.Remove(router)
		}
	}
	for _, e := range o.excluded {
		r, err := parseSpan(e)
		if err != nil {
			return Pool{}, fmt.Errorf("spec.ipAllocation.static.excludedAddresses: %w", err)
		}
		b.RemoveRange(r)
	}
	set, err := b.IPSet()
	if err != nil {
		return Pool{}, fmt.Errorf("spec.ipAllocation.static: %w", err)
	}
	return Pool{Prefix: o.segment, Gateway: o.gateway, ranges: set.Ranges()}, nil
}

// Whole returns the pool of a whole prefix, without the network address, the broadcast
// address and the gateway.
func Whole(prefix netip.Prefix, gateway netip.Addr) Pool {
	var b netipx.IPSetBuilder
	b.AddPrefix(prefix)
	removeEdges(&b, prefix)
	if gateway.IsValid() {
		b.Remove(gateway)
	}
	p := Pool{Prefix: prefix, Gateway: gateway}
	if set, err := b.IPSet(); err == nil {
		p.ranges = set.Ranges()
	}
	return p
}

// removeEdges removes the network address and the broadcast address of a prefix. A prefix of two addresses has neither.
func removeEdges(b *netipx.IPSetBuilder, prefix netip.Prefix) {
	if prefix.Bits() >= prefix.Addr().BitLen()-1 {
		return
	}
	b.Remove(prefix.Addr())
	if prefix.Addr().Is4() {
		b.Remove(netipx.PrefixLastIP(prefix))
	}
}

// OutsidePool is the error of a requested address that a pool does not have.
type OutsidePool struct {
	Address string
	Pool    Pool
}

func (e OutsidePool) Error() string {
	return fmt.Sprintf("address %s is outside of the pool: request one of %s, or have ipAllocation.static of the NetworkNamespace changed", e.Address, e.Pool)
}

// Requested parses an address that an object requests of the pool. The error is OutsidePool.
func (p Pool) Requested(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !p.Contains(a) {
		return netip.Addr{}, OutsidePool{text, p}
	}
	return a, nil
}

// String returns the first ranges of the pool, for a message.
func (p Pool) String() string {
	const most = 3
	var texts []string
	for _, r := range p.ranges[:min(most, len(p.ranges))] {
		text := r.From().String()
		if r.From() != r.To() {
			text += "-" + r.To().String()
		}
		texts = append(texts, text)
	}
	if len(p.ranges) > most {
		texts = append(texts, "or of further ranges")
	}
	return strings.Join(texts, ", ")
}

// FamilyOf returns the family of an IPAllocation's address.
func FamilyOf(a *v1alpha2.IPAllocation, nn *v1alpha2.NetworkNamespace) v1alpha2.IPFamily {
	if a.Spec.IPFamily != "" {
		return a.Spec.IPFamily
	}
	if have, err := netip.ParseAddr(a.Status.Address); err == nil && have.Is4() {
		return v1alpha2.IPv4
	}
	if requested, err := netip.ParseAddr(a.Spec.RequestedAddress); err == nil && requested.Is6() {
		return v1alpha2.IPv6
	}
	if nn.Status.IPv4Prefix == "" && a.Spec.RequestedAddress == "" {
		return v1alpha2.IPv6
	}
	return v1alpha2.IPv4
}

// Without returns the pool without some addresses.
func (p Pool) Without(addresses map[netip.Addr]bool) Pool {
	var b netipx.IPSetBuilder
	for _, r := range p.ranges {
		b.AddRange(r)
	}
	for a := range addresses {
		b.Remove(a)
	}
	if set, err := b.IPSet(); err == nil {
		p.ranges = set.Ranges()
	}
	return p
}

// Gateway returns the gateway of a family for machines of a network: that of its pool, or else
// that of its segment. It is invalid if there is none.
func Gateway(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) netip.Addr {
	o, err := optionsOf(nn, family)
	if err != nil {
		return netip.Addr{}
	}
	return o.gateway
}

// CheckGateway returns an error where machines of a segment could not reach a gateway
// at an address. An IPv6 router announces itself with a link-local one.
func CheckGateway(segment netip.Prefix, gateway netip.Addr) error {
	switch {
	case segment.Addr().Is6() && gateway.Is6() && gateway.IsLinkLocalUnicast():
		return nil
	case !segment.Contains(gateway):
		return fmt.Errorf("gateway %s is outside of %s", gateway, segment)
	case segment.Addr().Is6() || segment.Bits() > 30:
		return nil
	case gateway == segment.Addr():
		return fmt.Errorf("gateway %s is the network address of %s, which no host can have", gateway, segment)
	case gateway == netipx.PrefixLastIP(segment):
		return fmt.Errorf("gateway %s is the broadcast address of %s, which no host can have", gateway, segment)
	default:
		return nil
	}
}

// options are a family's fields of the pool and the segment, parsed.
type options struct {
	segment, prefix netip.Prefix
	// gateway is the one of the machines, and announced the one of the provider, which may be another one.
	gateway, announced netip.Addr
	start, end         netip.Addr
	excluded           []string
}

func optionsOf(nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (options, error) {
	var static v1alpha2.StaticPool
	if nn.Spec.IPAllocation != nil && nn.Spec.IPAllocation.Static != nil {
		static = *nn.Spec.IPAllocation.Static
	}
	segment, prefix, gateway := nn.Status.IPv4Prefix, string(static.IPv4CIDR), string(static.IPv4Gateway)
	first, last, announced := string(static.IPv4RangeStart), string(static.IPv4RangeEnd), nn.Status.IPv4Gateway
	if family == v1alpha2.IPv6 {
		segment, prefix, gateway = nn.Status.IPv6Prefix, string(static.IPv6CIDR), string(static.IPv6Gateway)
		first, last, announced = string(static.IPv6RangeStart), string(static.IPv6RangeEnd), nn.Status.IPv6Gateway
	}
	o := options{excluded: static.ExcludedAddresses}
	var err error
	if o.segment, err = netip.ParsePrefix(segment); err != nil {
		return options{}, fmt.Errorf("NetworkNamespace %s has no %s prefix", nn.Name, family)
	}
	if o.prefix = o.segment; prefix != "" {
		if o.prefix, err = netip.ParsePrefix(prefix); err != nil {
			return options{}, fmt.Errorf("spec.ipAllocation.static: %w", err)
		}
	}
	if !o.segment.Overlaps(o.prefix) || o.prefix.Bits() < o.segment.Bits() {
		return options{}, fmt.Errorf("spec.ipAllocation.static: prefix %s is outside of the provisioned segment %s", o.prefix, o.segment)
	}
	// An address that does not parse is left out: the API server's rules have
	// refused those, and a network without a gateway has an empty one.
	o.announced, _ = netip.ParseAddr(announced)
	if o.gateway, err = netip.ParseAddr(gateway); err != nil {
		o.gateway = o.announced
	} else if err := CheckGateway(o.segment, o.gateway); err != nil {
		return options{}, fmt.Errorf("spec.ipAllocation.static: %w", err)
	}
	o.start, o.end = o.prefix.Addr().Next(), netipx.PrefixLastIP(o.prefix)
	if o.prefix.Bits() < o.prefix.Addr().BitLen()-1 {
		o.start = o.start.Next()
	}
	if a, err := netip.ParseAddr(first); err == nil {
		o.start = a
	}
	if a, err := netip.ParseAddr(last); err == nil {
		o.end = a
	}
	if !o.prefix.Contains(o.start) || !o.prefix.Contains(o.end) || o.end.Less(o.start) {
		return options{}, fmt.Errorf("spec.ipAllocation.static: range %s-%s is not inside %s", o.start, o.end, o.prefix)
	}
	return o, nil
}

// parseSpan reads an address, a prefix, or a range that is written first-last.
func parseSpan(s string) (netipx.IPRange, error) {
	if a, err := netip.ParseAddr(s); err == nil {
		return netipx.IPRangeFrom(a, a), nil
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return netipx.RangeOfPrefix(p), nil
	}
	if first, last, ok := strings.Cut(s, "-"); ok {
		a, errA := netip.ParseAddr(first)
		b, errB := netip.ParseAddr(last)
		if r := netipx.IPRangeFrom(a, b); errA == nil && errB == nil && r.IsValid() {
			return r, nil
		}
	}
	return netipx.IPRange{}, fmt.Errorf("%q is not an address, a prefix or a range", s)
}

// Size is the number of addresses, and stops at the largest uint64.
func (p Pool) Size() uint64 {
	var total uint64
	for _, r := range p.ranges {
		n := count(r)
		if total > math.MaxUint64-n {
			return math.MaxUint64
		}
		total += n
	}
	return total
}

// At is the i-th address in ascending order, where i is below Size.
func (p Pool) At(i uint64) netip.Addr {
	for _, r := range p.ranges {
		n := count(r)
		if i < n {
			return plus(r.From(), i)
		}
		i -= n
	}
	return netip.Addr{}
}

// Contains reports whether an address may be allocated.
func (p Pool) Contains(a netip.Addr) bool {
	for _, r := range p.ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}

// Start returns the index at which the search for the address of a holder starts. It is always
// the same for a holder, and differs between holders, so that concurrent allocations do not
// compete for the same address.
func (p Pool) Start(holder string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(holder))
	hi, _ := bits.Mul64(h.Sum64(), p.Size())
	return hi
}

// FirstFree returns the first free address at or after the index start, and continues at the
// first address after the last. It reports false if there is none. Each taken address in
// between costs one step.
func (p Pool) FirstFree(start uint64, taken func(netip.Addr) bool) (netip.Addr, bool) {
	size := p.Size()
	for i := range size {
		n := start + i
		if n >= size || n < start {
			n -= size
		}
		if a := p.At(n); !taken(a) {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// count is the number of addresses of a range, and stops at the largest uint64.
func count(r netipx.IPRange) uint64 {
	fromHi, fromLo := halves(r.From())
	toHi, toLo := halves(r.To())
	lo, borrow := bits.Sub64(toLo, fromLo, 0)
	hi, _ := bits.Sub64(toHi, fromHi, borrow)
	if hi > 0 || lo == math.MaxUint64 {
		return math.MaxUint64
	}
	return lo + 1
}

// plus is the address n after a.
func plus(a netip.Addr, n uint64) netip.Addr {
	hi, lo := halves(a)
	lo, carry := bits.Add64(lo, n, 0)
	hi += carry
	var b [16]byte
	for i := range 8 {
		b[7-i], b[15-i] = byte(hi>>(8*i)), byte(lo>>(8*i))
	}
	if next := netip.AddrFrom16(b); a.Is4() {
		return next.Unmap()
	}
	return netip.AddrFrom16(b)
}

func halves(a netip.Addr) (hi, lo uint64) {
	b := a.As16()
	for i := range 8 {
		hi, lo = hi<<8|uint64(b[i]), lo<<8|uint64(b[i+8])
	}
	return hi, lo
}

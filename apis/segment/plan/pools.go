package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/vitistack/stack/apis/namespaceaccess"
	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// ReasonNotInPool is the reason of a network that no NetworkPool of its namespace allows.
const ReasonNotInPool = "NotInPool"

// PoolsVariable is the environment variable that ArePoolsOptional reads.
const PoolsVariable = "NETWORK_POOLS"

// ArePoolsOptional reports whether a namespace that may use no NetworkPool is allowed everything. Any setting but
// optional allows it nothing.
func ArePoolsOptional(setting string) bool { return setting == "optional" }

// Pools are the NetworkPools that a single namespace may use.
type Pools struct {
	namespace string
	items     []v1alpha1.NetworkPool
	optional  bool
	// unreadable says why NetworkPools are for no namespace.
	unreadable string
}

// SelectPools returns the NetworkPools that a namespace may use. One whose selector cannot be read is
// for no namespace.
func SelectPools(all []v1alpha1.NetworkPool, namespace string, namespaceLabels func() (map[string]string, error), optional bool) (Pools, error) {
	p := Pools{namespace: namespace, optional: optional}
	for _, pool := range all {
		included, err := namespaceaccess.Includes(pool.Spec.AllowedNamespaces, namespace, namespaceLabels)
		var invalid namespaceaccess.InvalidSelector
		if err != nil && !errors.As(err, &invalid) {
			return Pools{}, err
		}
		if err != nil {
			p.unreadable += fmt.Sprintf("; NetworkPool %s is for no namespace, because its selector is wrong: %s", pool.Name, invalid)
		}
		if included {
			p.items = append(p.items, pool)
		}
	}
	slices.SortFunc(p.items, func(a, b v1alpha1.NetworkPool) int { return strings.Compare(a.Name, b.Name) })
	return p, nil
}

// IsEmpty reports whether the namespace may use no NetworkPool.
func (p Pools) IsEmpty() bool { return len(p.items) == 0 }

// KnownSegment is what is known of a network segment. VLAN is nil, and Prefixes are empty, until
// the provider has answered.
type KnownSegment struct {
	Provider string
	VLAN     *int32
	Prefixes []netip.Prefix
}

// RequestedSegment returns what is known of the segment of a network before its provider is asked: the provider, and
// for manual the whole segment.
func RequestedSegment(nn *v1alpha2.NetworkNamespace) KnownSegment {
	provider, _ := ProviderOf(nn.Spec)
	if provider == v1alpha2.ProviderManual {
		if seg, err := segment.FromSpec(nn); err == nil {
			return ProvidedSegment(nn, seg)
		}
	}
	return KnownSegment{Provider: provider}
}

// ProvidedSegment returns the segment that a provider has for a network as NetworkPools describe it.
func ProvidedSegment(nn *v1alpha2.NetworkNamespace, seg segment.Segment) KnownSegment {
	provider, _ := ProviderOf(nn.Spec)
	s := KnownSegment{Provider: provider, VLAN: &seg.VLAN}
	for _, prefix := range []netip.Prefix{seg.IPv4, seg.IPv6} {
		if prefix.IsValid() {
			s.Prefixes = append(s.Prefixes, prefix)
		}
	}
	return s
}

// KnownSegmentOf returns what is known of the segment of a network: what it has allocated, or else what it
// requests.
func KnownSegmentOf(nn *v1alpha2.NetworkNamespace) KnownSegment {
	if seg, err := segment.FromStatus(nn); err == nil && HoldsSegment(nn) {
		return ProvidedSegment(nn, seg)
	}
	return RequestedSegment(nn)
}

// String describes a segment, for example VLAN 200 and 192.168.10.0/24 from provider manual.
func (s KnownSegment) String() string {
	var parts []string
	if s.VLAN != nil {
		parts = append(parts, fmt.Sprintf("VLAN %d", *s.VLAN))
	}
	for _, p := range s.Prefixes {
		parts = append(parts, p.String())
	}
	if len(parts) == 0 {
		return "a segment from provider " + s.Provider
	}
	return strings.Join(parts, " and ") + " from provider " + s.Provider
}

// Check returns why a namespace may not use a segment, and what it may use. It returns nothing
// where one NetworkPool allows all that is known of the segment.
func (p Pools) Check(s KnownSegment) string {
	switch {
	case len(p.items) == 0 && p.optional, slices.ContainsFunc(p.items, func(pool v1alpha1.NetworkPool) bool { return allows(pool.Spec, s) }):
		return ""
	case len(p.items) == 0:
		return fmt.Sprintf("no NetworkPool allows namespace %s, so it cannot have a segment: ask the platform team to add the namespace to spec.allowedNamespaces of a NetworkPool%s", p.namespace, p.unreadable)
	default:
		return fmt.Sprintf("namespace %s may not use %s: use what one NetworkPool allows (%s), or ask the platform team to extend a NetworkPool%s", p.namespace, s, p.describe(), p.unreadable)
	}
}

// CheckNetwork returns why a network may not have what is known of its segment, or nothing. A network that machines
// may use keeps its segment.
func (p Pools) CheckNetwork(nn *v1alpha2.NetworkNamespace, known KnownSegment) string {
	problem := p.Check(known)
	if problem != "" && HoldsSegment(nn) {
		problem += "; the network keeps its segment until it is deleted, because machines may use it"
	}
	return problem
}

// HasExclusiveVLAN reports whether no other namespace may have a network in the VLAN of a segment: that of a manual
// network, unless a NetworkPool shares it.
func (p Pools) HasExclusiveVLAN(known KnownSegment) bool {
	return known.Provider == v1alpha2.ProviderManual && !p.ShareVLANs(known)
}

// ShareVLANs reports whether the namespace may use a segment in a VLAN of another namespace: a
// NetworkPool that allows the segment says so, or nothing binds the namespace.
func (p Pools) ShareVLANs(s KnownSegment) bool {
	return len(p.items) == 0 && p.optional ||
		slices.ContainsFunc(p.items, func(pool v1alpha1.NetworkPool) bool { return pool.Spec.ShareVLANs && allows(pool.Spec, s) })
}

// CheckBridge returns why interfaces of a namespace may not be attached to a bridge in a VLAN, and
// nothing where one NetworkPool lists both.
func (p Pools) CheckBridge(bridge string, vlan int32) string {
	if len(p.items) == 0 && p.optional {
		return ""
	}
	for _, pool := range p.items {
		if slices.Contains(pool.Spec.Bridges, bridge) && containsVLAN(pool.Spec.VLANs, vlan) {
			return ""
		}
	}
	return fmt.Sprintf("no NetworkPool of namespace %s lists bridge %s together with VLAN %d: delete the NetworkConfiguration and create it again without spec.bridge to use the bridge of the MachineProvider, or ask the platform team to list both in spec.bridges and spec.vlans of a NetworkPool",
		p.namespace, bridge, vlan)
}

// allows reports whether a NetworkPool allows all that is known of a segment. An empty list
// allows any value.
func allows(pool v1alpha1.NetworkPoolSpec, s KnownSegment) bool {
	if len(pool.Providers) > 0 && !slices.Contains(pool.Providers, s.Provider) {
		return false
	}
	if s.VLAN != nil && len(pool.VLANs) > 0 && !containsVLAN(pool.VLANs, *s.VLAN) {
		return false
	}
	return len(pool.Prefixes) == 0 || !slices.ContainsFunc(s.Prefixes, func(prefix netip.Prefix) bool { return !containsPrefix(pool.Prefixes, prefix) })
}

func containsVLAN(ranges []v1alpha1.VLANRange, vlan int32) bool {
	return slices.ContainsFunc(ranges, func(r v1alpha1.VLANRange) bool {
		low, high, isRange := strings.Cut(string(r), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseInt(low, 10, 32)
		last, err2 := strconv.ParseInt(high, 10, 32)
		return err == nil && err2 == nil && int64(vlan) >= first && int64(vlan) <= last
	})
}

func containsPrefix(outer []string, prefix netip.Prefix) bool {
	return slices.ContainsFunc(outer, func(text string) bool {
		o, err := netip.ParsePrefix(text)
		return err == nil && o.Bits() <= prefix.Bits() && o.Contains(prefix.Addr())
	})
}

// describe says what each NetworkPool allows, for example lab: VLANs 100-199, prefixes 10.0.0.0/8.
func (p Pools) describe() string {
	var pools []string
	for _, pool := range p.items {
		var parts []string
		vlans := make([]string, 0, len(pool.Spec.VLANs))
		for _, v := range pool.Spec.VLANs {
			vlans = append(vlans, string(v))
		}
		for _, field := range []struct {
			name   string
			values []string
		}{{"providers", pool.Spec.Providers}, {"VLANs", vlans}, {"prefixes", pool.Spec.Prefixes}} {
			if len(field.values) > 0 {
				parts = append(parts, field.name+" "+strings.Join(few(field.values), ", "))
			}
		}
		pools = append(pools, pool.Name+": "+strings.Join(parts, "; "))
	}
	return strings.Join(few(pools), " | ")
}

// few shortens a list that is too long for a message.
func few(values []string) []string {
	const most = 8
	if len(values) <= most {
		return values
	}
	return append(slices.Clone(values[:most]), fmt.Sprintf("and %d more", len(values)-most))
}

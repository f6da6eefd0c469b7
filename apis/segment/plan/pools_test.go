package plan

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func vlan(v int32) *int32 { return &v }

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func pool(name string, spec v1alpha1.NetworkPoolSpec) v1alpha1.NetworkPool {
	return v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func TestCheckPools(t *testing.T) {
	t.Parallel()
	lab := pool("lab", v1alpha1.NetworkPoolSpec{Providers: []string{"manual"}, VLANs: []v1alpha1.VLANRange{"100-199", "300"}, Prefixes: []string{"10.20.0.0/16", "2001:db8:20::/48"}})
	ipam := pool("ipam", v1alpha1.NetworkPoolSpec{Providers: []string{"nam", "corp"}})
	anything := pool("any", v1alpha1.NetworkPoolSpec{})
	manual := func(v int32, p ...string) KnownSegment {
		return KnownSegment{Provider: "manual", VLAN: vlan(v), Prefixes: prefixes(p...)}
	}
	for name, tc := range map[string]struct {
		reason   string
		pools    []v1alpha1.NetworkPool
		optional bool
		segment  KnownSegment
		says     string
	}{
		"Inside":        {"the whole segment is listed", []v1alpha1.NetworkPool{lab}, false, manual(150, "10.20.4.0/24"), ""},
		"First":         {"a range includes its first VLAN", []v1alpha1.NetworkPool{lab}, false, manual(100, "10.20.4.0/24"), ""},
		"Last":          {"a range includes its last VLAN", []v1alpha1.NetworkPool{lab}, false, manual(199, "10.20.4.0/24"), ""},
		"Single":        {"a VLAN can be listed alone", []v1alpha1.NetworkPool{lab}, false, manual(300, "10.20.4.0/24"), ""},
		"Whole":         {"a prefix is inside itself", []v1alpha1.NetworkPool{lab}, false, manual(300, "10.20.0.0/16"), ""},
		"DualStack":     {"each family is inside a prefix of the pool", []v1alpha1.NetworkPool{lab}, false, manual(300, "10.20.0.0/24", "2001:db8:20:1::/64"), ""},
		"VLAN":          {"the VLAN belongs to another namespace", []v1alpha1.NetworkPool{lab}, false, manual(200, "10.20.4.0/24"), "may not use VLAN 200 and 10.20.4.0/24 from provider manual: use what one NetworkPool allows (lab: providers manual; VLANs 100-199, 300; prefixes 10.20.0.0/16, 2001:db8:20::/48)"},
		"Untagged":      {"a segment without VLAN uses VLAN 0 of the bridge", []v1alpha1.NetworkPool{lab}, false, manual(0, "10.20.4.0/24"), "may not use VLAN 0"},
		"Prefix":        {"the prefix belongs to another namespace", []v1alpha1.NetworkPool{lab}, false, manual(150, "10.21.4.0/24"), "may not use"},
		"Wider":         {"the prefix is wider than that of the pool", []v1alpha1.NetworkPool{lab}, false, manual(150, "10.0.0.0/8"), "may not use"},
		"Second":        {"every prefix is checked", []v1alpha1.NetworkPool{lab}, false, manual(150, "10.20.4.0/24", "2001:db8:99::/64"), "may not use"},
		"OtherFamily":   {"a family without a prefix in the pool is not allowed", []v1alpha1.NetworkPool{pool("v4", v1alpha1.NetworkPoolSpec{Prefixes: []string{"10.0.0.0/8"}})}, false, manual(1, "2001:db8::/64"), "may not use"},
		"Mapped":        {"an IPv4-mapped prefix is no prefix of the pool", []v1alpha1.NetworkPool{lab}, false, manual(150, "::ffff:10.20.4.0/120"), "may not use"},
		"Provider":      {"the provider is not listed", []v1alpha1.NetworkPool{lab}, false, KnownSegment{Provider: "netbox"}, "may not use a segment from provider netbox"},
		"Source":        {"the source selects the segment, and the platform team runs it", []v1alpha1.NetworkPool{lab, ipam}, false, KnownSegment{Provider: "nam", VLAN: vlan(4000), Prefixes: prefixes("192.0.2.0/24")}, ""},
		"External":      {"an external IPAM is a provider with its name", []v1alpha1.NetworkPool{ipam}, false, KnownSegment{Provider: "corp"}, ""},
		"NotYetKnown":   {"a source is asked, and its answer is checked", []v1alpha1.NetworkPool{pool("nam", v1alpha1.NetworkPoolSpec{Providers: []string{"nam"}, VLANs: []v1alpha1.VLANRange{"1"}})}, false, KnownSegment{Provider: "nam"}, ""},
		"Answered":      {"the answer is outside of the pool", []v1alpha1.NetworkPool{pool("nam", v1alpha1.NetworkPoolSpec{Providers: []string{"nam"}, VLANs: []v1alpha1.VLANRange{"1"}})}, false, KnownSegment{Provider: "nam", VLAN: vlan(2)}, "may not use VLAN 2"},
		"AcrossPools":   {"one pool has to allow the whole segment", []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"1"}, Prefixes: []string{"10.1.0.0/16"}}), pool("b", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"2"}, Prefixes: []string{"10.2.0.0/16"}})}, false, manual(1, "10.2.0.0/24"), "a: VLANs 1; prefixes 10.1.0.0/16 | b: VLANs 2; prefixes 10.2.0.0/16"},
		"Empty":         {"empty lists allow any value", []v1alpha1.NetworkPool{anything}, false, manual(4000, "192.0.2.0/24"), ""},
		"Unreadable":    {"an invalid range allows nothing", []v1alpha1.NetworkPool{pool("odd", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"1-", "x", ""}})}, false, manual(1), "may not use VLAN 1"},
		"None":          {"a namespace without pools may use nothing", nil, false, manual(1, "10.0.0.0/24"), "no NetworkPool allows namespace team"},
		"NoneOptional":  {"pools are optional, and the namespace has none", nil, true, manual(1, "10.0.0.0/24"), ""},
		"SomeOptional":  {"pools are optional, but the namespace has one", []v1alpha1.NetworkPool{lab}, true, manual(1, "10.0.0.0/24"), "may not use"},
		"LongerMessage": {"a long list is truncated", []v1alpha1.NetworkPool{pool("long", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}})}, false, manual(99), "1, 2, 3, 4, 5, 6, 7, 8, and 2 more"},
	} {
		if got := (Pools{namespace: "team", items: tc.pools, optional: tc.optional}).Check(tc.segment); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %s: got %q, want %q", name, tc.reason, got, tc.says)
		}
	}
}

func TestShareVLANs(t *testing.T) {
	t.Parallel()
	own := pool("own", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"100-199"}})
	shared := pool("shared", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"150"}, ShareVLANs: true})
	for name, tc := range map[string]struct {
		reason   string
		pools    []v1alpha1.NetworkPool
		optional bool
		vlan     int32
		want     bool
	}{
		"Own":          {"a VLAN belongs to one namespace", []v1alpha1.NetworkPool{own}, false, 150, false},
		"Shared":       {"a pool that allows it shares it", []v1alpha1.NetworkPool{own, shared}, false, 150, true},
		"Others":       {"the pool with shared VLANs does not include this VLAN", []v1alpha1.NetworkPool{own, shared}, false, 151, false},
		"None":         {"a namespace without pools may use nothing", nil, false, 150, false},
		"NoneOptional": {"pools are optional, and the namespace has none", nil, true, 150, true},
	} {
		if got := (Pools{namespace: "team", items: tc.pools, optional: tc.optional}).ShareVLANs(KnownSegment{Provider: "manual", VLAN: vlan(tc.vlan)}); got != tc.want {
			t.Errorf("%s: %s: got %t", name, tc.reason, got)
		}
	}
}

func TestCheckBridge(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		pools    []v1alpha1.NetworkPool
		optional bool
		refused  bool
	}{
		"Listed":       {reason: "bridge and VLAN are listed", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{Bridges: []string{"br-lab"}, VLANs: []v1alpha1.VLANRange{"100-199"}})}},
		"OtherBridge":  {reason: "another bridge is listed", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{Bridges: []string{"br0"}, VLANs: []v1alpha1.VLANRange{"100-199"}})}, refused: true},
		"OtherVLAN":    {reason: "the bridge is allowed with other VLANs", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{Bridges: []string{"br-lab"}, VLANs: []v1alpha1.VLANRange{"100"}})}, refused: true},
		"AnyBridge":    {reason: "an empty list of bridges does not allow a bridge", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"100-199"}})}, refused: true},
		"AnyVLAN":      {reason: "an empty list of VLANs does not allow the VLAN on a bridge", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{Bridges: []string{"br-lab"}})}, refused: true},
		"Across":       {reason: "one pool has to list both", pools: []v1alpha1.NetworkPool{pool("a", v1alpha1.NetworkPoolSpec{Bridges: []string{"br-lab"}, VLANs: []v1alpha1.VLANRange{"1"}}), pool("b", v1alpha1.NetworkPoolSpec{VLANs: []v1alpha1.VLANRange{"150"}})}, refused: true},
		"None":         {reason: "a namespace without pools may use nothing", refused: true},
		"NoneOptional": {reason: "pools are optional, and the namespace has none", optional: true},
	} {
		got := Pools{namespace: "team", items: tc.pools, optional: tc.optional}.CheckBridge("br-lab", 150)
		if (got != "") != tc.refused || tc.refused && !strings.Contains(got, "lists bridge br-lab together with VLAN 150: delete the NetworkConfiguration and create it again without spec.bridge") {
			t.Errorf("%s: %s: got %q, want refused %t", name, tc.reason, got, tc.refused)
		}
	}
}

// TestSelect selects the pools of a namespace, and reads its labels only if a selector needs them.
func TestSelectPools(t *testing.T) {
	t.Parallel()
	named := func(name string, allowed *v1alpha1.AllowedNamespaces) v1alpha1.NetworkPool {
		return pool(name, v1alpha1.NetworkPoolSpec{AllowedNamespaces: allowed})
	}
	errUnread := errors.New("unread")
	unread := func() (map[string]string, error) { return nil, errUnread }
	byName := []v1alpha1.NetworkPool{named("b", nil), named("a", &v1alpha1.AllowedNamespaces{List: []string{"team"}}), named("c", &v1alpha1.AllowedNamespaces{List: []string{"other"}}), named("d", &v1alpha1.AllowedNamespaces{})}
	p, err := SelectPools(byName, "team", unread, false)
	if err != nil || len(p.items) != 2 || p.items[0].Name != "a" || p.items[1].Name != "b" {
		t.Errorf("got %v, %v, want a and b, without the labels", p.items, err)
	}
	byLabel := []v1alpha1.NetworkPool{
		named("tier", &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "lab"}}}),
		named("odd", &v1alpha1.AllowedNamespaces{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}}),
	}
	if _, err := SelectPools(byLabel, "team", unread, true); !errors.Is(err, errUnread) {
		t.Errorf("unreadable labels: got %v, want an error, not an empty list", err)
	}
	p, err = SelectPools(byLabel, "team", func() (map[string]string, error) { return map[string]string{"tier": "lab"}, nil }, false)
	if err != nil || len(p.items) != 1 || p.items[0].Name != "tier" {
		t.Errorf("got %v, %v, want the pool that selects the label, and no invalid pool", p.items, err)
	}
	for _, got := range []string{p.Check(KnownSegment{Provider: "manual"}), (Pools{unreadable: p.unreadable}).Check(KnownSegment{})} {
		if got != "" && !strings.Contains(got, "NetworkPool odd is for no namespace, because its selector is wrong: spec.allowedNamespaces.selector") {
			t.Errorf("the refusal does not name the NetworkPool that cannot be read: %s", got)
		}
	}
}

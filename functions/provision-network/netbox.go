package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/wire"
)

// netbox takes the segment from NetBox, by its REST API as of version 4: a prefix
// of a parent with room, the gateway's address, and a VLAN of a group. All three
// carry the UID of the NetworkNamespace in a custom field, by which they are looked
// up before they are made.
type netbox struct{ api netboxAPI }

// Provide looks each part up, and makes what is missing.
func (n netbox) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	want := netboxRequest(nn)
	want.Site = cmp.Or(want.Site, string(nn.Spec.DatacenterIdentifier))
	if len(want.IPFamilies) == 0 {
		want.IPFamilies = []v1alpha2.IPFamily{v1alpha2.IPv4}
	}
	vlan, err := n.vlan(ctx, nn, want.VLANGroup)
	if err != nil {
		return segment{}, err
	}
	var s segment
	for _, family := range want.IPFamilies {
		p, gateway, err := n.prefix(ctx, nn, want, family, vlan)
		if err != nil {
			return segment{}, err
		}
		s.id = cmp.Or(s.id, fmt.Sprintf("prefix-%d", p.ID))
		if family == v1alpha2.IPv4 {
			s.ipv4, s.ipv4Gateway = p.prefix, gateway
		} else {
			s.ipv6, s.ipv6Gateway = p.prefix, gateway
		}
	}
	if vlan != nil {
		s.vlan = vlan.VID
	}
	if err = s.check(); err == nil {
		err = s.answers(want.SegmentRequest)
	}
	if err != nil {
		return segment{}, unexpected(netboxBackend, err.Error())
	}
	return s, nil
}

func netboxRequest(nn *v1alpha2.NetworkNamespace) v1alpha2.NetBoxRequest {
	if p := nn.Spec.NetworkProvisioning; p != nil && p.NetBox != nil {
		return *p.NetBox
	}
	return v1alpha2.NetBoxRequest{}
}

// Find looks up the prefixes, their gateways and the VLAN. It makes none, and deletes
// none: of several it takes the one that the network is known to have.
func (n netbox) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment, error) {
	has, err := held(nn)
	if err != nil {
		return segment{}, err
	}
	var s segment
	for _, family := range []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6} {
		before, prefix, gateway := has.ipv4, &s.ipv4, &s.ipv4Gateway
		if family == v1alpha2.IPv6 {
			before, prefix, gateway = has.ipv6, &s.ipv6, &s.ipv6Gateway
		}
		if !before.IsValid() {
			continue
		}
		own, err := n.ownPrefixes(ctx, nn, family)
		if err != nil {
			return segment{}, err
		}
		if len(own) == 0 {
			return segment{}, gone(netboxBackend, nn, fmt.Sprintf("no %s prefix", family))
		}
		p := own[max(0, slices.IndexFunc(own, func(p netboxPrefix) bool { return p.prefix == before }))]
		s.id = cmp.Or(s.id, fmt.Sprintf("prefix-%d", p.ID))
		*prefix, *gateway = p.prefix, p.prefix.Addr().Next()
		known, err := n.registered(ctx, nn, netip.PrefixFrom(*gateway, p.prefix.Bits()))
		if err != nil {
			return segment{}, err
		}
		if !known {
			return segment{}, gone(netboxBackend, nn, "no gateway "+gateway.String())
		}
	}
	if has.vlan != 0 {
		own, err := n.ownVLANs(ctx, nn)
		if err != nil {
			return segment{}, err
		}
		if len(own) == 0 {
			return segment{}, gone(netboxBackend, nn, "no VLAN")
		}
		s.vlan = own[max(0, slices.IndexFunc(own, func(v netboxVLAN) bool { return v.VID == has.vlan }))].VID
	}
	return s, s.check()
}

// prefix is the one of a family, with its gateway registered and its VLAN set.
func (n netbox) prefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily, vlan *netboxVLAN) (*netboxPrefix, netip.Addr, error) {
	p, err := n.ownPrefix(ctx, nn, family)
	if err == nil && p == nil {
		if err = n.newPrefix(ctx, nn, want, family); err == nil {
			// Another delivery may have made one too: what is listed first counts.
			p, err = n.ownPrefix(ctx, nn, family)
		}
	}
	switch {
	case err != nil:
		return nil, netip.Addr{}, err
	case p == nil:
		return nil, netip.Addr{}, unexpected(netboxBackend, "the prefix that was made is not listed")
	}
	if vlan != nil && (p.VLAN == nil || p.VLAN.ID != vlan.ID) {
		if err := n.api.do(ctx, http.MethodPatch, one("prefixes", p.ID), nil, map[string]any{"vlan": vlan.ID}, nil); err != nil {
			return nil, netip.Addr{}, err
		}
	}
	gateway := p.prefix.Addr().Next()
	return p, gateway, n.register(ctx, nn, p, gateway)
}

// ownPrefix is the network's prefix of a family, and nil where it has none. Of
// several the first is kept.
func (n netbox) ownPrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (*netboxPrefix, error) {
	own, err := n.ownPrefixes(ctx, nn, family)
	if err != nil {
		return nil, err
	}
	return firstOf(ctx, n.api, "prefixes", own, func(p netboxPrefix) int { return p.ID })
}

// ownPrefixes are the network's prefixes of a family, in the order in which they were
// made.
func (n netbox) ownPrefixes(ctx context.Context, nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) ([]netboxPrefix, error) {
	all, err := list[netboxPrefix](ctx, n.api, "prefixes", byUID(nn))
	if err != nil {
		return nil, err
	}
	var own []netboxPrefix
	for _, p := range all {
		if p.prefix, err = netip.ParsePrefix(p.Prefix); err != nil {
			return nil, unexpected(netboxBackend, fmt.Sprintf("%q is no prefix", p.Prefix))
		}
		if p.CustomFields.belongsTo(nn) && p.prefix.Addr().Is4() == (family == v1alpha2.IPv4) {
			own = append(own, p)
		}
	}
	return eachOnce(own, func(p netboxPrefix) int { return p.ID }), nil
}

// newPrefix takes a prefix out of the first parent that has room.
func (n netbox) newPrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) error {
	parents, err := n.parents(ctx, want, family)
	if err != nil {
		return err
	}
	if len(parents) == 0 {
		return final("NoParentPrefix", "NetBox has no %s prefix of status container %s: make one, or change spec.networkProvisioning.netbox", family, conditions(want))
	}
	length := int(cmp.Or(want.IPv4PrefixLength, defaultIPv4Length))
	if family == v1alpha2.IPv6 {
		length = int(cmp.Or(want.IPv6PrefixLength, defaultIPv6Length))
	}
	for _, parent := range parents {
		body := map[string]any{
			"prefix_length": length, "status": "active", "description": described(nn),
			"custom_fields": map[string]string{fieldUID: string(nn.UID)},
		}
		parent.place(body)
		err := n.api.do(ctx, http.MethodPost, one("prefixes", parent.ID)+"available-prefixes/", nil, body, nil)
		if !isFull(err) {
			return err
		}
	}
	return final("ParentPrefixesFull", "none of the %d %s prefixes %s has room for a /%d: add one, or ask for a smaller segment", len(parents), family, conditions(want), length)
}

// parents are the prefixes that a segment may be taken out of, in the order of
// their addresses. NetBox ignores conditions that it does not know, so they are
// looked at once more.
func (n netbox) parents(ctx context.Context, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) ([]netboxPrefix, error) {
	query := map[string]string{"status": "container", "family": map[v1alpha2.IPFamily]string{v1alpha2.IPv4: "4", v1alpha2.IPv6: "6"}[family]}
	if want.Role != "" {
		query["role"] = want.Role
	}
	if want.Site != "" {
		query["site"] = want.Site
	}
	for name, value := range want.CustomFields {
		query["cf_"+name] = value
	}
	all, err := list[netboxPrefix](ctx, n.api, "prefixes", query)
	if err != nil {
		return nil, err
	}
	var parents []netboxPrefix
	for _, p := range all {
		p.prefix, err = netip.ParsePrefix(p.Prefix)
		fits := err == nil && p.Status.Value == "container" && p.prefix.Addr().Is4() == (family == v1alpha2.IPv4) &&
			(want.Role == "" || p.Role != nil && p.Role.Slug == want.Role) && (want.Site == "" || p.isAt(want.Site))
		for name, value := range want.CustomFields {
			fits = fits && fmt.Sprint(p.CustomFields[name]) == value
		}
		if fits {
			parents = append(parents, p)
		}
	}
	slices.SortFunc(parents, func(a, b netboxPrefix) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	return parents, nil
}

// register has NetBox know the gateway's address. Who is refused looks again: another
// delivery may have registered it in the same moment.
func (n netbox) register(ctx context.Context, nn *v1alpha2.NetworkNamespace, p *netboxPrefix, gateway netip.Addr) error {
	address := netip.PrefixFrom(gateway, p.prefix.Bits())
	if done, err := n.registered(ctx, nn, address); err != nil || done {
		return err
	}
	body := map[string]any{
		"address": address.String(), "status": "active", "description": "Gateway of " + described(nn),
		"custom_fields": map[string]string{fieldUID: string(nn.UID)},
	}
	if p.VRF != nil {
		body["vrf"] = p.VRF.ID
	}
	refusal := n.api.do(ctx, http.MethodPost, "/api/ipam/ip-addresses/", nil, body, nil)
	if refusal == nil {
		return nil
	}
	if done, err := n.registered(ctx, nn, address); err == nil && done {
		return nil
	}
	return refusal
}

// registered tells whether NetBox knows the network's gateway. Others of the family
// that carry its UID are those of prefixes that were made once too often.
func (n netbox) registered(ctx context.Context, nn *v1alpha2.NetworkNamespace, address netip.Prefix) (bool, error) {
	all, err := list[netboxAddress](ctx, n.api, "ip-addresses", byUID(nn))
	if err != nil {
		return false, err
	}
	known := false
	for _, a := range all {
		has, err := netip.ParsePrefix(a.Address)
		switch {
		case err != nil || !a.CustomFields.belongsTo(nn) || has.Addr().Is4() != address.Addr().Is4():
		case has == address:
			known = true
		default:
			if err := n.api.remove(ctx, "ip-addresses", a.ID); err != nil {
				return false, err
			}
		}
	}
	return known, nil
}

// vlan is the network's VLAN of a group, and nil where it needs none.
func (n netbox) vlan(ctx context.Context, nn *v1alpha2.NetworkNamespace, group string) (*netboxVLAN, error) {
	if group == "" {
		return nil, nil
	}
	own, err := n.ownVLAN(ctx, nn)
	if err != nil || own != nil {
		return own, err
	}
	groups, err := list[netboxGroup](ctx, n.api, "vlan-groups", map[string]string{"slug": group})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(groups, func(g netboxGroup) bool { return g.Slug == group })
	if i < 0 {
		return nil, final("NoVLANGroup", "NetBox has no VLAN group %s: make it, or change spec.networkProvisioning.netbox.vlanGroup", group)
	}
	err = n.api.do(ctx, http.MethodPost, one("vlan-groups", groups[i].ID)+"available-vlans/", nil, map[string]any{
		"name": vlanName(nn), "status": "active", "description": described(nn), "custom_fields": map[string]string{fieldUID: string(nn.UID)},
	}, nil)
	if isFull(err) {
		return nil, final("VLANGroupFull", "VLAN group %s has no free VLAN: release one, or enlarge it", group)
	}
	if err != nil {
		return nil, err
	}
	if own, err = n.ownVLAN(ctx, nn); err == nil && own == nil {
		err = unexpected(netboxBackend, "the VLAN that was made is not listed")
	}
	return own, err
}

// ownVLAN is the network's VLAN, and nil where it has none. Of several the first is
// kept.
func (n netbox) ownVLAN(ctx context.Context, nn *v1alpha2.NetworkNamespace) (*netboxVLAN, error) {
	own, err := n.ownVLANs(ctx, nn)
	if err != nil {
		return nil, err
	}
	return firstOf(ctx, n.api, "vlans", own, func(v netboxVLAN) int { return v.ID })
}

// ownVLANs are the network's VLANs, in the order in which they were made.
func (n netbox) ownVLANs(ctx context.Context, nn *v1alpha2.NetworkNamespace) ([]netboxVLAN, error) {
	own, err := list[netboxVLAN](ctx, n.api, "vlans", byUID(nn))
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(v netboxVLAN) bool { return !v.CustomFields.belongsTo(nn) })
	return eachOnce(own, func(v netboxVLAN) int { return v.ID }), nil
}

// Release removes all that carries the network's UID: the VLAN last, which NetBox
// keeps for as long as a prefix has it.
func (n netbox) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	for _, kind := range []string{"ip-addresses", "prefixes", "vlans"} {
		all, err := list[netboxObject](ctx, n.api, kind, byUID(nn))
		if err != nil {
			return err
		}
		for _, o := range all {
			if !o.CustomFields.belongsTo(nn) {
				continue
			}
			if err := n.api.remove(ctx, kind, o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// isFull tells whether NetBox has no room for what was asked of it.
func isFull(err error) bool {
	var e *wire.Error
	return errors.As(err, &e) && e.Kind == wire.Conflict
}

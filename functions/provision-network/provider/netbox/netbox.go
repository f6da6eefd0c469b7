// Package netbox provides segments of NetBox, by its REST API as of version 4.
package netbox

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/segment"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

const (
	defaultIPv4Length = 24
	defaultIPv6Length = 64
	// descriptionPrefix begins the description of everything that this package creates. Not
	// every NetBox can search for any value of a custom field.
	descriptionPrefix = "NetworkNamespace"
)

var families = []v1alpha2.IPFamily{v1alpha2.IPv4, v1alpha2.IPv6}

// Provider creates a segment of three parts: a prefix of a parent with room, the address of
// its gateway, and a VLAN of a group. Each has the UID of the NetworkNamespace in a custom
// field, by which it is looked up before it is created.
type Provider struct{ api api }

// New returns the provider that sends its requests by client.
func New(client *httpclient.Client) provider.Interface { return Provider{api{client}} }

// TokenScheme returns the scheme of the Authorization header: Bearer for tokens of the
// second version, which NetBox 4.5 introduced.
func TokenScheme(token string) string {
	if strings.HasPrefix(token, "nbt_") {
		return "Bearer"
	}
	return "Token"
}

// Provide looks up each part of the segment and creates missing ones.
func (p Provider) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	if err := p.adopt(ctx, nn); err != nil {
		return segment.Segment{}, err
	}
	want := requestOf(nn)
	want.Site = cmp.Or(want.Site, string(nn.Spec.DatacenterIdentifier))
	if len(want.IPFamilies) == 0 {
		want.IPFamilies = families[:1]
	}
	v, err := p.ensureVLAN(ctx, nn, want.VLANGroup)
	if err != nil {
		return segment.Segment{}, err
	}
	var s segment.Segment
	for _, family := range want.IPFamilies {
		own, err := p.ensurePrefix(ctx, nn, want, family, v)
		if err != nil {
			return segment.Segment{}, err
		}
		addPrefix(&s, own)
	}
	if v != nil {
		s.VLAN = v.VID
	}
	if err = s.Check(); err == nil {
		err = s.CheckRequest(want.SegmentRequest)
	}
	if err != nil {
		return segment.Segment{}, Backend.InvalidResponse(err.Error())
	}
	return s, nil
}

// addPrefix adds a prefix to a segment, with its gateway. The segment has the ID of its
// first prefix.
func addPrefix(s *segment.Segment, p *prefix) {
	s.ID = cmp.Or(s.ID, fmt.Sprintf("prefix-%d", p.ID))
	if p.prefix.Addr().Is4() {
		s.IPv4, s.IPv4Gateway = p.prefix, p.gateway().Addr()
	} else {
		s.IPv6, s.IPv6Gateway = p.prefix, p.gateway().Addr()
	}
}

func requestOf(nn *v1alpha2.NetworkNamespace) v1alpha2.NetBoxRequest {
	if p := nn.Spec.NetworkProvisioning; p != nil && p.NetBox != nil {
		return *p.NetBox
	}
	return v1alpha2.NetBoxRequest{}
}

// CheckRequest implements provider.Server. NetBox provides exactly what is requested, so
// that more than that is a difference as well.
func (Provider) CheckRequest(nn *v1alpha2.NetworkNamespace, s segment.Segment) error {
	r := requestOf(nn)
	switch err := s.CheckRequest(r.SegmentRequest); {
	case err != nil:
		return err
	case s.IPv4.IsValid() && s.IPv6.IsValid() && len(r.IPFamilies) < 2:
		return fmt.Errorf("only one of %s is requested", s.Prefixes())
	case r.VLANGroup == "" && s.VLAN != 0:
		return fmt.Errorf("VLAN %d is not requested", s.VLAN)
	case r.VLANGroup != "" && s.VLAN == 0:
		return fmt.Errorf("it has no VLAN of group %s", r.VLANGroup)
	default:
		return nil
	}
}

// Find looks up the prefixes, their gateways and the VLAN, and neither creates nor deletes
// any. It adopts those of a former UID. Of several prefixes or VLANs it returns the one in the status of nn.
func (p Provider) Find(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	has, err := segment.FromStatus(nn)
	if err == nil {
		err = p.adopt(ctx, nn)
	}
	if err != nil {
		return segment.Segment{}, err
	}
	var s segment.Segment
	for i, before := range []netip.Prefix{has.IPv4, has.IPv6} {
		if !before.IsValid() {
			continue
		}
		own, err := p.ownPrefixes(ctx, nn, families[i])
		if err != nil {
			return segment.Segment{}, err
		}
		if len(own) == 0 {
			return segment.Segment{}, Backend.SegmentGone(nn, string(families[i])+" prefix")
		}
		found := &own[max(0, slices.IndexFunc(own, func(p prefix) bool { return p.prefix == before }))]
		addPrefix(&s, found)
		registered, err := p.hasGateway(ctx, nn, found.gateway())
		if err != nil {
			return segment.Segment{}, err
		}
		if !registered {
			return segment.Segment{}, Backend.SegmentGone(nn, "gateway "+found.gateway().Addr().String())
		}
	}
	if has.VLAN != 0 {
		own, err := p.ownVLANs(ctx, nn)
		if err != nil {
			return segment.Segment{}, err
		}
		if len(own) == 0 {
			return segment.Segment{}, Backend.SegmentGone(nn, "VLAN")
		}
		s.VLAN = own[max(0, slices.IndexFunc(own, func(v vlan) bool { return v.VID == has.VLAN }))].VID
	}
	return s, s.Check()
}

// Probe implements provider.Prober.
func (p Provider) Probe(ctx context.Context) error {
	_, err := p.api.client.Do(ctx, httpclient.Request{Method: http.MethodGet, Path: "/api/status/"}, nil)
	return err
}

// Created implements provider.Lister, with one request for each page of prefixes and of
// VLANs. It searches by description; the custom field decides.
func (p Provider) Created(ctx context.Context) (all []v1alpha1.Orphan, err error) {
	query := map[string]string{"description__ic": descriptionPrefix}
	prefixes, err := list[prefix](ctx, p.api, "prefixes", query)
	if err != nil {
		return nil, err
	}
	for _, p := range prefixes {
		if uid := p.CustomFields.uid(); uid != "" {
			all = append(all, v1alpha1.Orphan{ID: fmt.Sprintf("prefixes/%d", p.ID), Name: p.Prefix, UID: uid})
		}
	}
	vlans, err := list[vlan](ctx, p.api, "vlans", query)
	if err != nil {
		return nil, err
	}
	for _, v := range vlans {
		if uid := v.CustomFields.uid(); uid != "" {
			all = append(all, v1alpha1.Orphan{ID: fmt.Sprintf("vlans/%d", v.ID), Name: fmt.Sprintf("VLAN %d", v.VID), UID: uid})
		}
	}
	return all, nil
}

// ensurePrefix returns the network's prefix of a family, with its gateway registered and
// its VLAN set.
func (p Provider) ensurePrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily, v *vlan) (*prefix, error) {
	own, err := p.ownPrefix(ctx, nn, family)
	if err == nil && own == nil {
		if err = p.createPrefix(ctx, nn, want, family); err == nil {
			// Another delivery may have created one too: both keep the one that is listed first.
			own, err = p.ownPrefix(ctx, nn, family)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case own == nil:
		return nil, Backend.InvalidResponse("the created prefix is not listed")
	}
	if v != nil && (own.VLAN == nil || own.VLAN.ID != v.ID) {
		if err := p.api.do(ctx, http.MethodPatch, objectPath("prefixes", own.ID), nil, map[string]any{"vlan": v.ID}, nil); err != nil {
			return nil, err
		}
	}
	return own, p.registerGateway(ctx, nn, own)
}

// ownPrefix returns the network's prefix of a family, or nil. It deletes all but the first.
func (p Provider) ownPrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) (*prefix, error) {
	own, err := p.ownPrefixes(ctx, nn, family)
	if err != nil {
		return nil, err
	}
	return keepFirst(ctx, p.api, "prefixes", own, func(p prefix) int { return p.ID })
}

// ownPrefixes returns the network's prefixes of a family in the order of their creation.
func (p Provider) ownPrefixes(ctx context.Context, nn *v1alpha2.NetworkNamespace, family v1alpha2.IPFamily) ([]prefix, error) {
	all, err := list[prefix](ctx, p.api, "prefixes", uidQuery(nn))
	if err != nil {
		return nil, err
	}
	var own []prefix
	for _, o := range all {
		if o.prefix, err = netip.ParsePrefix(o.Prefix); err != nil {
			return nil, Backend.InvalidResponse(fmt.Sprintf("%q is not a prefix", o.Prefix))
		}
		if o.CustomFields.belongTo(nn) && o.prefix.Addr().Is4() == (family == v1alpha2.IPv4) {
			own = append(own, o)
		}
	}
	return uniqueByID(own, func(p prefix) int { return p.ID }), nil
}

// createPrefix creates a prefix in the first parent that has room.
func (p Provider) createPrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) error {
	parents, err := p.parentPrefixes(ctx, want, family)
	if err != nil {
		return err
	}
	if len(parents) == 0 {
		return provider.PermanentError("NoParentPrefix", "NetBox has no %s prefix of status container %s: create one, or change spec.networkProvisioning.netbox", family, describeFilter(want))
	}
	length := int(cmp.Or(want.IPv4PrefixLength, defaultIPv4Length))
	if family == v1alpha2.IPv6 {
		length = int(cmp.Or(want.IPv6PrefixLength, defaultIPv6Length))
	}
	for _, parent := range parents {
		body := newObject(nn, describe(nn))
		body["prefix_length"] = length
		parent.copyScope(body)
		err := p.api.do(ctx, http.MethodPost, objectPath("prefixes", parent.ID)+"available-prefixes/", nil, body, nil)
		if !provider.IsKind(err, httpclient.Conflict) {
			return err
		}
	}
	return provider.PermanentError("ParentPrefixesFull", "none of the %d %s prefixes %s has room for a /%d: add one, or request a smaller segment", len(parents), family, describeFilter(want), length)
}

// parentPrefixes returns the prefixes that a segment may be created in, by their addresses.
// It filters once more what NetBox returns, because NetBox ignores filters that it does not
// know.
func (p Provider) parentPrefixes(ctx context.Context, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) ([]prefix, error) {
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
	all, err := list[prefix](ctx, p.api, "prefixes", query)
	if err != nil {
		return nil, err
	}
	var parents []prefix
	for _, o := range all {
		o.prefix, err = netip.ParsePrefix(o.Prefix)
		fits := err == nil && o.Status.Value == "container" && o.prefix.Addr().Is4() == (family == v1alpha2.IPv4) &&
			(want.Role == "" || o.Role != nil && o.Role.Slug == want.Role) && (want.Site == "" || o.isAt(want.Site))
		for name, value := range want.CustomFields {
			fits = fits && fmt.Sprint(o.CustomFields[name]) == value
		}
		if fits {
			parents = append(parents, o)
		}
	}
	slices.SortFunc(parents, func(a, b prefix) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	return parents, nil
}

// registerGateway creates the gateway's address. If NetBox refuses that, it looks again,
// because another delivery may have registered it in the meantime.
func (p Provider) registerGateway(ctx context.Context, nn *v1alpha2.NetworkNamespace, own *prefix) error {
	gateway := own.gateway()
	if registered, err := p.hasGateway(ctx, nn, gateway); err != nil || registered {
		return err
	}
	body := newObject(nn, "Gateway of "+describe(nn))
	body["address"] = gateway.String()
	if own.VRF != nil {
		body["vrf"] = own.VRF.ID
	}
	refusal := p.api.do(ctx, http.MethodPost, "/api/ipam/ip-addresses/", nil, body, nil)
	if refusal == nil {
		return nil
	}
	if registered, err := p.hasGateway(ctx, nn, gateway); err == nil && registered {
		return nil
	}
	return refusal
}

// hasGateway reports whether NetBox has the network's gateway. It deletes other addresses
// of the family that have the network's UID: they are of prefixes that were created at the
// same time and deleted again.
func (p Provider) hasGateway(ctx context.Context, nn *v1alpha2.NetworkNamespace, gateway netip.Prefix) (bool, error) {
	all, err := list[address](ctx, p.api, "ip-addresses", uidQuery(nn))
	if err != nil {
		return false, err
	}
	found := false
	for _, a := range all {
		has, err := netip.ParsePrefix(a.Address)
		switch {
		case err != nil || !a.CustomFields.belongTo(nn) || has.Addr().Is4() != gateway.Addr().Is4():
		case has == gateway:
			found = true
		default:
			if err := p.api.remove(ctx, "ip-addresses", a.ID); err != nil {
				return false, err
			}
		}
	}
	return found, nil
}

// ensureVLAN returns the network's VLAN of a group, or nil if group is empty.
func (p Provider) ensureVLAN(ctx context.Context, nn *v1alpha2.NetworkNamespace, group string) (*vlan, error) {
	if group == "" {
		return nil, nil
	}
	own, err := p.ownVLAN(ctx, nn)
	if err != nil || own != nil {
		return own, err
	}
	groups, err := list[vlanGroup](ctx, p.api, "vlan-groups", map[string]string{"slug": group})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(groups, func(g vlanGroup) bool { return g.Slug == group })
	if i < 0 {
		return nil, provider.PermanentError("NoVLANGroup", "NetBox has no VLAN group %s: create it, or change spec.networkProvisioning.netbox.vlanGroup", group)
	}
	body := newObject(nn, describe(nn))
	body["name"] = vlanName(nn)
	err = p.api.do(ctx, http.MethodPost, objectPath("vlan-groups", groups[i].ID)+"available-vlans/", nil, body, nil)
	if provider.IsKind(err, httpclient.Conflict) {
		return nil, provider.PermanentError("VLANGroupFull", "VLAN group %s has no free VLAN: release one, or enlarge it", group)
	}
	if err != nil {
		return nil, err
	}
	if own, err = p.ownVLAN(ctx, nn); err == nil && own == nil {
		err = Backend.InvalidResponse("the created VLAN is not listed")
	}
	return own, err
}

// ownVLAN returns the network's VLAN, or nil. It deletes all but the first.
func (p Provider) ownVLAN(ctx context.Context, nn *v1alpha2.NetworkNamespace) (*vlan, error) {
	own, err := p.ownVLANs(ctx, nn)
	if err != nil {
		return nil, err
	}
	return keepFirst(ctx, p.api, "vlans", own, func(v vlan) int { return v.ID })
}

// ownVLANs returns the network's VLANs in the order of their creation.
func (p Provider) ownVLANs(ctx context.Context, nn *v1alpha2.NetworkNamespace) ([]vlan, error) {
	own, err := list[vlan](ctx, p.api, "vlans", uidQuery(nn))
	if err != nil {
		return nil, err
	}
	own = slices.DeleteFunc(own, func(v vlan) bool { return !v.CustomFields.belongTo(nn) })
	return uniqueByID(own, func(v vlan) int { return v.ID }), nil
}

// Release deletes all objects that have the network's UID. The VLAN is last, because NetBox
// keeps a VLAN while a prefix refers to it.
func (p Provider) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if err := p.adopt(ctx, nn); err != nil {
		return err
	}
	for _, kind := range kinds {
		all, err := list[object](ctx, p.api, kind, uidQuery(nn))
		if err != nil {
			return err
		}
		for _, o := range all {
			if !o.CustomFields.belongTo(nn) {
				continue
			}
			if err := p.api.remove(ctx, kind, o.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// newObject returns the fields that everything created for a network has.
func newObject(nn *v1alpha2.NetworkNamespace, description string) map[string]any {
	return map[string]any{"status": "active", "description": description, "custom_fields": map[string]string{fieldUID: string(nn.UID)}}
}

// describe returns the description of an object of a network.
func describe(nn *v1alpha2.NetworkNamespace) string {
	const maxLength = 180 // NetBox allows 200
	text := descriptionPrefix + " " + nn.Namespace + "/" + nn.Name
	return text[:min(len(text), maxLength)]
}

// vlanName returns a name that is unique in its group, also after a network of the same
// name was deleted.
func vlanName(nn *v1alpha2.NetworkNamespace) string {
	const maxLength, suffix = 64, 8
	uid := string(nn.UID)
	return nn.Name[:min(len(nn.Name), maxLength-suffix-1)] + "-" + uid[:min(len(uid), suffix)]
}

// describeFilter says in a message which parent prefixes are looked for.
func describeFilter(want v1alpha2.NetBoxRequest) string {
	var all []string
	for name, value := range want.CustomFields {
		all = append(all, name+" "+value)
	}
	slices.Sort(all)
	if want.Role != "" {
		all = append([]string{"role " + want.Role}, all...)
	}
	if want.Site != "" {
		all = append([]string{"site " + want.Site}, all...)
	}
	if len(all) == 0 {
		return "at all"
	}
	return "with " + strings.Join(all, ", ")
}

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

// Provide looks up each part of the segment and creates missing ones. For a segment of an earlier request it returns
// an Error that is Outdated, because only a network that has allocated no addresses asks for its segment again.
func (p Provider) Provide(ctx context.Context, nn *v1alpha2.NetworkNamespace) (segment.Segment, error) {
	if err := p.adopt(ctx, nn); err != nil {
		return segment.Segment{}, err
	}
	want := requestOf(nn)
	want.Site = cmp.Or(want.Site, string(nn.Spec.DatacenterIdentifier))
	if len(want.IPFamilies) == 0 {
		want.IPFamilies = families[:1]
	}
	outdated, err := p.isOutdated(ctx, nn, want)
	if err == nil && outdated {
		err = provider.OutdatedError(Backend.Name)
	}
	if err != nil {
		return segment.Segment{}, err
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
			return segment.Segment{}, cmp.Or(p.api.checkPrepared(ctx), error(Backend.SegmentGone(nn.UID, string(families[i])+" prefix")))
		}
		found := &own[max(0, slices.IndexFunc(own, func(p prefix) bool { return p.prefix == before }))]
		addPrefix(&s, found)
		gateway := found.gateway().Addr()
		addresses, err := p.ownAddresses(ctx, nn, gateway)
		if err != nil {
			return segment.Segment{}, err
		}
		if !slices.ContainsFunc(addresses, func(a address) bool { return a.address.Addr() == gateway }) {
			return segment.Segment{}, Backend.SegmentGone(nn.UID, "gateway "+gateway.String())
		}
	}
	if has.VLAN != 0 {
		own, err := p.ownVLANs(ctx, nn)
		if err != nil {
			return segment.Segment{}, err
		}
		if len(own) == 0 {
			return segment.Segment{}, Backend.SegmentGone(nn.UID, "VLAN")
		}
		s.VLAN = own[max(0, slices.IndexFunc(own, func(v vlan) bool { return v.VID == has.VLAN }))].VID
	}
	return s, nil // one in which machines cannot be is another one than that in the status
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

// Release deletes all objects that have the network's UID. The VLAN is last, because NetBox
// keeps a VLAN while a prefix refers to it. If nothing has the UID of a network with a segment, the custom field has to exist.
func (p Provider) Release(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	if err := p.adopt(ctx, nn); err != nil {
		return err
	}
	removed := 0
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
			removed++
		}
	}
	if has := nn.Status.IPv4Prefix != "" || nn.Status.IPv6Prefix != ""; has && removed == 0 {
		return p.api.checkPrepared(ctx)
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

package netbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

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

// createPrefix creates a prefix in the first parent that is larger and has room. NetBox offers a parent without
// prefixes as its own free prefix, and then refuses that as a duplicate, or creates it a second time.
func (p Provider) createPrefix(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) error {
	parents, err := p.parentPrefixes(ctx, want, family)
	if err != nil {
		return err
	}
	if len(parents) == 0 {
		return provider.PermanentError("NoParentPrefix", "NetBox has no %s prefix of status container %s: create one, or change spec.networkProvisioning.netbox", family, describeFilter(want))
	}
	length := prefixLength(want, family)
	for _, parent := range parents {
		if parent.prefix.Bits() >= length {
			continue
		}
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

// prefixLength returns the length of the prefix of a family that a request is for.
func prefixLength(want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) int {
	if family == v1alpha2.IPv6 {
		return int(cmp.Or(want.IPv6PrefixLength, defaultIPv6Length))
	}
	return int(cmp.Or(want.IPv4PrefixLength, defaultIPv4Length))
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
		return nil, missingChoiceError(err, want)
	}
	var parents []prefix
	for _, o := range all {
		o.prefix, err = netip.ParsePrefix(o.Prefix)
		fits := err == nil && o.Status.Value == "container" && o.prefix.Addr().Is4() == (family == v1alpha2.IPv4) &&
			(want.Role == "" || o.Role != nil && o.Role.Slug == want.Role) && (want.Site == "" || o.isAt(want.Site))
		for name, value := range want.CustomFields {
			fits = fits && isFieldValue(o.CustomFields[name], value)
		}
		if fits {
			parents = append(parents, o)
		}
	}
	slices.SortFunc(parents, func(a, b prefix) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	return parents, nil
}

// missingChoiceError returns the Error of a request for the prefixes of a site or a role that NetBox refuses because it has none with
// that slug. It returns any other error unchanged.
func missingChoiceError(err error, want v1alpha2.NetBoxRequest) error {
	var e *httpclient.Error
	var refused map[string]json.RawMessage
	if !errors.As(err, &e) || e.Kind != httpclient.Rejected || json.Unmarshal(e.Body, &refused) != nil {
		return err
	}
	const message = "NetBox has no %[1]s %[2]s: create it, or write the slug of an existing %[1]s into spec.networkProvisioning.netbox.%[1]s"
	switch {
	case refused["site"] != nil:
		return provider.PermanentError("NoParentPrefix", message+", which replaces spec.datacenterIdentifier", "site", want.Site)
	case refused["role"] != nil:
		return provider.PermanentError("NoParentPrefix", message, "role", want.Role)
	default:
		return err
	}
}

// registerGateway creates the gateway's address, and deletes the network's other addresses of the family: they are of prefixes
// that were created at the same time and deleted again. If NetBox refuses the address, it looks again, because another
// delivery may have registered it in the meantime.
func (p Provider) registerGateway(ctx context.Context, nn *v1alpha2.NetworkNamespace, own *prefix) error {
	gateway := own.gateway()
	isGateway := func(a address) bool { return a.address == gateway }
	all, err := p.ownAddresses(ctx, nn, gateway.Addr())
	if err != nil {
		return err
	}
	for _, a := range all {
		if isGateway(a) {
			continue
		}
		if err := p.api.remove(ctx, "ip-addresses", a.ID); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(all, isGateway) {
		return nil
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
	if all, err := p.ownAddresses(ctx, nn, gateway.Addr()); err == nil && slices.ContainsFunc(all, isGateway) {
		return nil
	}
	return refusal
}

// ownAddresses returns the network's addresses of the family of gateway.
func (p Provider) ownAddresses(ctx context.Context, nn *v1alpha2.NetworkNamespace, gateway netip.Addr) ([]address, error) {
	all, err := list[address](ctx, p.api, "ip-addresses", uidQuery(nn))
	if err != nil {
		return nil, err
	}
	var own []address
	for _, a := range all {
		if a.address, err = netip.ParsePrefix(a.Address); err == nil && a.CustomFields.belongTo(nn) && a.address.Addr().Is4() == gateway.Is4() {
			own = append(own, a)
		}
	}
	return own, nil
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

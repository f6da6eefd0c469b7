package netbox

import (
	"context"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// isOutdated reports whether the prefixes or the VLAN of a network are those of another request than its present one. A network that
// was created again may have lost its status, and machines may use what it had, so that this is never outdated.
func (p Provider) isOutdated(ctx context.Context, nn *v1alpha2.NetworkNamespace, want v1alpha2.NetBoxRequest) (bool, error) {
	if len(v1alpha1.FormerUIDs(nn)) > 0 {
		return false, nil
	}
	vlans, err := p.ownVLANs(ctx, nn)
	if err != nil || len(vlans) > 0 && vlans[0].groupSlug() != want.VLANGroup {
		return err == nil, err
	}
	for _, family := range families {
		own, err := p.ownPrefixes(ctx, nn, family)
		if err != nil {
			return false, err
		}
		if len(own) == 0 {
			continue
		}
		if outdated, err := p.isPrefixOutdated(ctx, own[0], want, family); outdated || err != nil {
			return outdated, err
		}
	}
	return false, nil
}

// isPrefixOutdated reports whether a request is for a prefix of another length or parent than own, or for none of its family.
func (p Provider) isPrefixOutdated(ctx context.Context, own prefix, want v1alpha2.NetBoxRequest, family v1alpha2.IPFamily) (bool, error) {
	if !slices.Contains(want.IPFamilies, family) || own.prefix.Bits() != prefixLength(want, family) {
		return true, nil
	}
	parents, err := p.parentPrefixes(ctx, want, family)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(parents, func(parent prefix) bool { return parent.contains(own) }), nil
}

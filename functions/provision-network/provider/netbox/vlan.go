package netbox

import (
	"context"
	"net/http"
	"slices"

	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/functions/internal/httpclient"
	"github.com/vitistack/stack/functions/provision-network/provider"
)

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

// vlanName returns a name that is unique in its group, also after a network of the same
// name was deleted.
func vlanName(nn *v1alpha2.NetworkNamespace) string {
	const maxLength, suffix = 64, 8
	uid := string(nn.UID)
	return nn.Name[:min(len(nn.Name), maxLength-suffix-1)] + "-" + uid[:min(len(uid), suffix)]
}

package netbox

import (
	"context"
	"net/http"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
)

// kinds are the kinds of NetBox that a segment consists of, in the order of their deletion.
var kinds = []string{"ip-addresses", "prefixes", "vlans"}

// adopt writes a network's UID on what NetBox has for its former UIDs. A second call finds nothing there. NetBox has
// no conditional write: of two networks that adopt an object between the same two requests, the later one
// gets it.
func (p Provider) adopt(ctx context.Context, nn *v1alpha2.NetworkNamespace) error {
	for _, uid := range v1alpha1.FormerUIDs(nn) {
		if !v1alpha1.HadUID(nn, uid) {
			continue
		}
		for _, kind := range kinds {
			all, err := list[object](ctx, p.api, kind, map[string]string{"cf_" + fieldUID: uid})
			if err != nil {
				return err
			}
			body := map[string]any{"custom_fields": map[string]string{fieldUID: string(nn.UID)}}
			for _, o := range all {
				if o.CustomFields.uid() != uid {
					continue // NetBox ignores a filter by a custom field that it does not have
				}
				if err := p.api.do(ctx, http.MethodPatch, objectPath(kind, o.ID), nil, body, nil); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

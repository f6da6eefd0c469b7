package main

import (
	"context"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
)

// sharedVariable is the environment variable that says whether another installation of the
// stack uses the same NetBox.
const sharedVariable = "NETBOX_SHARED"

// isShared reads sharedVariable.
func isShared(getenv func(string) string) (bool, error) {
	text := getenv(sharedVariable)
	if text == "" {
		return false, nil
	}
	shared, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("read %s: write true or false", sharedVariable)
	}
	return shared, nil
}

// checkOrphans reports the prefixes and VLANs in NetBox that carry the UID of a NetworkNamespace
// which does not exist. While NetBox does not answer, what is known stays.
func (f *function) checkOrphans(ctx context.Context) error {
	var found []v1alpha1.Orphan
	if n, has := f.sources[v1alpha2.ProviderNetBox].(netbox); has && !f.shared {
		made, err := n.made(ctx)
		if err != nil {
			events.Report(ctx, "", "Did not look for orphans: "+err.Error())
			return nil
		}
		if found, err = f.withoutNetwork(ctx, made); err != nil {
			return err
		}
	}
	return orphans.Report(ctx, f.kube, orphans.Check{Namespace: f.namespace, Backend: v1alpha1.OrphansInNetBox, Found: found, Now: f.now(), Message: netboxMessage})
}

// withoutNetwork returns what was made for NetworkNamespaces that do not exist. It has to be listed
// before the NetworkNamespaces are, because a NetworkNamespace is there before its segment is
// made, and until after it is released.
func (f *function) withoutNetwork(ctx context.Context, made []v1alpha1.Orphan) (found []v1alpha1.Orphan, err error) {
	if len(made) == 0 {
		return nil, nil
	}
	networks, err := kube.View[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	exists := map[string]bool{}
	for i := range networks.Items {
		exists[string(networks.Items[i].UID)] = true
	}
	for _, o := range made {
		if !exists[o.UID] {
			found = append(found, o)
		}
	}
	return found, nil
}

// made lists the prefixes and VLANs that this stack made, with one request for a page of each.
// Custom fields cannot be asked for any value in every NetBox, so what is asked for is the description
// that the stack writes; the custom field decides.
func (n netbox) made(ctx context.Context) (all []v1alpha1.Orphan, err error) {
	described := map[string]string{"description__ic": kindNetwork}
	prefixes, err := list[netboxPrefix](ctx, n.api, "prefixes", described)
	if err != nil {
		return nil, err
	}
	for _, p := range prefixes {
		if uid := p.CustomFields.uid(); uid != "" {
			all = append(all, v1alpha1.Orphan{ID: fmt.Sprintf("prefixes/%d", p.ID), Name: p.Prefix, UID: uid})
		}
	}
	vlans, err := list[netboxVLAN](ctx, n.api, "vlans", described)
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

// uid is the UID of the NetworkNamespace that an object was made for, or empty.
func (f netboxFields) uid() string {
	uid, _ := f[fieldUID].(string)
	return uid
}

// netboxMessage names prefixes and VLANs, and the command that removes the first one.
func netboxMessage(found []v1alpha1.Orphan) string {
	return fmt.Sprintf("no NetworkNamespace exists for %s in NetBox. The stack removes none of them. If no machine uses them, delete each, and the gateway's address in a prefix: "+
		`curl --request DELETE --header "Authorization: Token $NETBOX_TOKEN" $NETBOX_URL/api/ipam/%s/. If another installation of the stack uses this NetBox, set %s to true`,
		orphans.Enumerate(found), found[0].ID, sharedVariable)
}

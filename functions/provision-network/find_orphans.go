package main

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/events/setting"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/provision-network/provider"
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
	shared, err := setting.Bool(text)
	if err != nil {
		return false, fmt.Errorf("read %s: write true or false", sharedVariable)
	}
	return shared, nil
}

// reportOrphans reports the prefixes and VLANs in NetBox that have the UID of a
// NetworkNamespace which does not exist. While NetBox does not answer, the last report stays.
func (f *function) reportOrphans(ctx context.Context) error {
	var found []v1alpha1.Orphan
	if lister, ok := f.provider(v1alpha2.ProviderNetBox).(provider.Lister); ok && !f.sharedNetBox {
		created, err := lister.Created(ctx)
		if err != nil {
			events.Report(ctx, "", "Did not look for orphans: "+err.Error())
			return nil
		}
		if found, err = f.selectOrphans(ctx, created); err != nil {
			return err
		}
	}
	return orphans.Report(ctx, f.kube, orphans.Check{Namespace: f.namespace, Backend: v1alpha1.OrphansInNetBox, Found: found, Now: f.now(), Message: netboxMessage})
}

// selectOrphans returns the objects whose NetworkNamespace does not exist. The objects have
// to be listed before the NetworkNamespaces, because a NetworkNamespace exists before its
// segment is created and until its segment is released.
func (f *function) selectOrphans(ctx context.Context, created []v1alpha1.Orphan) (found []v1alpha1.Orphan, err error) {
	if len(created) == 0 {
		return nil, nil
	}
	networks, err := kube.ListShared[v1alpha2.NetworkNamespaceList](ctx, f.kube, "", metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	exists := map[string]bool{}
	for i := range networks.Items {
		for _, uid := range v1alpha1.UIDs(&networks.Items[i]) {
			exists[uid] = true
		}
	}
	for _, o := range created {
		if !exists[o.UID] {
			found = append(found, o)
		}
	}
	return found, nil
}

// netboxMessage names prefixes and VLANs, and the command that removes the first one.
func netboxMessage(found []v1alpha1.Orphan) string {
	return fmt.Sprintf("no NetworkNamespace exists for %s in NetBox. The stack removes none of them. If no machine uses them, delete each, and the gateway's address in a prefix: "+
		`curl --request DELETE --header "Authorization: Token $NETBOX_TOKEN" $NETBOX_URL/api/ipam/%s/. If another installation of the stack uses this NetBox, set %s to true`,
		orphans.Enumerate(found), found[0].ID, sharedVariable)
}

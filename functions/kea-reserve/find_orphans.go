package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/apis/v1alpha2"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// checkOrphans reports the reservations in Kea with the mark of this stack and whose
// NetworkConfiguration does not exist. releaseOrphans removes those of an existing network, so
// that what a second check finds belongs to a network that is deleted. Then checkOrphans removes the
// empty subnets of deleted networks, because such a subnet would block or serve a later network with an
// overlapping prefix. If a server does not answer, the former report stays.
func (f *function) checkOrphans(ctx context.Context) error {
	var found []v1alpha1.Orphan
	var marked []kea.Reservation
	var networks []string
	if len(f.clients) > 0 && !f.shared {
		var err error
		if marked, networks, err = kea.ReadMarked(ctx, f.clients); err != nil {
			events.Report(ctx, "", "Did not look for orphans: "+kea.Classify(err).Message)
			return nil
		}
		if found, err = f.withoutConfiguration(ctx, marked); err != nil {
			return err
		}
	}
	err := orphans.Report(ctx, f.kube, orphans.Check{Namespace: f.namespace, Backend: v1alpha1.OrphansInKea, Found: found, Now: f.now(), Message: reservationMessage(marked)})
	if err != nil || len(networks) == 0 {
		return err
	}
	exists, err := f.existingUIDs(ctx, v1alpha2.GroupVersion.WithResource("networknamespaces"))
	if err != nil {
		return err
	}
	deleted := slices.DeleteFunc(networks, func(uid string) bool { return exists[uid] })
	return f.removeSubnetsOf(ctx, deleted, netip.Prefix{})
}

// withoutConfiguration returns the reservations whose NetworkConfiguration does not exist.
func (f *function) withoutConfiguration(ctx context.Context, marked []kea.Reservation) (found []v1alpha1.Orphan, err error) {
	if len(marked) == 0 {
		return nil, nil
	}
	exists, err := f.existingUIDs(ctx, v1alpha1.GroupVersion.WithResource("networkconfigurations"))
	if err != nil {
		return nil, err
	}
	for _, r := range marked {
		if !exists[r.Owner.UID] {
			found = append(found, v1alpha1.Orphan{ID: r.ID(), Name: r.Owner.Name, UID: r.Owner.UID})
		}
	}
	return found, nil
}

// existingUIDs returns the present and former UIDs of all objects of a resource. Kea has to be read before,
// because an object is there before anything is made in Kea for it, and until after that is removed.
func (f *function) existingUIDs(ctx context.Context, resource schema.GroupVersionResource) (map[string]bool, error) {
	const pageSize = 500
	exists := map[string]bool{}
	err := f.kube.EachMetadata(ctx, resource, kube.Page{Limit: pageSize}, func(o *metav1.PartialObjectMetadata) {
		for _, uid := range v1alpha1.UIDs(o) {
			exists[uid] = true
		}
	})
	return exists, err
}

// reservationMessage returns a function that names orphaned reservations, and the command that
// removes the first one.
func reservationMessage(marked []kea.Reservation) func([]v1alpha1.Orphan) string {
	return func(found []v1alpha1.Orphan) string {
		first := marked[slices.IndexFunc(marked, func(r kea.Reservation) bool { return r.ID() == found[0].ID })]
		return fmt.Sprintf("no NetworkConfiguration exists for reservations in Kea: %s. The stack removes none of them. If no machine uses them, send each Kea server "+
			`%s, and then {"command":"config-write","service":["dhcp4"]}; a server without `+
			"reservation-del has them in its configuration file. If another installation of the stack uses this Kea, set KEA_SHARED to true",
			orphans.Enumerate(found), first.RemoveCommand())
	}
}

package main

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/kea-reserve/kea"
)

// checkOrphans reports the reservations in Kea with the mark of this stack and whose
// NetworkConfiguration does not exist. releaseOrphans removes those of an existing network, so
// that what a second check finds belongs to a network that is deleted. If a server does not
// answer, the former report stays.
func (f *function) checkOrphans(ctx context.Context) error {
	var found []v1alpha1.Orphan
	var marked []kea.Reservation
	if len(f.clients) > 0 && !f.shared {
		var err error
		if marked, err = kea.ReadReservations(ctx, f.clients); err != nil {
			events.Report(ctx, "", "Did not look for orphans: "+kea.Classify(err).Message)
			return nil
		}
		if found, err = f.withoutConfiguration(ctx, marked); err != nil {
			return err
		}
	}
	return orphans.Report(ctx, f.kube, orphans.Check{Namespace: f.namespace, Backend: v1alpha1.OrphansInKea, Found: found, Now: f.now(), Message: reservationMessage(marked)})
}

// withoutConfiguration returns the reservations whose NetworkConfiguration does not exist. They have
// to be read before the NetworkConfigurations are, because a NetworkConfiguration is there
// before its reservation is made, and until after it is removed.
func (f *function) withoutConfiguration(ctx context.Context, marked []kea.Reservation) (found []v1alpha1.Orphan, err error) {
	if len(marked) == 0 {
		return nil, nil
	}
	const pageSize = 500
	exists := map[string]bool{}
	for page := (kube.Page{Limit: pageSize, Metadata: true}); ; {
		var list metav1.PartialObjectMetadataList
		if err := f.kube.ListInto(ctx, v1alpha1.GroupVersion.WithResource("networkconfigurations"), page, &list); err != nil {
			return nil, err
		}
		for i := range list.Items {
			for _, uid := range v1alpha1.UIDs(&list.Items[i]) {
				exists[uid] = true
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			break
		}
	}
	for _, r := range marked {
		if !exists[r.Owner.UID] {
			found = append(found, v1alpha1.Orphan{ID: r.ID(), Name: r.Owner.Name, UID: r.Owner.UID})
		}
	}
	return found, nil
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

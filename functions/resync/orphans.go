package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events"
	"github.com/vitistack/stack/functions/internal/orphans"
)

// checkOrphans reports the Leases whose holder does not exist, and requests the same of the
// functions that own a backend. A Lease that allocate-ip deletes because of this round is gone
// at the next check, and so is never confirmed.
func (p *round) checkOrphans(ctx context.Context) error {
	if _, err := p.post(ctx, events.NewReconcileRequest("/functions/"+name, orphans.Ref(p.namespace), v1alpha1.ConfigMapOrphans, p.round)); err != nil {
		return err
	}
	return orphans.Report(ctx, p.api, orphans.Check{Namespace: p.namespace, Backend: v1alpha1.OrphansInLeases, Found: p.progress.Orphans, Now: p.now(), Message: leaseMessage})
}

// leaseMessage names Leases, and the command that deletes the first one.
func leaseMessage(found []v1alpha1.Orphan) string {
	namespace, name, _ := strings.Cut(found[0].ID, "/")
	return fmt.Sprintf("no IPAllocation or Machine exists for Leases %s, which keep an address or a VMID from others. Delete each: kubectl --namespace %s delete lease %s",
		orphans.Enumerate(found), namespace, name)
}

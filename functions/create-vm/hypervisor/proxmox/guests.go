package proxmox

import (
	"context"
	"fmt"
	"strconv"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// Guests implements hypervisor.GuestLister.
func (x *Hypervisor) Guests(ctx context.Context) ([]v1alpha1.Orphan, error) {
	all, err := x.readInventory(ctx)
	if err != nil {
		return nil, x.toUserError(err)
	}
	var guests []v1alpha1.Orphan
	for _, r := range all {
		if uid := ownerUID(r.tags()); r.isVM() && r.Template != 1 && uid != "" {
			guests = append(guests, v1alpha1.Orphan{ID: strconv.Itoa(r.VMID), Name: r.Name + " on node " + r.Node, UID: uid})
		}
	}
	return guests, nil
}

// RemovalCommand implements hypervisor.GuestLister.
func (x *Hypervisor) RemovalCommand(id string) string {
	return fmt.Sprintf("on its node: qm stop %[1]s; qm destroy %[1]s --purge", id)
}

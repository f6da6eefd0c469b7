package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// guestLister lists the virtual machines at a hypervisor that the stack made.
type guestLister interface {
	// Guests returns the ID and the name of each, and the UID of the Machine that it was made
	// for, without those that are being deleted.
	Guests(ctx context.Context) ([]v1alpha1.Orphan, error)
}

// Guests implements guestLister.
func (x *proxmox) Guests(ctx context.Context) ([]v1alpha1.Orphan, error) {
	all, err := x.resources(ctx)
	if err != nil {
		return nil, x.asUserError(err)
	}
	var guests []v1alpha1.Orphan
	for _, r := range all {
		if uid := uidOfTags(r.tags()); r.isVM() && r.Template != 1 && uid != "" {
			guests = append(guests, v1alpha1.Orphan{ID: strconv.Itoa(r.VMID), Name: r.Name + " on node " + r.Node, UID: uid})
		}
	}
	return guests, nil
}

// uidOfTags returns the UID of the Machine that a virtual machine with these tags was made for.
// It is empty where the stack did not make the virtual machine.
func uidOfTags(tags []string) (uid string) {
	managed := false
	for _, t := range tags {
		if rest, ok := strings.CutPrefix(t, "uid-"); ok {
			uid = rest
		}
		managed = managed || t == tagManaged
	}
	if !managed {
		return ""
	}
	return uid
}

// Guests implements guestLister.
func (k *kubevirt) Guests(ctx context.Context) ([]v1alpha1.Orphan, error) {
	var guests []v1alpha1.Orphan
	for page := (kube.Page{Limit: pageSize, Selector: v1alpha1.LabelManagedBy + "=" + kubevirtManager, Metadata: true}); ; {
		var list metav1.PartialObjectMetadataList
		err := k.guests.ListInto(ctx, virtualMachines, page, &list)
		if apierrors.IsForbidden(err) {
			return nil, reconcile.UserError{Reason: "PermissionDenied", Message: "the user may not list virtual machines: grant it list on virtualmachines.kubevirt.io in all namespaces"}
		}
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			vm := &list.Items[i]
			if uid := vm.Annotations[v1alpha1.AnnotationUID]; uid != "" && vm.DeletionTimestamp == nil {
				guests = append(guests, v1alpha1.Orphan{ID: vm.Namespace + "/" + vm.Name, UID: uid})
			}
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return guests, nil
		}
	}
}

// withoutMachine returns the guests whose Machine does not exist. The guests have to be listed
// before the Machines, because a Machine is there before its virtual machine is made, and
// until after it is removed.
func withoutMachine(guests []v1alpha1.Orphan, machines []v1alpha1.Machine) (found []v1alpha1.Orphan) {
	exists := map[string]bool{}
	for i := range machines {
		exists[string(machines[i].UID)] = true
	}
	for _, g := range guests {
		if !exists[g.UID] {
			found = append(found, g)
		}
	}
	return found
}

// setOrphans writes into a MachineProvider's status what a check for orphans has shown at
// a time. It reports whether users want to be told.
func setOrphans(p *v1alpha1.MachineProvider, i inspection, machines []v1alpha1.Machine, now time.Time) (news bool) {
	s := &p.Status
	if p.Spec.Shared {
		s.Orphans, s.OrphanCount = nil, 0
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionOrphansFound)
		return false
	}
	if i.unlisted != nil {
		message := stableMessage(i.unlisted)
		if f, ok := asUserError(i.unlisted); ok {
			message = f.Message
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionOrphansFound, Status: metav1.ConditionUnknown, ObservedGeneration: p.Generation,
			Reason: "NotListed", Message: kube.Text("orphans cannot be looked for: "+message, 1024),
		})
		return false
	}
	s.Orphans = orphans.Merge(s.Orphans, withoutMachine(i.guests, machines), now)
	confirmed := orphans.Confirmed(s.Orphans)
	s.OrphanCount = int32(len(confirmed))
	if len(confirmed) == 0 {
		kube.SetCondition(&s.Conditions, p.Generation, v1alpha1.ConditionOrphansFound, false, "NoOrphans", "no virtual machine was found twice without its Machine")
		return false
	}
	return kube.SetCondition(&s.Conditions, p.Generation, v1alpha1.ConditionOrphansFound, true, "OrphansFound", orphanMessage(p, confirmed))
}

// orphanMessage names orphans, and the command that removes the first one.
func orphanMessage(p *v1alpha1.MachineProvider, found []v1alpha1.Orphan) string {
	remedy := fmt.Sprintf("on its node: qm stop %[1]s; qm destroy %[1]s --purge", found[0].ID)
	if p.Spec.Type == v1alpha1.ProviderKubeVirt {
		namespace, name, _ := strings.Cut(found[0].ID, "/")
		remedy = fmt.Sprintf("in the cluster of KubeVirt: kubectl --namespace %s delete virtualmachine %s", namespace, name)
	}
	return fmt.Sprintf("no Machine exists for %s. The stack removes none of them. If they are not needed, remove each %s. If another installation makes machines here, set spec.shared of MachineProvider %s to true",
		orphans.Enumerate(found), remedy, p.Name)
}

package main

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/orphans"
)

// findOrphans returns the guests whose Machine does not exist. The guests have to be listed
// before the Machines, because a Machine exists before its virtual machine is created and until
// after it is removed.
func findOrphans(guests []v1alpha1.Orphan, machines []v1alpha1.Machine) (found []v1alpha1.Orphan) {
	exists := map[string]bool{}
	for i := range machines {
		for _, uid := range v1alpha1.UIDs(&machines[i]) {
			exists[uid] = true
		}
	}
	for _, g := range guests {
		if !exists[g.UID] {
			found = append(found, g)
		}
	}
	return found
}

// setOrphans writes the result of a check for orphans at a time into a MachineProvider's status.
// It reports whether the condition has changed, so that an Event is recorded.
func setOrphans(p *v1alpha1.MachineProvider, i inspection, machines []v1alpha1.Machine, now time.Time) (changed bool) {
	s := &p.Status
	if p.Spec.Shared {
		s.Orphans, s.OrphanCount = nil, 0
		meta.RemoveStatusCondition(&s.Conditions, v1alpha1.ConditionOrphansFound)
		return false
	}
	if i.listError != nil {
		message := stableMessage(i.listError)
		if problem, ok := asUserError(i.listError); ok {
			message = problem.Message
		}
		meta.SetStatusCondition(&s.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionOrphansFound, Status: metav1.ConditionUnknown, ObservedGeneration: p.Generation,
			Reason: "NotListed", Message: kube.Text("orphans cannot be looked for: "+message, 1024),
		})
		return false
	}
	s.Orphans = orphans.Confirm(s.Orphans, findOrphans(i.guests, machines), now)
	confirmed := orphans.Confirmed(s.Orphans)
	s.OrphanCount = int32(len(confirmed))
	if len(confirmed) == 0 {
		kube.SetCondition(&s.Conditions, p.Generation, v1alpha1.ConditionOrphansFound, false, "NoOrphans", "no virtual machine was found twice without its Machine")
		return false
	}
	return kube.SetCondition(&s.Conditions, p.Generation, v1alpha1.ConditionOrphansFound, true, "OrphansFound", orphanMessage(p, confirmed, i.removalCommand))
}

// orphanMessage names orphans, and how an administrator removes the first one.
func orphanMessage(p *v1alpha1.MachineProvider, found []v1alpha1.Orphan, removalCommand func(id string) string) string {
	return fmt.Sprintf("no Machine exists for %s. The stack removes none of them. If they are not needed, remove each %s. If another installation makes machines here, set spec.shared of MachineProvider %s to true",
		orphans.Enumerate(found), removalCommand(found[0].ID), p.Name)
}

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/cluster/plan"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Reasons of a cluster whose machines are resized in place.
const (
	reasonResizing     = "ResizingMachines"
	reasonResizeFailed = "ResizeFailed"
)

// machinesReport returns the condition MachinesCurrent.
func (c *cluster) machinesReport() conditionReport {
	outdated := c.outdated()
	if outdated.IsEmpty() && len(c.Status.Resizes) == 0 {
		return conditionReport{true, "MachinesCurrent", "every machine has the template, the provider and the patches of its pool"}
	}
	protected := []string{}
	for name := range outdated.Replaced {
		if c.observed.machines[name].Spec.Protected {
			protected = append(protected, name)
		}
	}
	slices.Sort(protected)
	message := strings.Trim(plan.DescribeResizes(c.Status.Resizes)+"; "+outdated.Describe(), "; ")
	failure, hasFailed := c.resizeFailure()
	switch {
	case hasFailed:
		return conditionReport{false, failure.Reason, failure.Message}
	case plan.IsUpgradePaused(c.KubernetesCluster):
		return conditionReport{false, "ReplacementPaused", message + "; spec.upgrade.paused is true"}
	case len(c.Status.Resizes)+len(outdated.InPlace) > 0:
		return conditionReport{false, reasonResizing, message}
	case len(protected) == len(outdated.Replaced):
		return conditionReport{false, "MachineProtected", fmt.Sprintf("%s; set spec.protected of Machine %s to false to have it replaced", message, protected[0])}
	default:
		return conditionReport{false, "ReplacingMachines", message}
	}
}

// resizeFailure returns the UserError of a resize that has failed, and false if none has.
func (c *cluster) resizeFailure() (reconcile.UserError, bool) {
	r := plan.FailedResize(c.Status.Resizes)
	if r == nil {
		return reconcile.UserError{}, false
	}
	remedy := fmt.Sprintf("the rollout continues once the node is Ready: repair Machine %s, or take back the change of template, or set the annotation %s=true on the Machine to have it replaced", r.Name, v1alpha1.AnnotationRemove)
	if r.BootID == "" {
		remedy = "change the PodDisruptionBudget or the drainTimeout, or take back the change of template; any change of the spec tries again"
	}
	return reconcile.UserError{Reason: reasonResizeFailed, Message: fmt.Sprintf("the resize of Machine %s in place from template %s to %s has stopped: %s; %s", r.Name, r.From, r.To, r.Message, remedy)}, true
}

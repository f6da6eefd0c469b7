package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Reasons of a cluster whose machines are resized in place.
const (
	ReasonResizing     = "ResizingMachines"
	ReasonResizeFailed = "ResizeFailed"
)

// MachineReport is what the condition MachinesCurrent says.
type MachineReport struct {
	// IsCurrent is whether every machine is as its pool says.
	IsCurrent       bool
	Reason, Message string
}

// ReportMachines decides what the condition MachinesCurrent of a cluster says:
//
//	no machine is outdated or resized             current
//	a resize in place has failed                  the failure, and how to go on
//	spec.upgrade.paused                           paused
//	a machine is resized in place, or waits       resizing
//	every outdated machine is protected           which one to unprotect
//	otherwise                                     replacing
func ReportMachines(kc *v1alpha1.KubernetesCluster, outdated Outdated, machines map[string]*v1alpha1.Machine) MachineReport {
	resizes := kc.Status.Resizes
	if outdated.IsEmpty() && len(resizes) == 0 {
		return MachineReport{true, "MachinesCurrent", "every machine has the template, the provider and the patches of its pool"}
	}
	protected := []string{}
	for name := range outdated.Replaced {
		if machines[name].Spec.Protected {
			protected = append(protected, name)
		}
	}
	slices.Sort(protected)
	message := strings.Trim(DescribeResizes(resizes)+"; "+outdated.Describe(), "; ")
	failure, hasFailed := ResizeFailure(resizes)
	switch {
	case hasFailed:
		return MachineReport{false, failure.Reason, failure.Message}
	case IsUpgradePaused(kc):
		return MachineReport{false, "ReplacementPaused", message + "; spec.upgrade.paused is true"}
	case len(resizes)+len(outdated.InPlace) > 0:
		return MachineReport{false, ReasonResizing, message}
	case len(protected) == len(outdated.Replaced):
		return MachineReport{false, "MachineProtected", fmt.Sprintf("%s; set spec.protected of Machine %s to false to have it replaced", message, protected[0])}
	default:
		return MachineReport{false, "ReplacingMachines", message}
	}
}

// ResizeFailure returns the UserError of a resize that has failed, and false if none has.
func ResizeFailure(resizes []v1alpha1.MachineResize) (usererror.Error, bool) {
	r := FailedResize(resizes)
	if r == nil {
		return usererror.Error{}, false
	}
	remedy := fmt.Sprintf("the rollout continues once the node is Ready: repair Machine %s, or revert the change of template, or set the annotation %s=true on the Machine to have it replaced", r.Name, v1alpha1.AnnotationRemove)
	if r.BootID == "" {
		remedy = "change the PodDisruptionBudget or the drainTimeout, or revert the change of template; any change of the spec tries again"
	}
	return usererror.Error{Reason: ReasonResizeFailed, Message: fmt.Sprintf("the resize of Machine %s in place from template %s to %s has stopped: %s; %s", r.Name, r.From, r.To, r.Message, remedy)}, true
}

package main

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/kube"
)

// setPrivileges writes which privileges the user of a provider lacks.
func setPrivileges(p *v1alpha1.MachineProvider, h hypervisor.Health) {
	const condition = v1alpha1.ConditionPrivilegesGranted
	switch {
	case h.MissingPrivileges == nil:
		meta.RemoveStatusCondition(&p.Status.Conditions, condition)
	case len(h.MissingPrivileges) == 0:
		kube.SetCondition(&p.Status.Conditions, p.Generation, condition, true, "PrivilegesGranted", "the user has every privilege that machines need")
	default:
		kube.SetCondition(&p.Status.Conditions, p.Generation, condition, false, "PrivilegesMissing",
			"grant to the user, and to its token if privileges are separated: "+strings.Join(h.MissingPrivileges, ", "))
	}
}

package plan

import (
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
)

// UnstartedOutdated returns the Machines that have never run and are not what their groups would create now, by name, and how they
// differ. Outdated machines are otherwise replaced when the cluster is Ready, which it may never be if these cannot be created.
// hasOtherImage reports whether the image of a Machine is that of an earlier spec:
//
//	has no virtual machine                                   template, provider and image count
//	virtual machine does not run, cluster never Running      template, provider and image count
//	virtual machine of a worker does not run                 template and provider count
//	any other Machine, or one that is protected or leaves    nothing counts
//
// A machine that has been restarted is left out: its node may have lost its configuration and kept its data.
func (p Plan) UnstartedOutdated(kc *v1alpha1.KubernetesCluster, machines map[string]*v1alpha1.Machine, hasOtherImage func(*v1alpha1.Machine) bool) map[string]string {
	outdated := map[string]string{}
	for name, m := range machines {
		g, ok := p.groupOf(m)
		isNew := m.Status.VMName == "" || kc.Status.Version == ""
		if !ok || !isUnstarted(m) || (!isNew && g.Role == v1alpha1.RoleControlPlane) {
			continue
		}
		difference := DifferenceFromPool(m, g)
		if isNew && hasOtherImage(m) {
			difference = strings.TrimPrefix(difference+", another image", ", ")
		}
		if difference != "" {
			outdated[name] = difference
		}
	}
	return outdated
}

// isUnstarted reports whether a Machine can be created again without a loss: its node has never run.
func isUnstarted(m *v1alpha1.Machine) bool {
	if IsInstalled(m) || IsLeaving(m) || m.Spec.Protected || m.MachineConfigSecret() == "" {
		return false
	}
	return m.Status.VMName == "" || (m.Status.Phase != v1alpha1.MachineRunning && m.Spec.RestartToken == "")
}

package plan

import (
	"cmp"
	"fmt"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// poolTemplate is the template of the control plane or of a pool.
type poolTemplate struct{ pool, template string }

func templatesOf(t v1alpha1.ClusterTopology) []poolTemplate {
	controlPlane := cmp.Or(t.ControlPlane.Template, v1alpha1.DefaultMachineTemplate(v1alpha1.RoleControlPlane))
	all := []poolTemplate{{v1alpha1.ControlPlanePool, controlPlane}}
	for _, p := range t.Workers {
		all = append(all, poolTemplate{p.Name, cmp.Or(p.Template, v1alpha1.DefaultMachineTemplate(v1alpha1.RoleWorker))})
	}
	return all
}

// FindUnknownTemplate returns the first pool whose template names no size that exists, with a
// usererror.Error, and nothing if there is none. classes are the MachineClasses that exist. A template
// that was accepted for the same pool is not looked up, so that a cluster goes on without its MachineClass:
// its machines keep their size, and a new Machine says that the MachineClass is missing.
func FindUnknownTemplate(kc *v1alpha1.KubernetesCluster, classes []v1alpha1.MachineClass) (pool string, err error) {
	accepted := map[poolTemplate]bool{}
	if a := kc.Status.Accepted; a != nil {
		for _, p := range templatesOf(a.Topology) {
			accepted[p] = true
		}
	}
	for _, p := range templatesOf(kc.Spec.Topology) {
		if accepted[p] {
			continue
		}
		if _, err := v1alpha1.FindMachineClass(p.template, classes); err != nil {
			return p.pool, usererror.Error{Reason: "TemplateNotFound", Message: fmt.Sprintf("pool %s: %s", p.pool, err)}
		}
	}
	return "", nil
}

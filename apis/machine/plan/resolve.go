package plan

import (
	"errors"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Resolution is the size of a Machine and where it comes from.
type Resolution struct {
	Size Size
	// Template is what status.template holds once the virtual machine exists. It is nil for a Machine
	// without a template.
	Template *v1alpha1.MachineTemplate
	// Missing is set if spec.template names no size that exists, and the virtual machine keeps the one that it has.
	Missing *usererror.Error
}

// Resolve returns the size of a Machine:
//
//	spec.template                       size
//	absent                              spec
//	built-in                            that size
//	the MachineClass of status.template the copy in the status
//	another MachineClass                that MachineClass, by classes
//	unknown, with status.template       that of status.template, and Missing
//	unknown, without                    a usererror.Error
//
// classes returns the MachineClasses that exist. It is called only if the size depends on them.
func Resolve(m *v1alpha1.Machine, classes func() ([]v1alpha1.MachineClass, error)) (Resolution, error) {
	name, kept := m.Spec.Template, m.Status.Template
	var known []v1alpha1.MachineClass
	var err error
	switch {
	case name == "" || v1alpha1.IsBuiltInClass(name):
	case kept != nil && kept.Name == name:
		known = kept.Classes()
	default:
		if known, err = classes(); err != nil {
			return Resolution{}, err
		}
	}
	r := Resolution{Template: templateOf(name, known)}
	r.Size, err = ResolveSize(m.Spec, known)
	problem := usererror.Error{}
	if kept == nil || !errors.As(err, &problem) || problem.Reason != ReasonTemplateNotFound {
		return r, err
	}
	spec := m.Spec
	spec.Template = kept.Name
	r = Resolution{Template: kept, Missing: &problem}
	r.Size, err = ResolveSize(spec, kept.Classes())
	return r, err
}

// templateOf returns a template with a copy of its MachineClass, or nil without a template.
func templateOf(name string, classes []v1alpha1.MachineClass) *v1alpha1.MachineTemplate {
	if name == "" {
		return nil
	}
	t := &v1alpha1.MachineTemplate{Name: name}
	if spec, err := v1alpha1.FindMachineClass(name, classes); err == nil && !v1alpha1.IsBuiltInClass(name) {
		t.MachineClass = spec.DeepCopy()
	}
	return t
}

package plan

import (
	"errors"
	"testing"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	of := func(name string, cores int32) v1alpha1.MachineClass {
		return class(name, v1alpha1.MachineCPU{Cores: cores}, "4Gi", v1alpha1.MachineDisk{Name: "root", Size: "20Gi"})
	}
	kept := func(name string, cores int32) *v1alpha1.MachineTemplate {
		spec := of(name, cores).Spec
		return &v1alpha1.MachineTemplate{Name: name, MachineClass: &spec}
	}
	unavailable := errors.New("no answer")
	for name, tc := range map[string]struct {
		reason, template string
		status           *v1alpha1.MachineTemplate
		classes          []v1alpha1.MachineClass
		classesErr       error
		// reads is whether the MachineClasses are read.
		reads bool
		// cores and keeps are those of the result, and keeps is the name of its template.
		cores   int32
		keeps   string
		missing bool
		why     string
	}{
		"BuiltIn":       {reason: "needs no read", template: "large", cores: 4, keeps: "large"},
		"New":           {reason: "the first delivery reads the MachineClass", template: "gpu", classes: []v1alpha1.MachineClass{of("gpu", 8)}, reads: true, cores: 8, keeps: "gpu"},
		"Recorded":      {reason: "a virtual machine keeps its size without a read", template: "gpu", status: kept("gpu", 8), classes: []v1alpha1.MachineClass{of("gpu", 16)}, cores: 8, keeps: "gpu"},
		"Changed":       {reason: "another template is read", template: "cpu", status: kept("gpu", 8), classes: []v1alpha1.MachineClass{of("cpu", 16)}, reads: true, cores: 16, keeps: "cpu"},
		"ToBuiltIn":     {reason: "a built-in template needs no read", template: "small", status: kept("gpu", 8), cores: 1, keeps: "small"},
		"Unknown":       {reason: "nothing exists yet", template: "huge", reads: true, why: "TemplateNotFound"},
		"UnknownLater":  {reason: "what exists keeps its size", template: "huge", status: kept("gpu", 8), reads: true, cores: 8, keeps: "gpu", missing: true},
		"FromBuiltIn":   {reason: "what exists keeps its built-in size", template: "huge", status: &v1alpha1.MachineTemplate{Name: "large"}, reads: true, cores: 4, keeps: "large", missing: true},
		"NoAnswer":      {reason: "the API server does not answer", template: "gpu", classesErr: unavailable, reads: true, why: "no answer"},
		"NoAnswerKnown": {reason: "the size is recorded", template: "gpu", status: kept("gpu", 8), classesErr: unavailable, cores: 8, keeps: "gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{Spec: v1alpha1.MachineSpec{Template: tc.template}}
			m.Status.Template = tc.status
			reads := false
			r, err := Resolve(m, func() ([]v1alpha1.MachineClass, error) {
				reads = true
				return tc.classes, tc.classesErr
			})
			if reads != tc.reads {
				t.Errorf("%s: reads MachineClasses: %t, want %t", tc.reason, reads, tc.reads)
			}
			if tc.why != "" {
				var problem usererror.Error
				if !errors.As(err, &problem) && !errors.Is(err, tc.classesErr) || (problem.Reason != tc.why && tc.classesErr == nil) {
					t.Errorf("%s: got %v, want %s", tc.reason, err, tc.why)
				}
				return
			}
			if err != nil || r.Size.Cores != tc.cores || r.Template == nil || r.Template.Name != tc.keeps || (r.Missing != nil) != tc.missing {
				t.Errorf("%s: got %+v, %v", tc.reason, r, err)
			}
			if builtIn := v1alpha1.IsBuiltInClass(tc.keeps); r.Template != nil && (r.Template.MachineClass == nil) != builtIn {
				t.Errorf("%s: copies a MachineClass: %t, want %t", tc.reason, !builtIn, builtIn)
			}
		})
	}
}

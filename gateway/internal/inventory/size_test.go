package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestSizeOf(t *testing.T) {
	t.Parallel()
	class := &v1alpha1.MachineClassSpec{
		Resources: v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 4, Sockets: 2, Threads: 2}, Memory: &v1alpha1.MachineMemory{Size: "1Gi"}},
		Disks:     []v1alpha1.MachineDisk{{Name: "root", Size: "3Gi"}, {Name: "data", Size: "4Gi"}},
	}
	const gib = 1 << 30
	for name, tc := range map[string]struct {
		reason string
		spec   v1alpha1.MachineSpec
		status *v1alpha1.MachineTemplate
		want   Size
	}{
		"BuiltIn":  {"needs no status", v1alpha1.MachineSpec{Template: "medium"}, nil, Size{2, 4 * gib, []Volume{{"root", 40 * gib}}}},
		"Class":    {"the status has a copy", v1alpha1.MachineSpec{Template: "xl"}, &v1alpha1.MachineTemplate{Name: "xl", MachineClass: class}, Size{16, gib, []Volume{{"root", 3 * gib}, {"data", 4 * gib}}}},
		"Override": {"the spec overrides the class field by field", v1alpha1.MachineSpec{Template: "xl", Resources: &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Sockets: 1}}, Disks: []v1alpha1.MachineDisk{{Name: "data", Size: "8Gi"}}}, &v1alpha1.MachineTemplate{Name: "xl", MachineClass: class}, Size{8, gib, []Volume{{"root", 3 * gib}, {"data", 8 * gib}}}},
		"Waiting":  {"the class is not known yet", v1alpha1.MachineSpec{Template: "xl"}, nil, Size{}},
		"Kept":     {"a machine keeps its size while its template does not exist", v1alpha1.MachineSpec{Template: "huge"}, &v1alpha1.MachineTemplate{Name: "small"}, Size{1, 2 * gib, []Volume{{"root", 20 * gib}}}},
		"Changed":  {"a built-in template counts at once", v1alpha1.MachineSpec{Template: "small"}, &v1alpha1.MachineTemplate{Name: "xl", MachineClass: class}, Size{1, 2 * gib, []Volume{{"root", 20 * gib}}}},
		"Own":      {"a template is optional", v1alpha1.MachineSpec{Resources: &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 3}, Memory: &v1alpha1.MachineMemory{Size: "1Gi"}}}, nil, Size{CPUs: 3, Memory: gib}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &v1alpha1.Machine{Spec: tc.spec}
			m.Status.Template = tc.status
			if diff := cmp.Diff(tc.want, sizeOf(m)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

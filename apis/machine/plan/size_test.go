package plan

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

func TestResolveSize(t *testing.T) {
	t.Parallel()
	cpu := func(cores, threads, sockets int32) *v1alpha1.MachineResources {
		return &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: cores, Threads: threads, Sockets: sockets}}
	}
	cases := map[string]struct {
		reason string
		spec   v1alpha1.MachineSpec
		want   Size
		why    string
	}{
		"Small":  {reason: "documented size", spec: v1alpha1.MachineSpec{Template: "small"}, want: Size{Cores: 1, Threads: 1, Sockets: 1, Memory: resource.MustParse("2Gi"), Disks: root("20Gi")}},
		"Medium": {reason: "documented size", spec: v1alpha1.MachineSpec{Template: "medium"}, want: Size{Cores: 2, Threads: 1, Sockets: 1, Memory: resource.MustParse("4Gi"), Disks: root("40Gi")}},
		"Large":  {reason: "documented size", spec: v1alpha1.MachineSpec{Template: "large"}, want: Size{Cores: 4, Threads: 1, Sockets: 1, Memory: resource.MustParse("8Gi"), Disks: root("80Gi")}},
		"Override": {
			reason: "cores and memory override the template, the disk is kept",
			spec: v1alpha1.MachineSpec{Template: "medium", Resources: &v1alpha1.MachineResources{
				CPU: &v1alpha1.MachineCPU{Cores: 4}, Memory: &v1alpha1.MachineMemory{Size: "8Gi"}}},
			want: Size{Cores: 4, Threads: 1, Sockets: 1, Memory: resource.MustParse("8Gi"), Disks: root("40Gi")},
		},
		"OneField": {reason: "threads alone keep the template's cores", spec: v1alpha1.MachineSpec{Template: "large", Resources: cpu(0, 2, 0)}, want: Size{Cores: 4, Threads: 2, Sockets: 1, Memory: resource.MustParse("8Gi"), Disks: root("80Gi")}},
		"AddDisk": {
			reason: "a disk of another name is added",
			spec:   v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.MachineDisk{{Name: "data", Size: "100Gi", StorageClass: "fast-ssd"}}},
			want:   Size{Cores: 1, Threads: 1, Sockets: 1, Memory: resource.MustParse("2Gi"), Disks: append(root("20Gi"), Disk{Name: "data", Size: resource.MustParse("100Gi"), StorageClass: "fast-ssd"})},
		},
		"ChangeDisk": {
			reason: "a disk of the template's name overrides only the fields it sets",
			spec:   v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.MachineDisk{{Name: "root", StorageClass: "fast-ssd", VolumeMode: "Block"}}},
			want:   Size{Cores: 1, Threads: 1, Sockets: 1, Memory: resource.MustParse("2Gi"), Disks: []Disk{{Name: "root", Size: resource.MustParse("20Gi"), StorageClass: "fast-ssd", VolumeMode: "Block"}}},
		},
		"Own": {
			reason: "a template is optional",
			spec: v1alpha1.MachineSpec{Resources: &v1alpha1.MachineResources{CPU: &v1alpha1.MachineCPU{Cores: 3}, Memory: &v1alpha1.MachineMemory{Size: "1Gi"}},
				Disks: []v1alpha1.MachineDisk{{Name: "root", Size: "1Gi"}}},
			want: Size{Cores: 3, Threads: 1, Sockets: 1, Memory: resource.MustParse("1Gi"), Disks: []Disk{{Name: "root", Size: resource.MustParse("1Gi")}}},
		},
		"Class": {
			reason: "a MachineClass has sockets, threads and several disks",
			spec:   v1alpha1.MachineSpec{Template: "gpu-xl"},
			want: Size{Cores: 8, Threads: 2, Sockets: 2, Memory: resource.MustParse("64Gi"),
				Disks: append(root("200Gi"), Disk{Name: "data", Size: resource.MustParse("1Ti"), StorageClass: "fast", VolumeMode: "Block"})},
		},
		"OverrideClass": {
			reason: "the spec overrides a MachineClass as it does a built-in template",
			spec: v1alpha1.MachineSpec{Template: "gpu-xl", Resources: cpu(4, 0, 1),
				Disks: []v1alpha1.MachineDisk{{Name: "data", StorageClass: "slow"}}},
			want: Size{Cores: 4, Threads: 2, Sockets: 1, Memory: resource.MustParse("64Gi"),
				Disks: append(root("200Gi"), Disk{Name: "data", Size: resource.MustParse("1Ti"), StorageClass: "slow", VolumeMode: "Block"})},
		},
		"BuiltInFirst": {
			reason: "an object cannot change what small means",
			spec:   v1alpha1.MachineSpec{Template: "small"},
			want:   Size{Cores: 1, Threads: 1, Sockets: 1, Memory: resource.MustParse("2Gi"), Disks: root("20Gi")},
		},
		"InvalidClass": {reason: "a size that no API server accepts names its MachineClass", spec: v1alpha1.MachineSpec{Template: "broken"}, why: "InvalidSpec"},
		"Unknown":      {reason: "the requester has to choose a template that exists", spec: v1alpha1.MachineSpec{Template: "huge"}, why: "TemplateNotFound"},
		"NoMemory":     {reason: "a machine without template needs memory", why: "InvalidSpec"},
		"NoSize":       {reason: "a disk needs a size", spec: v1alpha1.MachineSpec{Template: "small", Disks: []v1alpha1.MachineDisk{{Name: "data"}}}, why: "InvalidSpec"},
	}
	classes := []v1alpha1.MachineClass{
		class("gpu-xl", v1alpha1.MachineCPU{Cores: 8, Threads: 2, Sockets: 2}, "64Gi",
			v1alpha1.MachineDisk{Name: "root", Size: "200Gi"}, v1alpha1.MachineDisk{Name: "data", Size: "1Ti", StorageClass: "fast", VolumeMode: "Block"}),
		class("small", v1alpha1.MachineCPU{Cores: 64}, "64Gi", v1alpha1.MachineDisk{Name: "root", Size: "200Gi"}),
		class("broken", v1alpha1.MachineCPU{Cores: 1}, "1Gx", v1alpha1.MachineDisk{Name: "root", Size: "20Gi"}),
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ResolveSize(tc.spec, classes)
			var f usererror.Error
			if errors.As(err, &f); f.Reason != tc.why {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.why)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// class returns a MachineClass.
func class(name string, cpu v1alpha1.MachineCPU, memory v1alpha1.Size, disks ...v1alpha1.MachineDisk) v1alpha1.MachineClass {
	c := v1alpha1.MachineClass{Spec: v1alpha1.MachineClassSpec{
		Resources: v1alpha1.MachineResources{CPU: &cpu, Memory: &v1alpha1.MachineMemory{Size: memory}}, Disks: disks,
	}}
	c.Name = name
	return c
}

// root returns the root disk of a template with a size.
func root(size string) []Disk {
	return []Disk{{Name: "root", Size: resource.MustParse(size), StorageClass: "default"}}
}

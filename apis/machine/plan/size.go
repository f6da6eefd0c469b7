// Package plan decides, from a spec and from what exists, which size a machine has and which
// MachineProvider it gets. Its functions have no client, clock or log.
package plan

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/vitistack/stack/apis/usererror"
	"github.com/vitistack/stack/apis/v1alpha1"
)

// Size is a machine's processors, memory and disks.
type Size struct {
	Cores, Threads, Sockets int32
	Memory                  resource.Quantity
	Disks                   []Disk
}

// CPUs returns the number of processors that the guest sees.
func (s Size) CPUs() int64 { return int64(s.Cores) * int64(s.Threads) * int64(s.Sockets) }

// Disk is a disk of a machine.
type Disk struct {
	Name         string
	Size         resource.Quantity
	StorageClass string
	AccessMode   v1alpha1.DiskAccessMode
	VolumeMode   v1alpha1.DiskVolumeMode
}

// ReasonTemplateNotFound is the reason of a Machine or a KubernetesCluster whose template names no size that exists.
const ReasonTemplateNotFound = "TemplateNotFound"

// DefaultClass as storage class means the default of the MachineProvider, or else of the hypervisor.
const DefaultClass = "default"

// ResolveSize returns the size of a machine: that of its template, overridden by each field of the spec,
// and the disks of both merged by name. classes are the MachineClasses that its template may name, and
// are not read for a built-in template. It returns a usererror.Error if the template does not exist or a
// field is missing.
func ResolveSize(spec v1alpha1.MachineSpec, classes []v1alpha1.MachineClass) (Size, error) {
	s := Size{Cores: 1, Threads: 1, Sockets: 1}
	var err error
	if spec.Template != "" {
		class, unknown := v1alpha1.FindMachineClass(spec.Template, classes)
		if unknown != nil {
			return Size{}, usererror.Error{Reason: ReasonTemplateNotFound, Message: unknown.Error()}
		}
		if s, err = sizeOf(class); err != nil {
			return Size{}, usererror.Error{Reason: "InvalidSpec", Message: fmt.Sprintf("MachineClass %s: %s", spec.Template, err)}
		}
	}
	s.setCPU(spec.Resources)
	if r := spec.Resources; r != nil && r.Memory != nil {
		if s.Memory, err = r.Memory.Size.Quantity(); err != nil {
			return Size{}, usererror.Error{Reason: "InvalidSpec", Message: "spec.resources.memory.size: " + err.Error()}
		}
	}
	if s.Disks, err = mergeDisks(s.Disks, spec.Disks); err != nil {
		return Size{}, usererror.Error{Reason: "InvalidSpec", Message: "spec.disks: " + err.Error()}
	}
	switch {
	case s.Memory.IsZero():
		return Size{}, usererror.Error{Reason: "InvalidSpec", Message: "the machine has no memory: write spec.template, or spec.resources.memory.size"}
	case len(s.Disks) == 0:
		return Size{}, usererror.Error{Reason: "InvalidSpec", Message: "the machine has no disk: write spec.template, or spec.disks"}
	}
	for _, d := range s.Disks {
		if d.Size.Sign() <= 0 {
			return Size{}, usererror.Error{Reason: "InvalidSpec", Message: fmt.Sprintf("disk %s has no size: write it into spec.disks, for example 20Gi", d.Name)}
		}
	}
	return s, nil
}

// setCPU overrides the processors by the fields that are set.
func (s *Size) setCPU(r *v1alpha1.MachineResources) {
	if r != nil && r.CPU != nil {
		s.Cores, s.Threads, s.Sockets = cmp.Or(r.CPU.Cores, s.Cores), cmp.Or(r.CPU.Threads, s.Threads), cmp.Or(r.CPU.Sockets, s.Sockets)
	}
}

// sizeOf returns a MachineClass as a size.
func sizeOf(class v1alpha1.MachineClassSpec) (s Size, err error) {
	s = Size{Cores: 1, Threads: 1, Sockets: 1}
	s.setCPU(&class.Resources)
	if class.Resources.Memory != nil {
		if s.Memory, err = class.Resources.Memory.Size.Quantity(); err != nil {
			return s, err
		}
	}
	s.Disks, err = mergeDisks(nil, class.Disks)
	if root := slices.IndexFunc(s.Disks, func(d Disk) bool { return d.Name == v1alpha1.RootDisk }); root >= 0 {
		s.Disks[root].StorageClass = cmp.Or(s.Disks[root].StorageClass, DefaultClass)
	}
	return s, err
}

// mergeDisks overrides the disks of the template by those of the spec with the same name,
// field by field, and appends the others.
func mergeDisks(template []Disk, spec []v1alpha1.MachineDisk) ([]Disk, error) {
	merged := slices.Clone(template)
	for _, d := range spec {
		i := slices.IndexFunc(merged, func(m Disk) bool { return m.Name == d.Name })
		if i < 0 {
			i = len(merged)
			merged = append(merged, Disk{Name: d.Name})
		}
		m := &merged[i]
		if d.Size != "" {
			var err error
			if m.Size, err = d.Size.Quantity(); err != nil {
				return nil, err
			}
		}
		m.StorageClass = cmp.Or(d.StorageClass, m.StorageClass)
		m.AccessMode, m.VolumeMode = cmp.Or(d.AccessMode, m.AccessMode), cmp.Or(d.VolumeMode, m.VolumeMode)
	}
	return merged, nil
}

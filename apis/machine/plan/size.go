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

// DefaultClass as storage class means the default of the MachineProvider, or else of the hypervisor.
const DefaultClass = "default"

// ResolveSize returns the size of a machine: its template, overridden by each field of the spec,
// and the disks of both merged by name. It returns a usererror.Error if the template does not exist
// or a field is missing.
func ResolveSize(spec v1alpha1.MachineSpec) (Size, error) {
	s := Size{Cores: 1, Threads: 1, Sockets: 1}
	var err error
	if spec.Template != "" {
		template, unknown := v1alpha1.FindMachineTemplate(spec.Template)
		if unknown != nil {
			return Size{}, usererror.Error{Reason: "TemplateNotFound", Message: unknown.Error() + " into spec.template"}
		}
		if s, err = sizeOf(template); err != nil {
			return Size{}, err
		}
	}
	if r := spec.Resources; r != nil && r.CPU != nil {
		s.Cores, s.Threads, s.Sockets = cmp.Or(r.CPU.Cores, s.Cores), cmp.Or(r.CPU.Threads, s.Threads), cmp.Or(r.CPU.Sockets, s.Sockets)
	}
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

// sizeOf returns a template as a size.
func sizeOf(t v1alpha1.MachineTemplate) (s Size, err error) {
	root := Disk{Name: v1alpha1.RootDisk, StorageClass: DefaultClass}
	s = Size{Cores: t.Cores, Threads: 1, Sockets: 1}
	if s.Memory, err = t.Memory.Quantity(); err != nil {
		return s, err
	}
	root.Size, err = t.Disk.Quantity()
	s.Disks = []Disk{root}
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

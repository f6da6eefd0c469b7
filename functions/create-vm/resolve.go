package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/events/outbound"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// resolve returns the size of a machine: its template, overridden by each field of the spec,
// and the disks of both merged by name. It returns a UserError if the template does not exist
// or a field is missing.
func resolve(spec v1alpha1.MachineSpec) (hypervisor.Size, error) {
	s := hypervisor.Size{Cores: 1, Threads: 1, Sockets: 1}
	var err error
	if spec.Template != "" {
		template, unknown := v1alpha1.FindMachineTemplate(spec.Template)
		if unknown != nil {
			return hypervisor.Size{}, reconcile.UserError{Reason: "TemplateNotFound", Message: unknown.Error() + " into spec.template"}
		}
		if s, err = sizeOf(template); err != nil {
			return hypervisor.Size{}, err
		}
	}
	if r := spec.Resources; r != nil && r.CPU != nil {
		s.Cores, s.Threads, s.Sockets = cmp.Or(r.CPU.Cores, s.Cores), cmp.Or(r.CPU.Threads, s.Threads), cmp.Or(r.CPU.Sockets, s.Sockets)
	}
	if r := spec.Resources; r != nil && r.Memory != nil {
		if s.Memory, err = r.Memory.Size.Quantity(); err != nil {
			return hypervisor.Size{}, reconcile.UserError{Reason: "InvalidSpec", Message: "spec.resources.memory.size: " + err.Error()}
		}
	}
	if s.Disks, err = mergeDisks(s.Disks, spec.Disks); err != nil {
		return hypervisor.Size{}, reconcile.UserError{Reason: "InvalidSpec", Message: "spec.disks: " + err.Error()}
	}
	switch {
	case s.Memory.IsZero():
		return hypervisor.Size{}, reconcile.UserError{Reason: "InvalidSpec", Message: "the machine has no memory: write spec.template, or spec.resources.memory.size"}
	case len(s.Disks) == 0:
		return hypervisor.Size{}, reconcile.UserError{Reason: "InvalidSpec", Message: "the machine has no disk: write spec.template, or spec.disks"}
	}
	for _, d := range s.Disks {
		if d.Size.Sign() <= 0 {
			return hypervisor.Size{}, reconcile.UserError{Reason: "InvalidSpec", Message: fmt.Sprintf("disk %s has no size: write it into spec.disks, for example 20Gi", d.Name)}
		}
	}
	return s, nil
}

// sizeOf returns a template as a size.
func sizeOf(t v1alpha1.MachineTemplate) (s hypervisor.Size, err error) {
	root := hypervisor.Disk{Name: v1alpha1.RootDisk, StorageClass: hypervisor.DefaultClass}
	s = hypervisor.Size{Cores: t.Cores, Threads: 1, Sockets: 1}
	if s.Memory, err = t.Memory.Quantity(); err != nil {
		return s, err
	}
	root.Size, err = t.Disk.Quantity()
	s.Disks = []hypervisor.Disk{root}
	return s, err
}

// imageHosts is the environment variable with the hosts that hypervisors may fetch images
// from, in the form of ALLOWED_ENDPOINTS, whose hosts are allowed too.
const imageHosts = "ALLOWED_IMAGE_HOSTS"

// defaultImageFactory is the host of the images of Talos nodes.
const defaultImageFactory = "factory.talos.dev"

// allowedImages returns the hosts from which images may come. There always is a list, because
// a hypervisor resolves a name itself, and the metadata of its cloud is within its reach.
func allowedImages(getenv func(string) string) outbound.Rules {
	factory := defaultImageFactory
	if u, err := url.Parse(getenv("IMAGE_FACTORY")); err == nil && u.Hostname() != "" {
		factory = u.Hostname()
	}
	return outbound.Parse(strings.Join([]string{factory, getenv(imageHosts), getenv(outbound.Variable)}, ","))
}

// checkImageHost returns a UserError for an image from a host that is not allowed.
func checkImageHost(os *v1alpha1.MachineOS, allowed outbound.Rules) error {
	if os == nil {
		return nil
	}
	for field, address := range map[string]string{"imageID": os.ImageID, "isoUri": os.ISOURI} {
		if !strings.Contains(address, "://") {
			continue
		}
		err := allowed.CheckURL(address)
		var denied *outbound.Denied
		switch {
		case err == nil:
		case errors.As(err, &denied) && errors.Unwrap(denied) == nil:
			return reconcile.UserError{Reason: "ImageNotAllowed", Message: fmt.Sprintf("spec.os.%s: images are not fetched from %s: name an image at an allowed host, or have the host added to %s of create-vm", field, denied.Host, imageHosts)}
		default:
			return reconcile.UserError{Reason: "ImageNotAllowed", Message: "spec.os." + field + ": " + err.Error()}
		}
	}
	return nil
}

// mergeDisks overrides the disks of the template by those of the spec with the same name,
// field by field, and appends the others.
func mergeDisks(template []hypervisor.Disk, spec []v1alpha1.MachineDisk) ([]hypervisor.Disk, error) {
	merged := slices.Clone(template)
	for _, d := range spec {
		i := slices.IndexFunc(merged, func(m hypervisor.Disk) bool { return m.Name == d.Name })
		if i < 0 {
			i = len(merged)
			merged = append(merged, hypervisor.Disk{Name: d.Name})
		}
		m := &merged[i]
		if d.Size != "" {
			var err error
			if m.Size, err = d.Size.Quantity(); err != nil {
				return nil, err
			}
		}
		if d.StorageClass != "" {
			m.StorageClass = d.StorageClass
		}
		if d.AccessMode != "" {
			m.AccessMode = d.AccessMode
		}
		if d.VolumeMode != "" {
			m.VolumeMode = d.VolumeMode
		}
	}
	return merged, nil
}

package proxmox

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// cdPrefix starts the names of all CDs with first configurations.
const cdPrefix = "vitistack-"

// cdName returns the name of the file of a machine's CD. It has the first UID of the machine, because
// Proxmox VE cannot rename the file of a virtual machine that was adopted.
func cdName(m *v1alpha1.Machine) string { return cdPrefix + string(v1alpha1.OriginalUID(m)) + ".iso" }

// renderCD returns the image of the CD of a machine, as cloud-init's NoCloud reads it.
func renderCD(m *v1alpha1.Machine, f firstBootConfig) ([]byte, error) {
	folder, err := os.MkdirTemp("", "cd-")
	if err != nil {
		return nil, fmt.Errorf("render a CD: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	name := filepath.Join(folder, "cd.iso")
	const start, block = 1 << 20, 2048
	image, err := file.CreateFromPath(name, start)
	if err != nil {
		return nil, fmt.Errorf("render a CD: %w", err)
	}
	defer func() { _ = image.Close() }()
	content := filepath.Join(folder, "content")
	if err := os.Mkdir(content, 0o700); err != nil {
		return nil, fmt.Errorf("render a CD: %w", err)
	}
	cd, err := iso9660.Create(image, 0, 0, block, content)
	if err != nil {
		return nil, fmt.Errorf("render a CD: %w", err)
	}
	files := map[string]string{
		"user-data": f.userData, "meta-data": fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", v1alpha1.OriginalUID(m), hostname(m)), "network-config": f.networkData,
	}
	for name, text := range files {
		if text == "" {
			continue
		}
		out, err := cd.OpenFile("/"+name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, fmt.Errorf("render a CD: %w", err)
		}
		_, err = out.Write([]byte(text))
		if closed := out.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fmt.Errorf("render a CD: %w", err)
		}
	}
	if err := cd.Finalize(iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: "cidata"}); err != nil {
		return nil, fmt.Errorf("render a CD: %w", err)
	}
	return os.ReadFile(name)
}

// ensureCD returns the volume of a machine's CD. Until it exists, it returns the task that uploads it.
func (x *Hypervisor) ensureCD(ctx context.Context, m *v1alpha1.Machine, all inventory, node string, f firstBootConfig) (volume string, begun *pve.Task, err error) {
	s, ok := all.storageWithMostRoom(node, "iso")
	if !ok {
		return "", nil, reconcile.UserError{Reason: "StorageClassNotFound", Message: "node " + node + " has no storage for ISO images, which the first configuration of the machine needs: allow that content on one"}
	}
	volume = s.Storage + ":iso/" + cdName(m)
	has, err := x.hasVolume(ctx, node, s.Storage, "iso", volume)
	if err != nil || has {
		return volume, nil, err
	}
	image, err := renderCD(m, f)
	if err != nil {
		return "", nil, err
	}
	var upid pve.UPID
	err = x.client.UploadReader("/nodes/"+node+"/storage/"+s.Storage+"/upload", map[string]string{"content": "iso"}, cdName(m), bytes.NewReader(image), int64(len(image)), &upid)
	return "", pve.NewTask(upid, x.client), err
}

// emptyDrive is the option of a drive without a CD, which a running machine accepts as well.
const emptyDrive = "none,media=cdrom"

// deleteCD deletes the CD of a machine, and then empties the drive. In this order a crash in
// between leaves no CD without a reference. It returns the task, or nil if there is no CD.
func (x *Hypervisor) deleteCD(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) (*pve.Task, error) {
	volume, _, _ := strings.Cut(vm.config[cloudDrive], ",")
	storage, name, ok := strings.Cut(volume, ":")
	if !ok || name != "iso/"+cdName(m) {
		return nil, nil
	}
	has, err := x.hasVolume(ctx, vm.node, storage, "iso", volume)
	if err != nil {
		return nil, err
	}
	if !has {
		return nil, x.configure(ctx, vm, map[string]string{cloudDrive: emptyDrive})
	}
	return x.deleteVolume(ctx, vm.node, storage, volume)
}

// deleteOrphanedCD deletes the CDs of a machine without a virtual machine on every host. It
// returns the task, or nil if there is no CD.
func (x *Hypervisor) deleteOrphanedCD(ctx context.Context, m *v1alpha1.Machine, all inventory) (*pve.Task, error) {
	if m.Spec.CloudInit == nil || all.hasFormerTag(m) {
		return nil, nil
	}
	for _, s := range all {
		if !s.has("iso") {
			continue
		}
		volume := s.Storage + ":iso/" + cdName(m)
		if has, err := x.hasVolume(ctx, s.Node, s.Storage, "iso", volume); err != nil {
			return nil, err
		} else if has {
			return x.deleteVolume(ctx, s.Node, s.Storage, volume)
		}
	}
	return nil, nil
}

package proxmox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/kube"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// cdPrefix starts the names of all CDs with first configurations.
const cdPrefix = "vitistack-"

// cdBase returns what the names of a machine's CDs start with. It has the first UID of the machine, because
// Proxmox VE cannot rename the file of a virtual machine that was adopted.
func cdBase(m *v1alpha1.Machine) string { return cdPrefix + string(v1alpha1.OriginalUID(m)) }

// cdName returns the name of the file of the CD with a first configuration. It has a digest of the content, so that a machine
// whose configuration changes before it starts gets no earlier CD.
func cdName(m *v1alpha1.Machine, f firstBootConfig) string {
	sum := sha256.Sum256([]byte(f.userData + "\x00" + f.networkData))
	return fmt.Sprintf("%s-%x.iso", cdBase(m), sum[:4])
}

// cdDigest matches the end of the name of a CD. Those of an earlier release have no digest.
var cdDigest = regexp.MustCompile(`^(?:-[0-9a-f]{8})?\.iso$`)

// isCD reports whether a volume is a CD of a machine.
func isCD(m *v1alpha1.Machine, volume string) bool {
	_, name, _ := strings.Cut(volume, ":iso/")
	end, ok := strings.CutPrefix(name, cdBase(m))
	return ok && cdDigest.MatchString(end)
}

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

// cds are the CDs with the first configurations of machines.
type cds struct {
	api
	settings
	// home is the client for the cluster of the function.
	home *kube.Client
}

// ensure returns the volume of a machine's CD. Until it exists, it returns the task that uploads it. If the Machine has been written since it
// was read, it uploads none and returns an error for which kube.Conflict is true: the CD may be for an earlier configuration, or the node may have its
// machine configuration, and no later delivery would delete the CD.
func (c cds) ensure(ctx context.Context, m *v1alpha1.Machine, all inventory, node string, f firstBootConfig) (volume string, begun *pve.Task, err error) {
	s, ok := all.cdStorage(node)
	if !ok {
		return "", nil, reconcile.UserError{Reason: "StorageClassNotFound", Message: "node " + node + " has no storage for ISO images, which the first configuration of the machine needs: allow that content on one"}
	}
	name := cdName(m, f)
	volume = s.Storage + ":iso/" + name
	has, err := c.hasVolume(ctx, node, s.Storage, "iso", volume)
	if err != nil || has {
		return volume, nil, err
	}
	if err := c.home.CheckUnchanged(ctx, m); err != nil {
		return "", nil, err
	}
	image, err := renderCD(m, f)
	if err != nil {
		return "", nil, err
	}
	var upid pve.UPID
	err = c.client.UploadReader("/nodes/"+node+"/storage/"+s.Storage+"/upload", map[string]string{"content": "iso"}, name, bytes.NewReader(image), int64(len(image)), &upid)
	return "", pve.NewTask(upid, c.client), err
}

// restrictStorages returns the cluster without the content iso of storages from which the
// user may not delete a CD again: that needs Datastore.Allocate (pve-storage,
// PVE/API2/Storage/Content.pm). A CD contains keys, so the stack creates none that it cannot delete.
// A guest without a CD needs no such storage.
func (c cds) restrictStorages(ctx context.Context, all inventory, first firstBootConfig) (inventory, error) {
	if !first.iso() {
		return all, nil
	}
	may := map[string]bool{}
	var refused []string
	kept := slices.Clone(all)
	for i, s := range kept {
		if !s.has("iso") {
			continue
		}
		if _, known := may[s.Storage]; !known {
			missing, err := c.missingPrivileges(ctx, "/storage/"+s.Storage, "Datastore.Allocate", "Datastore.AllocateTemplate")
			if err != nil {
				return nil, err
			}
			may[s.Storage] = len(missing) == 0
			refused = append(refused, missing...)
		}
		if !may[s.Storage] {
			kept[i].Content = strings.Join(slices.DeleteFunc(strings.Split(s.Content, ","), func(content string) bool { return content == "iso" }), ",")
		}
	}
	if len(refused) > 0 && !slices.ContainsFunc(kept, func(i inventoryItem) bool { return i.has("iso") }) {
		slices.Sort(refused)
		return nil, reconcile.UserError{Reason: "PermissionDenied", Message: fmt.Sprintf("the machine needs a CD for its first configuration, which the user of MachineProvider %s may not upload and delete: "+
			"grant Datastore.Allocate and Datastore.AllocateTemplate on one storage for ISO images; missing: %s", c.provider.Name, strings.Join(refused, ", "))}
	}
	return kept, nil
}

// emptyDrive is the option of a drive without a CD, which a running machine accepts as well.
const emptyDrive = "none,media=cdrom"

// delete deletes the CD of a machine, and then empties the drive. In this order a crash in
// between leaves no CD without a reference. It returns the task, or nil if there is no CD.
func (c cds) delete(ctx context.Context, m *v1alpha1.Machine, vm *virtualMachine) (*pve.Task, error) {
	volume, _, _ := strings.Cut(vm.config[cloudDrive], ",")
	if !isCD(m, volume) {
		return nil, nil
	}
	storage, _, _ := strings.Cut(volume, ":")
	has, err := c.hasVolume(ctx, vm.node, storage, "iso", volume)
	if err != nil {
		return nil, err
	}
	if !has {
		return nil, c.configure(ctx, vm, map[string]string{cloudDrive: emptyDrive})
	}
	return c.deleteVolume(ctx, vm.node, storage, volume)
}

// deleteOrphaned deletes the CDs of a machine without a virtual machine like deleteCopies.
func (c cds) deleteOrphaned(ctx context.Context, m *v1alpha1.Machine, all inventory) (*pve.Task, error) {
	if m.Spec.CloudInit == nil || all.hasFormerTag(m) {
		return nil, nil
	}
	return c.deleteCopies(ctx, m, all)
}

// deleteCopies deletes the CDs of a machine on every host that answers: a host that the machine has left, or another storage of
// its host, may have one, also with an earlier configuration. It returns the task, or nil if there is no CD.
func (c cds) deleteCopies(ctx context.Context, m *v1alpha1.Machine, all inventory) (*pve.Task, error) {
	for _, s := range all {
		if !s.has("iso") || !all.isAnswering(s.Node) {
			continue
		}
		volumes, err := c.listVolumes(ctx, s.Node, s.Storage, "iso")
		if err != nil {
			return nil, err
		}
		if at := slices.IndexFunc(volumes, func(v string) bool { return isCD(m, v) }); at >= 0 {
			return c.deleteVolume(ctx, s.Node, s.Storage, volumes[at])
		}
	}
	return nil, nil
}

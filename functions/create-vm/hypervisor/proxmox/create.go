package proxmox

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	pve "github.com/luthermonson/go-proxmox"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// createMachine creates the virtual machine of a machine, one step in each call: it claims a
// VMID and a host, which the caller records, then brings what the first boot needs to the
// host, and then creates the virtual machine.
func (x *Hypervisor) createMachine(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, all inventory) (hypervisor.State, error) {
	if err := cmp.Or(checkExpressible(m), x.checkSnippet(want.UserData)); err != nil {
		return hypervisor.State{}, err
	}
	m.Status.VMName, m.Status.NodeName = "", ""
	first := decideFirstBoot(m, want)
	all, err := x.withCDStorages(ctx, all, first)
	if err != nil {
		return hypervisor.State{}, err
	}
	source, err := x.findTemplate(ctx, m, all)
	if err != nil {
		return hypervisor.State{}, err
	}
	where, err := x.choosePlacement(ctx, m, want, all, source)
	if err != nil {
		return hypervisor.State{}, err
	}
	node, vmid := recordedPlacement(m)
	if vmid == 0 {
		if vmid, err = x.claimVMID(ctx, m, all.vmids(), 0); err != nil {
			return hypervisor.State{}, err
		}
	}
	if node != where.node {
		m.Status.ProviderID = formatProviderID(where.node, vmid)
		return taskState(m, &v1alpha1.ProviderTask{ID: strconv.Itoa(vmid), Action: actionClaim}), nil
	}
	if err := x.confirmClaim(ctx, m); err != nil {
		return hypervisor.State{}, err
	}
	image, fetching, err := x.ensureImage(ctx, m, all, where.node)
	if err != nil || fetching != nil {
		return taskState(m, fetching), err
	}
	if first.iso() && source.VMID == 0 {
		volume, t, err := x.ensureCD(ctx, m, all, where.node, first)
		if err != nil {
			return hypervisor.State{}, err
		}
		if t != nil {
			return taskState(m, taskOf(actionUpload, t)), nil
		}
		first.options = map[string]string{cloudDrive: volume + ",media=cdrom"}
	}
	var t *pve.Task
	action := actionCreate
	if source.VMID != 0 {
		action = actionClone
		t, err = x.clone(ctx, m, where, source, vmid)
	} else {
		t, err = x.create(ctx, m, want, where, vmid, image, first)
	}
	if hasMessage(err, "already exists") {
		return x.adoptOrSkipVMID(ctx, m, where.node, vmid, all)
	}
	return taskState(m, taskOf(action, t)), err
}

// adoptOrSkipVMID handles a VMID that is in use although the user sees no virtual machine with
// it. It is the machine's own if an answer was lost. Otherwise the machine gets the next VMID.
func (x *Hypervisor) adoptOrSkipVMID(ctx context.Context, m *v1alpha1.Machine, node string, vmid int, all inventory) (hypervisor.State, error) {
	vm, err := x.read(ctx, node, vmid)
	if err == nil && (vm.isOf(m) || vm.isClaimedBy(m)) {
		return taskState(m, taskOf(actionCreate, nil)), nil
	}
	if err != nil && !isMissing(err) && !isForbidden(err) {
		return hypervisor.State{}, err
	}
	used := all.vmids()
	used[vmid] = true
	next, err := x.claimVMID(ctx, m, used, vmid+1)
	if err != nil {
		return hypervisor.State{}, err
	}
	m.Status.ProviderID = formatProviderID(node, next)
	return hypervisor.State{}, hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "VMIDTaken", Message: fmt.Sprintf("VMID %d belongs to a virtual machine that the user of MachineProvider %s cannot see; VMID %d is tried next: "+
		"reserve VMIDs for this provider in spec.proxmox.vmidStart and vmidEnd, or grant VM.Audit on /vms", vmid, x.provider.Name, next)}}
}

// confirmClaim returns an error for a machine that is being deleted, or whose placement
// another delivery has written. It is the last check before something is created.
func (x *Hypervisor) confirmClaim(ctx context.Context, m *v1alpha1.Machine) error {
	now := &v1alpha1.Machine{}
	if err := x.home.Get(ctx, m.Namespace, m.Name, now); err != nil {
		return err
	}
	if now.UID != m.UID || now.DeletionTimestamp != nil || now.Status.ProviderID != m.Status.ProviderID {
		return errConflict
	}
	return nil
}

// oneHost is the only access mode of disks on Proxmox VE.
const oneHost v1alpha1.DiskAccessMode = "ReadWriteOnce"

// checkExpressible returns a UserError for a spec that Proxmox VE cannot express.
func checkExpressible(m *v1alpha1.Machine) error {
	if d := m.Spec.Domain; d != nil && d.Features != nil && d.Features.APIC != nil && !*d.Features.APIC {
		return reconcile.UserError{Reason: "NotSupported", Message: "Proxmox VE cannot switch the APIC off: leave out spec.domain.features.apic"}
	}
	if m.Spec.OS != nil && m.Spec.OS.ISOURI != "" && !isInstaller(m.Spec.OS.ISOURI) {
		return reconcile.UserError{Reason: "NotSupported", Message: "Proxmox VE boots installers from its storages: write a volume such as local:iso/talos.iso into spec.os.isoUri"}
	}
	for _, d := range m.Spec.Disks {
		if d.AccessMode != "" && d.AccessMode != oneHost {
			return reconcile.UserError{Reason: "NotSupported", Message: fmt.Sprintf("Proxmox VE gives a disk to one machine: leave out accessMode of disk %s, or write %s", d.Name, oneHost)}
		}
	}
	return nil
}

// checkSnippet returns a UserError for a snippet that the platform team has not listed,
// because the snippets of a storage may belong to other tenants.
func (x *Hypervisor) checkSnippet(userData string) error {
	name := strings.TrimSpace(userData)
	if !snippet.MatchString(name) || slices.Contains(x.options.AllowedSnippets, name) {
		return nil
	}
	return reconcile.UserError{Reason: "SnippetNotAllowed", Message: fmt.Sprintf("snippet %s is not for everybody: write the user data itself into spec.cloudInit, or have the snippet added to spec.proxmox.allowedSnippets of the MachineProvider", name)}
}

var installer = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:iso/[A-Za-z0-9][A-Za-z0-9._+-]*\.(?:iso|img|ISO|IMG)$`)

// isInstaller reports whether text names a volume that every tenant may use: no device or
// disk, no further options, and no CD with the first configuration of a machine, which
// contains keys.
func isInstaller(text string) bool {
	return installer.MatchString(text) && !strings.Contains(text, ":iso/"+cdPrefix)
}

// create creates a virtual machine with disks of its own.
func (x *Hypervisor) create(ctx context.Context, m *v1alpha1.Machine, want hypervisor.Desired, where placement, vmid int, image string, first firstBootConfig) (*pve.Task, error) {
	options := x.creationOptions(m, want, first)
	if options[cloudDrive] == "" {
		options[cloudDrive] = where.storages[0] + ":cloudinit"
	}
	for _, more := range []map[string]string{updatableOptions(m, want), newDiskOptions(m, want, where.storages, image)} {
		for key, value := range more {
			options[key] = value
		}
	}
	if x.options.Pool != "" {
		options["pool"] = x.options.Pool
	}
	var given []pve.VirtualMachineOption
	for key, value := range options {
		given = append(given, pve.VirtualMachineOption{Name: key, Value: value})
	}
	node := (&pve.Node{}).New(x.client, where.node)
	return node.NewVirtualMachine(ctx, vmid, given...)
}

// findTemplate returns the template from which a machine is cloned, or nothing.
func (x *Hypervisor) findTemplate(ctx context.Context, m *v1alpha1.Machine, all inventory) (inventoryItem, error) {
	id := imageID(m)
	if id == "" || imageURL(m) != "" {
		return inventoryItem{}, nil
	}
	var names []string
	for _, i := range all {
		if !i.isVM() || i.Template == 0 {
			continue
		}
		if i.Name == id || strconv.Itoa(i.VMID) == id {
			template, err := x.read(ctx, i.Node, i.VMID)
			if err == nil && template.isShared(all) {
				i.Shared = 1
			}
			return i, err
		}
		names = append(names, fmt.Sprintf("%s (%d)", i.Name, i.VMID))
	}
	slices.Sort(names)
	return inventoryItem{}, reconcile.UserError{Reason: "ImageNotFound", Message: fmt.Sprintf("Proxmox VE has no template %s: name one of those that it has (%s), or the URL of an image", id, strings.Join(names, ", "))}
}

func imageID(m *v1alpha1.Machine) string {
	if m.Spec.OS == nil {
		return ""
	}
	return m.Spec.OS.ImageID
}

var diskOption = regexp.MustCompile(`^(?:scsi|virtio|sata|ide|efidisk|tpmstate)[0-9]+$`)

// isShared reports whether all disks of a virtual machine are on shared storages.
func (vm *virtualMachine) isShared(all inventory) bool {
	for key, value := range vm.config {
		if !diskOption.MatchString(key) || strings.Contains(value, "media=cdrom") {
			continue
		}
		name, _, _ := strings.Cut(value, ":")
		if s, ok := all.storage(vm.node, name); !ok || s.Shared == 0 {
			return false
		}
	}
	return true
}

// clone copies a template. The copy has the options of the template at first, and the
// description that marks it as the machine's.
func (x *Hypervisor) clone(ctx context.Context, m *v1alpha1.Machine, where placement, source inventoryItem, vmid int) (*pve.Task, error) {
	options := &pve.VirtualMachineCloneOptions{NewID: vmid, Name: hostname(m), Description: machineDescription(m), Pool: x.options.Pool}
	if !x.options.LinkedClone {
		options.Full, options.Storage = true, where.storages[0]
	}
	if where.node != source.Node {
		options.Target = where.node
	}
	from := x.vmClient(&virtualMachine{id: source.VMID, node: source.Node})
	_, t, err := from.Clone(ctx, options)
	return t, err
}

// talosRaw is a compressed image of Talos' image factory, which has every image
// in several formats.
var talosRaw = regexp.MustCompile(`^(https?://.+/image/[0-9a-f]{64}/v[^/]+/[^/]+)\.raw\.(?:xz|zst|gz)$`)

// importable are the formats that Proxmox VE imports.
var importable = []string{".qcow2", ".raw", ".vmdk"}

// imageURL returns the URL of the image of a machine in a format that Proxmox VE imports, or
// nothing.
func imageURL(m *v1alpha1.Machine) string {
	id := imageID(m)
	if !strings.HasPrefix(id, "https://") && !strings.HasPrefix(id, "http://") {
		return ""
	}
	if match := talosRaw.FindStringSubmatch(id); match != nil {
		return match[1] + ".qcow2"
	}
	return id
}

// ensureImage returns the volume of a machine's image on a host, and nothing if the machine has no
// image. Until the volume is there it returns the task that fetches it. Machines with the same
// image share the volume.
func (x *Hypervisor) ensureImage(ctx context.Context, m *v1alpha1.Machine, all inventory, node string) (volume string, begun *v1alpha1.ProviderTask, err error) {
	from := imageURL(m)
	if from == "" {
		return "", nil, nil
	}
	address, err := url.Parse(from)
	if err != nil || !slices.Contains(importable, path.Ext(address.Path)) {
		return "", nil, reconcile.UserError{Reason: "ImageNotSupported", Message: fmt.Sprintf("Proxmox VE imports images that end with %s: give the URL of such a one in spec.os.imageID, or the VMID or name of a template", strings.Join(importable, ", "))}
	}
	s, ok := all.storageWithMostRoom(node, "import")
	if !ok {
		return "", nil, reconcile.UserError{Reason: "StorageClassNotFound", Message: "node " + node + " has no storage for content import, which images are fetched to: allow it on one"}
	}
	sum := sha256.Sum256([]byte(from))
	name := "vitistack-" + hex.EncodeToString(sum[:8]) + path.Ext(address.Path)
	volume = s.Storage + ":import/" + name
	has, err := x.hasVolume(ctx, node, s.Storage, "import", volume)
	if err != nil || has {
		return volume, nil, err
	}
	var active []struct {
		UPID string `json:"upid"`
		ID   string `json:"id"`
	}
	if err := x.client.Get(ctx, "/nodes/"+node+"/tasks?source=active&typefilter=download", &active); err != nil {
		return "", nil, err
	}
	for _, a := range active {
		if a.ID == name {
			return "", &v1alpha1.ProviderTask{ID: a.UPID, Action: actionDownload}, nil
		}
	}
	var upid pve.UPID
	err = x.client.Post(ctx, "/nodes/"+node+"/storage/"+s.Storage+"/download-url", map[string]any{"content": "import", "filename": name, "url": from}, &upid)
	return "", taskOf(actionDownload, pve.NewTask(upid, x.client)), err
}

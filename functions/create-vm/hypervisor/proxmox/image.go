package proxmox

import (
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

// images finds and fetches what the disks of machines are copied from.
type images struct{ api }

// findTemplate returns the template from which a machine is cloned, or nothing.
func (x images) findTemplate(ctx context.Context, m *v1alpha1.Machine, all inventory) (inventoryItem, error) {
	if !isClone(m) {
		return inventoryItem{}, nil
	}
	id := imageID(m)
	var names []string
	silent := "" // a host whose templates are not known
	for _, i := range all {
		switch {
		case i.isVM() && i.Template == 0 && i.Name == "" && !all.isAnswering(i.Node): // as five minutes after the last answer of its host
			silent = i.Node
		case !i.isVM() || i.Template == 0:
		case i.Name == id || strconv.Itoa(i.VMID) == id:
			template, err := x.read(ctx, i.Node, i.VMID)
			if err == nil && template.isShared(all) {
				i.Shared = 1
			}
			return i, all.hostError(i.Node, i.VMID, err)
		default:
			names = append(names, fmt.Sprintf("%s (%d)", i.Name, i.VMID))
		}
	}
	if silent != "" {
		return inventoryItem{}, hypervisor.RetriedUserError{UserError: reconcile.UserError{Reason: "HostUnavailable", Message: fmt.Sprintf("node %s does not answer, so that Proxmox VE does not know whether it has template %s: "+
			"start it, or write another template, or the URL of an image, into spec.os.imageID", silent, id)}}
	}
	return inventoryItem{}, templateNotFound(id, names)
}

// templateNotFound returns the UserError of a machine that names a template which does not exist. names are the existing ones, in any order.
func templateNotFound(id string, names []string) error {
	instead := "write the URL of an image into spec.os.imageID, or make the template"
	if len(names) > 0 {
		slices.Sort(names)
		instead = fmt.Sprintf("write an existing one (%s), or the URL of an image, into spec.os.imageID", strings.Join(names, ", "))
	}
	return reconcile.UserError{Reason: "ImageNotFound", Message: fmt.Sprintf("Proxmox VE has no template %s: %s", id, instead)}
}

// isClone reports whether a machine is cloned from a template.
func isClone(m *v1alpha1.Machine) bool { return imageID(m) != "" && imageURL(m) == "" }

// imageID returns the image that a machine names, or nothing.
func imageID(m *v1alpha1.Machine) string {
	if m.Spec.OS == nil {
		return ""
	}
	return m.Spec.OS.ImageID
}

var diskOption = regexp.MustCompile(`^(?:scsi|virtio|sata|ide|efidisk|tpmstate)[0-9]+$`)

// isShared reports whether all volumes of a virtual machine are on shared storages, also those in its CD drives: Proxmox VE does not clone it to
// another host otherwise (API2/Qemu.pm, check_storage_access_clone).
func (vm *virtualMachine) isShared(all inventory) bool {
	for key, value := range vm.config {
		volume, _, _ := strings.Cut(value, ",")
		if !diskOption.MatchString(key) || volume == "none" || volume == "cdrom" {
			continue
		}
		name, _, _ := strings.Cut(volume, ":")
		if s, ok := all.storage(vm.node, name); !ok || s.Shared == 0 {
			return false
		}
	}
	return true
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

// ensure returns the volume of a machine's image on a host, and nothing if the machine has no
// image. Until the volume is there it returns the task that fetches it. Machines with the same
// image share the volume.
func (x images) ensure(ctx context.Context, m *v1alpha1.Machine, all inventory, node string) (volume string, begun *v1alpha1.ProviderTask, err error) {
	from := imageURL(m)
	if from == "" {
		return "", nil, nil
	}
	address, err := url.Parse(from)
	if err != nil || !slices.Contains(importable, path.Ext(address.Path)) {
		return "", nil, reconcile.UserError{Reason: "ImageNotSupported", Message: fmt.Sprintf("Proxmox VE imports images that end with %s: write the URL of such an image into spec.os.imageID, or the VMID or name of a template", strings.Join(importable, ", "))}
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

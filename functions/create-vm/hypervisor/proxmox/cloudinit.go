package proxmox

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"
	pve "github.com/luthermonson/go-proxmox"
	"sigs.k8s.io/yaml"

	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/create-vm/hypervisor"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// firstBootConfig is how a guest gets its first configuration: by Proxmox VE's own
// drive, whose options these are, or by a CD of ours.
type firstBootConfig struct {
	options map[string]string
	// userData and networkData are for the CD, and empty where there is none.
	userData, networkData string
}

func (f firstBootConfig) iso() bool { return f.userData != "" || f.networkData != "" }

// snippet is user data that is the volume of a snippet on a storage.
var snippet = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]*:snippets/[^\s,]+$`)

// decideFirstBoot decides how a guest is configured. Proxmox VE's own drive can carry a
// user with keys, addresses and name servers, and a snippet; all else takes a CD,
// since the API takes no other files:
//
//	user data                        network data given   means
//	none                             no                   drive
//	the volume of a snippet          no                   drive with cicustom
//	one user with nothing but keys   no                   drive with ciuser and sshkeys
//	other                            no                   CD with user and network data
//	any                              yes                  CD with user and network data
func decideFirstBoot(m *v1alpha1.Machine, want hypervisor.Desired) firstBootConfig {
	given := m.Spec.CloudInit != nil && m.Spec.CloudInit.NetworkData != ""
	// Proxmox VE would upgrade all packages at the first boot, and write a config drive
	// instead of NoCloud for the type of Windows guests.
	o := map[string]string{"ciupgrade": "0", "citype": "nocloud"}
	userData := strings.TrimSpace(want.UserData)
	simple := userData == ""
	if name, keys, ok := simpleUser(userData); ok {
		simple = true
		o["ciuser"] = name
		if len(keys) > 0 {
			o["sshkeys"] = pve.EncodeSSHKeys(keys...)
		}
	}
	if snippet.MatchString(userData) {
		simple = true
		o["cicustom"] = "user=" + userData
	}
	if given || !simple {
		f := firstBootConfig{userData: want.UserData, networkData: want.NetworkData}
		if f.userData == "" {
			f.userData = hypervisor.EmptyUserData
		}
		return f
	}
	var servers []string
	for i, n := range want.NICs {
		o["ipconfig"+strconv.Itoa(i)] = ipConfigOption(n)
		for _, s := range n.DNS {
			if !slices.Contains(servers, s) {
				servers = append(servers, s)
			}
		}
	}
	if len(servers) > 0 {
		o["nameserver"] = strings.Join(servers, " ")
	}
	return firstBootConfig{options: o}
}

// simpleUser reads user data that asks for nothing but one administrator, and
// returns its name and keys.
func simpleUser(userData string) (name string, keys []string, ok bool) {
	if !strings.HasPrefix(userData, "#cloud-config") {
		return "", nil, false
	}
	var doc struct {
		Users []struct {
			Name string   `json:"name"`
			Sudo string   `json:"sudo"`
			Keys []string `json:"ssh_authorized_keys"`
		} `json:"users"`
	}
	if yaml.UnmarshalStrict([]byte(userData), &doc) != nil || len(doc.Users) != 1 {
		return "", nil, false
	}
	u := doc.Users[0]
	return u.Name, u.Keys, u.Name != "" && u.Sudo == "ALL=(ALL) NOPASSWD:ALL"
}

// cdPrefix is what the names of all CDs with first configurations begin with.
const cdPrefix = "vitistack-"

// cdName returns the name of the file of a machine's CD.
func cdName(m *v1alpha1.Machine) string { return cdPrefix + string(m.UID) + ".iso" }

// renderCD makes the CD of a machine, as cloud-init's NoCloud reads it.
func renderCD(m *v1alpha1.Machine, f firstBootConfig) ([]byte, error) {
	folder, err := os.MkdirTemp("", "cd-")
	if err != nil {
		return nil, fmt.Errorf("make a CD: %w", err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	name := filepath.Join(folder, "cd.iso")
	const start, block = 1 << 20, 2048
	image, err := file.CreateFromPath(name, start)
	if err != nil {
		return nil, fmt.Errorf("make a CD: %w", err)
	}
	defer func() { _ = image.Close() }()
	content := filepath.Join(folder, "content")
	if err := os.Mkdir(content, 0o700); err != nil {
		return nil, fmt.Errorf("make a CD: %w", err)
	}
	cd, err := iso9660.Create(image, 0, 0, block, content)
	if err != nil {
		return nil, fmt.Errorf("make a CD: %w", err)
	}
	files := map[string]string{
		"user-data": f.userData, "meta-data": fmt.Sprintf("instance-id: %s\nlocal-hostname: %s\n", m.UID, hostname(m)), "network-config": f.networkData,
	}
	for name, text := range files {
		if text == "" {
			continue
		}
		out, err := cd.OpenFile("/"+name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, fmt.Errorf("make a CD: %w", err)
		}
		_, err = out.Write([]byte(text))
		if closed := out.Close(); err == nil {
			err = closed
		}
		if err != nil {
			return nil, fmt.Errorf("make a CD: %w", err)
		}
	}
	if err := cd.Finalize(iso9660.FinalizeOptions{RockRidge: true, Joliet: true, VolumeIdentifier: "cidata"}); err != nil {
		return nil, fmt.Errorf("make a CD: %w", err)
	}
	return os.ReadFile(name)
}

// ensureCD is the volume of a machine's CD, once it is there. Until then it returns the
// task that brings it.
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

// emptyDrive is the option of a drive without a CD, which a running machine takes on too.
const emptyDrive = "none,media=cdrom"

func (x *Hypervisor) hasVolume(ctx context.Context, node, storage, content, volume string) (bool, error) {
	var volumes []struct {
		VolID string `json:"volid"`
	}
	if err := x.client.Get(ctx, "/nodes/"+node+"/storage/"+storage+"/content?content="+content, &volumes); err != nil {
		return false, err
	}
	for _, v := range volumes {
		if v.VolID == volume {
			return true, nil
		}
	}
	return false, nil
}

// deleteCD deletes the CD of a machine, and then empties the drive. In this order a crash in
// between leaves no CD that nothing names. It returns the task, or nil if there is no CD.
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
	if m.Spec.CloudInit == nil {
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

func (x *Hypervisor) deleteVolume(ctx context.Context, node, storage, volume string) (*pve.Task, error) {
	var upid pve.UPID
	err := x.client.Delete(ctx, "/nodes/"+node+"/storage/"+storage+"/content/"+url.PathEscape(volume), &upid)
	if err == nil && upid == "" {
		return &pve.Task{}, nil
	}
	return pve.NewTask(upid, x.client), err
}

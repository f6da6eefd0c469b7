package proxmox

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// volumeKey identifies a volume. node is empty on shared storages.
type volumeKey struct{ Storage, Node, Name string }

func (k volumeKey) id() string { return k.Storage + ":" + k.Name }

// volume is a disk, or a file such as an installer.
type volume struct {
	// VMID is its owner, or 0.
	VMID int
	Size int64
	// Content is images, iso, import, snippets or vztmpl.
	Content string
	// Image is the source of its content, or empty.
	Image string
	// Data is the content of an upload.
	Data []byte
	// held is whether the storage refuses to delete it.
	held bool
	// Parent is the disk of the template that it is a linked clone of.
	Parent string
}

// newDisk matches the request for a new volume: storage:GiB.
var newDisk = regexp.MustCompile(`^([^/:\s]+):(\d+(?:\.\d+)?)$`)

// isFile reports whether a storage stores its volumes as files.
func (s Storage) isFile() bool { return s.Type == "dir" || s.Type == "nfs" || s.Type == "cifs" }

// on returns a storage on a node.
func (s *Server) on(storage, node string) (Storage, error) {
	for _, st := range s.options.Storages {
		if st.Name != storage {
			continue
		}
		if st.Nodes != nil && !slices.Contains(st.Nodes, node) {
			return Storage{}, fmt.Errorf("storage '%s' is not available on node '%s'", storage, node)
		}
		return st, nil
	}
	return Storage{}, fmt.Errorf("storage '%s' does not exist", storage)
}

func (s Storage) key(node, name string) volumeKey {
	if s.Shared {
		node = ""
	}
	return volumeKey{Storage: s.Name, Node: node, Name: name}
}

// used returns the size of the volumes on a storage, or on one node if it is not shared. A new linked
// clone has no size.
func (s *Server) used(st Storage, node string) (bytes int64) {
	for key, v := range s.volumes {
		if key.Storage == st.Name && (st.Shared || key.Node == node) && v.Parent == "" {
			bytes += v.Size
		}
	}
	return bytes
}

// allocate creates a volume, if the storage has room for it.
func (s *Server) allocate(st Storage, node, name string, v *volume) (volumeKey, error) {
	if v.Content == "images" && !slices.Contains(st.Content, "images") {
		return volumeKey{}, fmt.Errorf("storage '%s' does not support content-type 'images'", st.Name)
	}
	if v.Parent == "" && s.used(st, node)+v.Size > st.Capacity {
		switch {
		case st.isFile():
			return volumeKey{}, fmt.Errorf("unable to create image: qemu-img: /mnt/%s/%s: Could not resize file: No space left on device", st.Name, name)
		default:
			return volumeKey{}, fmt.Errorf("lvcreate '%s/%s' error: Cannot create new thin volume, free space in thin pool %s/data reached threshold.", st.Name, name, st.Name) //nolint:revive,staticcheck // Proxmox VE's words
		}
	}
	key := st.key(node, name)
	s.volumes[key] = v
	return key, nil
}

// BasesOf returns the disks of templates that a machine's disks are linked clones of.
func (s *Server) BasesOf(id int) (bases []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.volumes {
		if v.VMID == id && v.Parent != "" {
			bases = append(bases, v.Parent)
		}
	}
	slices.Sort(bases)
	return bases
}

// diskName returns a free name for a disk of a machine.
func (s *Server) diskName(st Storage, node string, id int) string {
	for n := 0; ; n++ {
		name := fmt.Sprintf("vm-%d-disk-%d", id, n)
		if st.isFile() {
			name = fmt.Sprintf("%d/%s.qcow2", id, name)
		}
		if !s.taken(st, node, name) {
			return name
		}
	}
}

// taken reports whether a disk with a name exists, as a linked clone or not.
func (s *Server) taken(st Storage, node, name string) bool {
	for key := range s.volumes {
		if key.Storage == st.Name && (st.Shared || key.Node == node) && (key.Name == name || strings.HasSuffix(key.Name, "/"+name)) {
			return true
		}
	}
	return false
}

// linkedName returns the name of a linked clone. On most storages it begins with the name of its base,
// but not for thin volumes of LVM (clone_image of PVE::Storage's plugins).
func (s Storage) linkedName(base, name string) string {
	if s.Type == "lvmthin" {
		return name
	}
	return base + "/" + name
}

// becomeBases renames the disks of a machine to those of a template.
func (s *Server) becomeBases(m *machine) error {
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err != nil {
			return err
		}
		if d.cdrom() {
			continue
		}
		key, v, err := s.volume(d["file"], m.Node)
		if err != nil {
			return err
		}
		delete(s.volumes, key)
		key.Name = strings.Replace(key.Name, fmt.Sprintf("vm-%d-disk-", m.ID), fmt.Sprintf("base-%d-disk-", m.ID), 1)
		s.volumes[key] = v
		d["file"] = key.id()
		m.Config[name] = d.print()
	}
	return nil
}

// volume returns a volume by its name on a node.
func (s *Server) volume(id, node string) (volumeKey, *volume, error) {
	storage, name, ok := strings.Cut(id, ":")
	if !ok {
		return volumeKey{}, nil, fmt.Errorf("unable to parse volume ID '%s'", id)
	}
	st, err := s.on(storage, node)
	if err != nil {
		return volumeKey{}, nil, err
	}
	key := st.key(node, name)
	v := s.volumes[key]
	if v == nil {
		return key, nil, fmt.Errorf("volume '%s' does not exist", id)
	}
	return key, v, nil
}

// AddVolume adds a file, such as an installer, an image or a snippet, to a storage on every node that
// has it. name is for example iso/talos.iso. image is the source of its content.
func (s *Server) AddVolume(storage, name, image string, size int64) error {
	return s.addVolume("", storage, name, image, size)
}

// AddVolumeOn is AddVolume for one node.
func (s *Server) AddVolumeOn(node, storage, name, image string, size int64) error {
	return s.addVolume(node, storage, name, image, size)
}

// addVolume is AddVolumeOn, or AddVolume if node is empty.
func (s *Server) addVolume(node, storage, name, image string, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, _, ok := strings.Cut(name, "/")
	if !ok {
		return fmt.Errorf("add volume %s:%s: write its content first, for example iso/talos.iso", storage, name)
	}
	found := false
	for _, n := range s.options.Nodes {
		st, err := s.on(storage, n.Name)
		if err != nil || (node != "" && node != n.Name) {
			continue
		}
		found = true
		s.volumes[st.key(n.Name, name)] = &volume{Size: size, Content: content, Image: image}
	}
	if !found {
		return fmt.Errorf("add volume %s:%s: no node has that storage", storage, name)
	}
	s.save()
	return nil
}

// HoldVolume has its storage refuse to delete a volume, as Ceph does while a host that was lost still has it open. FreeVolume deletes it.
func (s *Server) HoldVolume(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.volumes {
		v.held = v.held || key.id() == id
	}
}

// FreeVolume deletes a volume, as pvesm free does.
func (s *Server) FreeVolume(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.volumes, func(key volumeKey, _ *volume) bool { return key.id() == id })
}

// makeDrives creates or checks the volumes of all drives in a configuration, writes their names into
// it, and returns the new ones. It removes the new ones again if one fails.
func (s *Server) makeDrives(t *task, node string, id int, config map[string]string) (made []volumeKey, err error) {
	defer func() {
		if err != nil {
			for _, key := range made {
				delete(s.volumes, key)
			}
		}
	}()
	for _, name := range drives(config) {
		d, err := parseDrive(name, config[name])
		if err != nil {
			return made, err
		}
		key, isNew, err := s.makeDrive(node, id, name, d)
		if isNew {
			made = append(made, key)
			t.print("%s: successfully created disk '%s'", name, d.print())
		}
		if err != nil {
			return made, err
		}
		config[name] = d.print()
	}
	return made, nil
}

func (s *Server) makeDrive(node string, id int, name string, d drive) (key volumeKey, isNew bool, err error) {
	file := d["file"]
	storage, rest, _ := strings.Cut(file, ":")
	switch {
	case file == "none" || file == "cdrom":
		delete(d, "size")
		return key, false, nil
	case rest == "cloudinit":
		st, err := s.on(storage, node)
		if err != nil {
			return key, false, err
		}
		volumeName := fmt.Sprintf("vm-%d-cloudinit", id)
		if st.isFile() {
			volumeName = fmt.Sprintf("%d/%s.qcow2", id, volumeName)
		}
		key, err = s.allocate(st, node, volumeName, &volume{VMID: id, Size: 4 << 20, Content: "images"})
		if err != nil {
			return key, false, err
		}
		d["file"], d["media"] = key.id(), "cdrom"
		delete(d, "format")
		return key, true, nil
	case newDisk.MatchString(file):
		return s.makeDisk(node, id, name, d)
	default:
		_, v, err := s.volume(file, node)
		if err != nil {
			return key, false, err
		}
		d["size"] = formatSize(v.Size)
		return key, false, nil
	}
}

// makeDisk allocates a disk, and imports its content.
func (s *Server) makeDisk(node string, id int, name string, d drive) (key volumeKey, isNew bool, err error) {
	match := newDisk.FindStringSubmatch(d["file"])
	st, err := s.on(match[1], node)
	if err != nil {
		return key, false, err
	}
	gigabytes, _ := strconv.ParseFloat(match[2], 64)
	v := &volume{VMID: id, Size: int64(gigabytes * float64(gib)), Content: "images"}
	switch {
	case d["import-from"] != "":
		_, source, err := s.volume(d["import-from"], node)
		if err != nil {
			return key, false, fmt.Errorf("cannot import from '%s' - %w", d["import-from"], err)
		}
		v.Size, v.Image = source.Size, source.Image
		delete(d, "import-from")
	case strings.HasPrefix(name, "efidisk"), strings.HasPrefix(name, "tpmstate"):
		v.Size = 4 << 20
	}
	if key, err = s.allocate(st, node, s.diskName(st, node, id), v); err != nil {
		return key, false, err
	}
	d["file"], d["size"] = key.id(), formatSize(v.Size)
	delete(d, "format")
	return key, true, nil
}

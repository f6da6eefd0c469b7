package proxmox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/diskfs/go-diskfs/backend/file"
	"github.com/diskfs/go-diskfs/filesystem/iso9660"

	"github.com/vitistack/stack/tests/sim/kubevirt/cloudinit"
)

// imageSize is the size of a downloaded disk image.
const imageSize = 4 * gib

var (
	installerName = regexp.MustCompile(`(?i)^[^/]+\.(?:iso|img)$`)
	importName    = regexp.MustCompile(`^[a-zA-Z0-9\-_.+=]+\.(?:ova|qcow2|raw|vmdk)$`)
	isoMagic      = []byte("CD001")
)

// fileStorage returns the storage of a call, which must accept files of a content type.
func (c *call) fileStorage(content, name string) (Storage, error) {
	st, err := c.server.on(c.params["storage"], c.node.Name)
	switch {
	case err != nil:
		return st, die("%s", err)
	case !st.isFile():
		return st, die("can't upload to storage type '%s', not a file based storage!", st.Type)
	case !slices.Contains(st.Content, content):
		return st, die("storage '%s' is not configured for content-type '%s'", st.Name, content)
	case content == "iso" && !installerName.MatchString(name):
		return st, badParameter("filename", "wrong file extension")
	case content == "import" && c.server.isBefore(importOfImages) && !strings.HasSuffix(name, ".ova"):
		return st, badParameter("filename", "wrong file extension")
	case content == "import" && !importName.MatchString(name):
		return st, badParameter("filename", "invalid filename or wrong extension")
	}
	return st, nil
}

func mayUpload(c *call) error {
	return c.demand("/storage/"+c.params["storage"], "Datastore.AllocateTemplate")
}

func mayDownload(c *call) error {
	if err := mayUpload(c); err != nil {
		return err
	}
	if c.may("/", "Sys.Audit", "Sys.Modify") || c.may("/nodes/"+c.params["node"], "Sys.AccessNetwork") {
		return nil
	}
	return forbidden("")
}

// downloadURL downloads a file into a storage. Only its URL is recorded.
func downloadURL(c *call) (any, error) {
	content, name, url := c.params["content"], c.params["filename"], c.params["url"]
	st, err := c.fileStorage(content, name)
	if err != nil {
		return nil, err
	}
	s, node := c.server, c.node.Name
	return s.fork(c, "download", encodeText(name), 0, s.options.Times.Copy, func(t *task) error {
		t.print("downloading %s to /var/lib/vz/template/%s/%s", url, content, name)
		key := st.key(node, content+"/"+name)
		if _, taken := s.volumes[key]; taken {
			return fmt.Errorf("refusing to override existing file '/var/lib/vz/template/%s/%s'", content, name)
		}
		_, err := s.allocate(st, node, key.Name, &volume{Size: imageSize, Content: content, Image: url})
		return err
	}), nil
}

// upload stores a file from the request, and replaces an earlier one with its name.
func upload(c *call) (any, error) {
	content, name := c.params["content"], c.params["filename"]
	st, err := c.fileStorage(content, name)
	if err != nil {
		return nil, err
	}
	data, s, node := c.file, c.server, c.node.Name
	return s.fork(c, "imgcopy", "", 0, 0, func(t *task) error {
		const magicAt = 0x8001
		if content == "iso" && (len(data) < magicAt+len(isoMagic) || !bytes.Equal(data[magicAt:magicAt+len(isoMagic)], isoMagic)) {
			return fmt.Errorf("not a valid ISO image") //nolint:perfsprint // Proxmox VE's words
		}
		t.print("finished file import successfully")
		_, err := s.allocate(st, node, content+"/"+name, &volume{Size: int64(len(data)), Content: content, Data: data})
		return err
	}), nil
}

func deleteVolume(c *call) (any, error) {
	id := c.params["volume"]
	if !strings.Contains(id, ":") {
		id = c.params["storage"] + ":" + id
	}
	s, node := c.server, c.node.Name
	key, v, err := s.volume(id, node)
	if v != nil {
		// pve-storage, PVE/API2/Storage/Content.pm: everything except backups requires
		// Datastore.Allocate.
		if err := c.demand("/storage/"+key.Storage, "Datastore.Allocate"); err != nil {
			return nil, err
		}
	}
	if v == nil && key.Storage == "" {
		return nil, die("%s", err)
	}
	return s.fork(c, "imgdel", key.Storage, 0, 0, func(*task) error {
		if s.volumes[key] == nil {
			return fmt.Errorf("unable to delete '%s' - no such file", id)
		}
		delete(s.volumes, key)
		return nil
	}), nil
}

// seed is the cloud-init data on a machine's CD.
type seed struct {
	userData string
	network  []cloudinit.Interface
	given    bool
}

// seedOf returns the cloud-init data of a machine. generated is whether Proxmox VE generates it from
// the configuration.
func (s *Server) seedOf(m *machine) (found seed, generated bool) {
	for _, name := range drives(m.Config) {
		d, err := parseDrive(name, m.Config[name])
		if err != nil || !d.cdrom() {
			continue
		}
		if d.cloudInit() {
			return found, true
		}
		_, v, err := s.volume(d["file"], m.Node)
		if err != nil || v.Data == nil {
			continue
		}
		files, err := readISO(v.Data)
		if err != nil {
			s.options.Log.Warn("Guest cannot read its CD", "machine", m.ID, "error", err)
			continue
		}
		found.userData, found.given = files["user-data"], files["network-config"] != ""
		if found.network, err = cloudinit.Parse(files["network-config"]); err != nil {
			s.options.Log.Warn("Guest does not understand its network data", "machine", m.ID, "error", err)
		}
	}
	return found, false
}

// readISO reads the files of an ISO image.
func readISO(data []byte) (map[string]string, error) {
	image, err := os.CreateTemp("", "cd-*.iso")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(image.Name()) }()
	_, err = image.Write(data)
	if closed := image.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, err
	}
	disk, err := file.OpenFromPath(image.Name(), true)
	if err != nil {
		return nil, err
	}
	defer func() { _ = disk.Close() }()
	const blockSize = 2048
	cd, err := iso9660.Read(disk, int64(len(data)), 0, blockSize)
	if err != nil {
		return nil, err
	}
	entries, err := cd.ReadDir(".")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, e := range entries {
		f, err := cd.OpenFile(e.Name(), os.O_RDONLY)
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(f)
		if err != nil {
			return nil, err
		}
		files[strings.ToLower(e.Name())] = string(content)
	}
	return files, nil
}

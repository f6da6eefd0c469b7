// Package registry serves folders as container images, over the protocol of the OCI distribution specification 1.1, of
// which it has what a pull needs.
package registry

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar"
)

// Image is a folder that becomes an image of one layer.
type Image struct {
	// Name is the last element of the repository. Each repository with that name is this image.
	Name string
	// Tag is the only tag of the image. Without it, the image has each tag that no other image of the name has.
	Tag    string
	Folder string
	// Entrypoint is the command of a container that has none.
	Entrypoint []string
	// User is the user of a container that has none, as UID:GID. Default: root.
	User string
}

// Registry is an HTTP handler.
type Registry struct {
	manifests map[string]blob // by name or name:tag of the image, and by digest
	blobs     map[string]blob // by digest
}

// blob is a document in memory, or the tar of a folder, which is written at each request.
type blob struct {
	kind   string
	digest string
	size   int64
	data   []byte
	folder string
}

// descriptor refers to a blob, in the form of the OCI image specification.
type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int64  `json:"size"`
}

func (b blob) descriptor() descriptor { return descriptor{b.kind, b.digest, b.size} }

// New reads all folders to compute their digests.
func New(images ...Image) (*Registry, error) {
	r := &Registry{manifests: map[string]blob{}, blobs: map[string]blob{}}
	for _, image := range images {
		if err := r.add(image); err != nil {
			return nil, fmt.Errorf("read the image %s: %w", image.Name, err)
		}
	}
	return r, nil
}

func (r *Registry) add(image Image) error {
	counter := &counter{hash: sha256.New()}
	if err := writeTar(counter, image.Folder); err != nil {
		return err
	}
	layer := blob{kind: layerType, digest: counter.digest(), size: counter.size, folder: image.Folder}
	config, err := document(configType, map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{
			"Env":        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/bin"},
			"Entrypoint": image.Entrypoint, "User": image.User,
		},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.digest}},
	})
	if err != nil {
		return err
	}
	manifest, err := document(manifestType, map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": config.descriptor(), "layers": []descriptor{layer.descriptor()},
	})
	if err != nil {
		return err
	}
	name := image.Name
	if image.Tag != "" {
		name += ":" + image.Tag
	}
	r.manifests[name], r.manifests[manifest.digest] = manifest, manifest
	r.blobs[config.digest], r.blobs[layer.digest] = config, layer
	return nil
}

func document(kind string, content any) (blob, error) {
	data, err := json.Marshal(content)
	sum := sha256.Sum256(data)
	return blob{kind: kind, digest: "sha256:" + hex.EncodeToString(sum[:]), size: int64(len(data)), data: data}, err
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	rest, ok := strings.CutPrefix(request.URL.Path, "/v2/")
	if !ok || (request.Method != http.MethodGet && request.Method != http.MethodHead) {
		http.NotFound(w, request)
		return
	}
	if rest == "" {
		return // the registry speaks version 2
	}
	found, ok := r.find(rest)
	if !ok {
		http.NotFound(w, request)
		return
	}
	w.Header().Set("Content-Type", found.kind)
	w.Header().Set("Docker-Content-Digest", found.digest)
	w.Header().Set("Content-Length", fmt.Sprint(found.size))
	switch {
	case request.Method == http.MethodHead:
	case found.folder != "":
		// The client compares the digest, and so sees an error.
		_ = writeTar(w, found.folder)
	default:
		_, _ = w.Write(found.data)
	}
}

// find returns the blob for REPOSITORY/manifests/REFERENCE or REPOSITORY/blobs/DIGEST.
func (r *Registry) find(rest string) (blob, bool) {
	head, reference := path.Split(rest)
	repository, kind := path.Split(path.Clean(head))
	switch {
	case kind == "blobs":
		b, ok := r.blobs[reference]
		return b, ok
	case kind == "manifests" && strings.HasPrefix(reference, "sha256:"):
		b, ok := r.manifests[reference]
		return b, ok
	case kind == "manifests":
		name := path.Base(repository)
		b, ok := r.manifests[name+":"+reference]
		if !ok {
			b, ok = r.manifests[name]
		}
		return b, ok
	default:
		return blob{}, false
	}
}

// counter computes the size and the digest of what is written.
type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))
	return c.hash.Write(p)
}

func (c *counter) digest() string { return "sha256:" + hex.EncodeToString(c.hash.Sum(nil)) }

// writeTar writes a folder as a tar, whose bytes depend on names, modes and contents only.
func writeTar(w io.Writer, folder string) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == folder {
			return err
		}
		return writeEntry(out, folder, path, entry)
	})
	if err != nil {
		return err
	}
	return out.Close()
}

func writeEntry(out *tar.Writer, folder, path string, entry fs.DirEntry) error {
	name, err := filepath.Rel(folder, path)
	if err != nil {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = name, 0, 0, "", ""
	header.ModTime, header.AccessTime, header.ChangeTime, header.Format = time.Unix(0, 0), time.Time{}, time.Time{}, tar.FormatPAX
	if err := addCapabilities(header, path); err != nil {
		return err
	}
	if err := out.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_, err = io.Copy(out, file)
	return err
}

// capabilityAttribute is the extended attribute of a file with its capabilities (capabilities(7)).
const capabilityAttribute = "security.capability"

// addCapabilities copies the capabilities of a program into its header, in the record that container runtimes read.
func addCapabilities(header *tar.Header, path string) error {
	if header.Typeflag != tar.TypeReg {
		return nil
	}
	value := make([]byte, 64) // a capability set has 24 bytes at most
	size, err := unix.Lgetxattr(path, capabilityAttribute, value)
	switch {
	case errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP):
		return nil
	case err != nil:
		return fmt.Errorf("read the capabilities of %s: %w", path, err)
	}
	header.PAXRecords = map[string]string{"SCHILY.xattr." + capabilityAttribute: string(value[:size])}
	return nil
}

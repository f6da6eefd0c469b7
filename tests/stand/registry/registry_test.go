package registry

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTag serves an image with a tag beside one of the same name that has all other tags.
func TestTag(t *testing.T) {
	t.Parallel()
	images := map[string]Image{"every": {Name: "kubelet"}, "upgraded": {Name: "kubelet", Tag: "v1.35.7"}}
	var all []Image
	for content, image := range images {
		image.Folder = t.TempDir()
		if err := os.WriteFile(filepath.Join(image.Folder, "kubelet"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		all = append(all, image)
	}
	r, err := New(all...)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	manifest := func(tag string) string {
		code, data := get(t, server.URL+"/v2/siderolabs/kubelet/manifests/"+tag)
		if code != http.StatusOK {
			t.Errorf("tag %s: %d", tag, code)
		}
		return string(data)
	}
	if manifest("v1.35.6") != manifest("latest") || manifest("v1.35.6") == manifest("v1.35.7") {
		t.Error("an image without a tag is not that of all tags except v1.35.7")
	}
}

// TestPull requests what a client requests for a pull, and compares each digest.
func TestPull(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.MkdirAll(filepath.Join(folder, "usr", "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "usr", "bin", "pause"), []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("usr/bin/pause", filepath.Join(folder, "pause")); err != nil {
		t.Fatal(err)
	}
	r, err := New(Image{Name: "pause", Folder: folder, Entrypoint: []string{"/pause"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	if code, _ := get(t, server.URL+"/v2/"); code != http.StatusOK {
		t.Errorf("the version check answers %d", code)
	}
	_, data := get(t, server.URL+"/v2/some/pause/manifests/3.10?ns=registry.k8s.io")
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(data, &manifest); err != nil {
		t.Fatal(err)
	}
	if code, again := get(t, server.URL+"/v2/pause/manifests/"+digestOf(data)); code != http.StatusOK || !bytes.Equal(again, data) {
		t.Errorf("the manifest by its digest: %d %s", code, again)
	}
	for _, d := range append(manifest.Layers, manifest.Config) {
		_, content := get(t, server.URL+"/v2/pause/blobs/"+d.Digest)
		if digestOf(content) != d.Digest || int64(len(content)) != d.Size {
			t.Errorf("%s has %d bytes with digest %s", d.Digest, len(content), digestOf(content))
		}
	}
	_, layer := get(t, server.URL+"/v2/pause/blobs/"+manifest.Layers[0].Digest)
	found := map[string]string{}
	for reader := tar.NewReader(bytes.NewReader(layer)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		found[header.Name] = header.Linkname + string(content)
	}
	if found["usr/bin/pause"] != "program" || found["pause"] != "usr/bin/pause" {
		t.Errorf("the layer has %v", found)
	}
	for _, path := range []string{"/v2/other/manifests/1", "/v2/pause/blobs/sha256:0", "/v2/pause/tags/list", "/"} {
		if code, _ := get(t, server.URL+path); code != http.StatusNotFound {
			t.Errorf("%s answers %d", path, code)
		}
	}
}

func get(t *testing.T, url string) (int, []byte) {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, body
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// TestCapabilities writes the capabilities of a program as container runtimes read them: as an extended attribute in the
// PAX format.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	program := filepath.Join(folder, "program")
	if err := os.WriteFile(program, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Version 2 of the attribute, with CAP_NET_BIND_SERVICE permitted and effective: linux/capability.h.
	value := make([]byte, 20)
	binary.LittleEndian.PutUint32(value, 0x02000001)
	binary.LittleEndian.PutUint32(value[4:], 1<<unix.CAP_NET_BIND_SERVICE)
	if err := unix.Setxattr(program, capabilityAttribute, value, 0); err != nil {
		t.Skipf("only root sets capabilities: %v", err)
	}
	var layer bytes.Buffer
	if err := writeTar(&layer, folder); err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(&layer).Next()
	if err != nil {
		t.Fatal(err)
	}
	if got := header.PAXRecords["SCHILY.xattr.security.capability"]; got != string(value) {
		t.Errorf("the record has %x, want %x", got, value)
	}
}

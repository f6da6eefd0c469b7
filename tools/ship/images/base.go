package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user of distroless images.
const nonroot = "65532:65532"

// newBase returns what a static program needs in its image: a user other than root, the certificate
// authorities of browsers, and a folder for temporary files. The authorities are those of Mozilla, in
// the version in go.mod.
func newBase(platforms []string) (v1.ImageIndex, error) {
	layer, err := baseLayer()
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, text := range platforms {
		platform, err := v1.ParsePlatform(text)
		if err != nil {
			return nil, err
		}
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		if image, err = mutate.AppendLayers(image, layer); err != nil {
			return nil, err
		}
		config, err := image.ConfigFile()
		if err != nil {
			return nil, err
		}
		config = config.DeepCopy()
		config.OS, config.Architecture, config.Variant = platform.OS, platform.Architecture, platform.Variant
		config.Config.User, config.Config.WorkingDir = nonroot, "/"
		if image, err = mutate.ConfigFile(image, config); err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
	}
	return index, nil
}

func baseLayer() (v1.Layer, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // the file format has no place for the purposes of trust
		}
		if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	for _, file := range []struct {
		name    string
		mode    int64
		content string
	}{
		{"etc/passwd", 0o644, "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"},
		{"etc/group", 0o644, "root:x:0:\nnonroot:x:65532:\n"},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, roots.String()},
		{"tmp/", 0o1777, ""},
	} {
		header := &tar.Header{Name: file.name, Mode: file.mode, Size: int64(len(file.content)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if file.content == "" {
			header.Typeflag = tar.TypeDir
		}
		if err := out.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("write %s: %w", file.name, err)
		}
		if _, err := io.WriteString(out, file.content); err != nil {
			return nil, fmt.Errorf("write %s: %w", file.name, err)
		}
	}
	if err := out.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
}

package addonsource

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vitistack/stack/apis/cluster/addons"
)

// Limits of an artifact beside addons.MaxSize, which its manifests have together.
const (
	// maxArtifactFiles is the number of files with manifests.
	maxArtifactFiles = 1000
	// maxArtifactArchive is the number of bytes of an unpacked archive, with other files and the headers of all.
	maxArtifactArchive = 2 * addons.MaxSize
	// maxArtifactPath is the length of the path of a file, because messages name it.
	maxArtifactPath = 255
)

var errArtifactTooLarge = invalidArtifact(fmt.Sprintf("has more than %d MiB: split it into several add-ons, and leave out other files", addons.MaxSize>>20))

// artifactFiles collects the files with manifests of an artifact, in memory alone.
type artifactFiles struct {
	// texts are the contents of the files by their paths.
	texts map[string]string
	// left is the number of bytes that further files may have.
	left int64
}

func newArtifactFiles() *artifactFiles {
	return &artifactFiles{texts: map[string]string{}, left: addons.MaxSize}
}

// isArchive reports whether a layer is an archive, as flux pushes it, or oras for a directory.
func isArchive(layer ocispec.Descriptor) bool { return strings.HasSuffix(layer.MediaType, "tar+gzip") }

// needs reports whether a layer has manifests: an archive, or a file that oras has pushed with its name.
func (f *artifactFiles) needs(layer ocispec.Descriptor) bool {
	return isArchive(layer) || isManifestFile(layer.Annotations[ocispec.AnnotationTitle])
}

// addLayer adds the files of a layer with a content.
func (f *artifactFiles) addLayer(layer ocispec.Descriptor, text []byte) error {
	if !isArchive(layer) {
		return f.add(layer.Annotations[ocispec.AnnotationTitle], bytes.NewReader(text))
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return archiveError(err)
	}
	archive := tar.NewReader(http.MaxBytesReader(nil, unpacked, maxArtifactArchive))
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return archiveError(err)
		}
		if entry.Typeflag != tar.TypeReg || !isManifestFile(entry.Name) {
			continue
		}
		if err := f.add(entry.Name, archive); err != nil {
			return err
		}
	}
}

// archiveError returns what an error in an archive means for its artifact.
func archiveError(err error) error {
	if errors.As(err, new(*http.MaxBytesError)) {
		return errArtifactTooLarge
	}
	return invalidArtifact(fmt.Sprintf("has a layer that is no archive: %s", err))
}

// isManifestFile reports whether a file has manifests, or says how to make some of others.
func isManifestFile(name string) bool {
	return slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) || isKustomization(name)
}

// isKustomization reports whether kustomize evaluates a file.
func isKustomization(name string) bool {
	return slices.Contains([]string{"kustomization.yaml", "kustomization.yml", "Kustomization"}, path.Base(name))
}

// add adds a file with manifests.
func (f *artifactFiles) add(name string, content io.Reader) error {
	name = path.Clean(name)
	_, exists := f.texts[name]
	switch {
	case len(name) > maxArtifactPath:
		return invalidArtifact(fmt.Sprintf("has a path of more than %d characters: push it with a shorter one", maxArtifactPath))
	case isKustomization(name):
		return invalidArtifact(fmt.Sprintf("has %s, which is not evaluated: push what kustomize build prints", name))
	case exists:
		return invalidArtifact(fmt.Sprintf("has %s twice: push it once", name))
	case len(f.texts) == maxArtifactFiles:
		return invalidArtifact(fmt.Sprintf("has more than %d files: split it into several add-ons", maxArtifactFiles))
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, io.NopCloser(content), f.left))
	if err != nil {
		return archiveError(err)
	}
	f.texts[name] = string(text)
	f.left -= int64(len(text))
	return nil
}

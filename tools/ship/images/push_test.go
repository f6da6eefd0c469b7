package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// smallStack creates a module with the manifests of the repository and with empty programs, so that
// only the push is tested.
func smallStack(t *testing.T) (root string, names []string) {
	t.Helper()
	repository, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := programs(repository)
	if err != nil {
		t.Fatal(err)
	}
	root = t.TempDir()
	if err := os.Symlink(filepath.Join(repository, "knative"), filepath.Join(root, "knative")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"go.mod": "module github.com/vitistack/stack\n\ngo 1.26\n"}
	for _, program := range all {
		folder := strings.TrimPrefix(program, "ko://github.com/vitistack/stack/")
		files[filepath.Join(folder, "main.go")] = "package main\n\nvar version string\n\nfunc main() { print(version) }\n"
		names = append(names, short(program))
	}
	for path, text := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, names
}

// TestPush pushes the images to a registry, and compares them with the layout under the names that the
// chart derives from repository and tag: an index of both platforms.
func TestPush(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/vitistack"
	root, names := smallStack(t)
	out := filepath.Join(t.TempDir(), "images")
	var digests strings.Builder
	if err := run(t.Context(), options{root: root, out: out, push: repository + ":v1.2.3", version: "v1.2.3", platforms: []string{"linux/amd64", "linux/arm64"}, digests: &digests}); err != nil {
		t.Fatal(err)
	}
	path, err := layout.FromPath(out)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := kept.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(names) < 8 || len(manifest.Manifests) != len(names) {
		t.Errorf("%d images for %d programs", len(manifest.Manifests), len(names))
	}
	for _, entry := range manifest.Manifests {
		program := entry.Annotations["org.opencontainers.image.ref.name"]
		reference, err := name.ParseReference(repository + "/" + program + ":v1.2.3")
		if err != nil {
			t.Fatal(err)
		}
		index, err := remote.Index(reference)
		if err != nil {
			t.Errorf("%s is not in the registry: %v", program, err)
			continue
		}
		if !strings.Contains(digests.String(), program+"@"+entry.Digest.String()+"\n") {
			t.Errorf("the digest of %s is not printed", program)
		}
		if digest, err := index.Digest(); err != nil || digest != entry.Digest {
			t.Errorf("%s: the registry has %s, the layout %s (%v)", program, digest, entry.Digest, err)
		}
		pushed, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		var platforms []string
		for _, image := range pushed.Manifests {
			platforms = append(platforms, image.Platform.String())
		}
		if slices.Sort(platforms); !slices.Equal(platforms, []string{"linux/amd64", "linux/arm64"}) {
			t.Errorf("%s is for %v", program, platforms)
		}
	}
}

// TestPushOnePlatform pushes images of one platform, which need no index.
func TestPushOnePlatform(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	repository := strings.TrimPrefix(server.URL, "http://") + "/vitistack"
	root, names := smallStack(t)
	var digests strings.Builder
	if err := run(t.Context(), options{root: root, out: filepath.Join(t.TempDir(), "images"), push: repository + ":v1", version: "v1",
		platforms: []string{"linux/arm64"}, digests: &digests}); err != nil {
		t.Fatal(err)
	}
	for _, program := range names {
		reference, err := name.ParseReference(repository + "/" + program + ":v1")
		if err != nil {
			t.Fatal(err)
		}
		image, err := remote.Image(reference)
		if err != nil {
			t.Errorf("%s is not in the registry: %v", program, err)
			continue
		}
		digest, err := image.Digest()
		config, configErr := image.ConfigFile()
		if err != nil || configErr != nil {
			t.Fatal(err, configErr)
		}
		if config.Architecture != "arm64" || !strings.Contains(digests.String(), program+"@"+digest.String()+"\n") {
			t.Errorf("%s is for %s, and its digest %s is printed in\n%s", program, config.Architecture, digest, &digests)
		}
	}
}

// TestPushRefused has a registry reject one image: earlier images are printed, and no other.
func TestPushRefused(t *testing.T) {
	t.Parallel()
	root, names := smallStack(t)
	working := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/"+names[1]+"/manifests/") {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		working.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	var digests strings.Builder
	err := run(t.Context(), options{root: root, out: filepath.Join(t.TempDir(), "images"), push: strings.TrimPrefix(server.URL, "http://") + "/vitistack:v1.2.3",
		version: "v1.2.3", platforms: []string{"linux/amd64", "linux/arm64"}, digests: &digests})
	if err == nil || !strings.Contains(err.Error(), names[1]) {
		t.Errorf("the error does not name %s: %v", names[1], err)
	}
	if got := digests.String(); !strings.HasPrefix(got, names[0]+"@sha256:") || strings.Count(got, "\n") != 1 {
		t.Errorf("printed were\n%swant %s alone", got, names[0])
	}
}

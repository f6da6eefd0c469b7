// Package registry simulates an OCI registry.
package registry

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Media types of what flux, oras, helm and docker push.
const (
	FluxConfig  = "application/vnd.cncf.flux.config.v1+json"
	FluxContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
	OrasConfig  = "application/vnd.oci.empty.v1+json"
	OrasFile    = "application/vnd.oci.image.layer.v1.tar"
	HelmConfig  = "application/vnd.cncf.helm.config.v1+json"
)

// Registry is an OCI registry with TLS, which gives everyone a token. A repository has its name from what the registry
// does for it, and all of them have the same contents.
type Registry struct {
	*httptest.Server
	// Contents are manifests and blobs by tag and digest, and MediaTypes those of the manifests.
	Contents   map[string][]byte
	MediaTypes map[string]string
}

// New starts a registry, which stops with the test.
func New(t testing.TB) *Registry {
	r := &Registry{Contents: map[string][]byte{}, MediaTypes: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/token", func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.FormValue("scope"), "private") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"token": "anonymous"}`))
	})
	mux.HandleFunc("/v2/{repository}/{kind}/{reference}", r.serve)
	mux.HandleFunc("/cdn/{reference}", func(w http.ResponseWriter, req *http.Request) { _, _ = w.Write(r.Contents[req.PathValue("reference")]) })
	r.Server = httptest.NewTLSServer(mux)
	t.Cleanup(r.Close)
	return r
}

// serve answers the requests for manifests and blobs.
func (r *Registry) serve(w http.ResponseWriter, req *http.Request) {
	repository, reference := req.PathValue("repository"), req.PathValue("reference")
	challenge := map[string]string{"basic": `Basic realm="x"`, "plain": `Bearer realm="http://127.0.0.1/token"`, "foreign": `Bearer realm="https://169.254.169.254/token"`}[repository]
	if challenge == "" {
		challenge = fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:%s:pull"`, r.URL, repository)
	}
	content, exists := r.Contents[reference]
	switch isBlob := req.PathValue("kind") == "blobs"; {
	case repository == "broken":
		w.WriteHeader(http.StatusBadGateway)
	case repository == "denied":
		w.WriteHeader(http.StatusUnauthorized)
	case req.Header.Get("Authorization") != "Bearer anonymous":
		w.Header().Set("WWW-Authenticate", challenge)
		w.WriteHeader(http.StatusUnauthorized)
	case !exists:
		w.WriteHeader(http.StatusNotFound)
	case isBlob && repository == "moved":
		http.Redirect(w, req, "https://169.254.169.254/latest", http.StatusTemporaryRedirect)
	case isBlob && repository == "cdn":
		http.Redirect(w, req, "/cdn/"+reference, http.StatusTemporaryRedirect)
	default:
		if !isBlob {
			w.Header().Set("Content-Type", r.MediaTypes[reference])
		}
		if repository != "bare" && strings.HasPrefix(reference, "sha256:") {
			w.Header().Set("Docker-Content-Digest", reference)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // oras needs it of manifests
		_, _ = w.Write(content)
	}
}

// Layer is a layer as a client pushes it.
type Layer struct {
	MediaType, Title string
	Content          []byte
}

// Push adds an artifact, and returns the digest of its manifest.
func (r *Registry) Push(tag, config string, layers ...Layer) string {
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: ocispec.DescriptorEmptyJSON}
	manifest.Config.MediaType = config
	for _, l := range layers {
		d := ocispec.Descriptor{MediaType: l.MediaType, Digest: digest.FromBytes(l.Content), Size: int64(len(l.Content))}
		if l.Title != "" {
			d.Annotations = map[string]string{ocispec.AnnotationTitle: l.Title}
		}
		manifest.Layers = append(manifest.Layers, d)
		r.Contents[d.Digest.String()] = l.Content
	}
	text, _ := json.Marshal(manifest)
	return r.Put(tag, manifest.MediaType, text)
}

// Put adds a manifest by a tag and by its digest, which it returns.
func (r *Registry) Put(tag, mediaType string, content []byte) string {
	id := digest.FromBytes(content).String()
	for _, reference := range []string{tag, id} {
		r.Contents[reference], r.MediaTypes[reference] = content, mediaType
	}
	return id
}

// Archive returns files as flux packs them.
func Archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	w := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: int64(len(files[name]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "link.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}); err != nil {
		t.Fatal(err)
	}
	if w.Close() != nil || zipped.Close() != nil {
		t.Fatal("the archive is not written")
	}
	return out.Bytes()
}

// Trusted returns the authority of the registry.
func (r *Registry) Trusted() *x509.CertPool {
	trusted := x509.NewCertPool()
	trusted.AddCert(r.Certificate())
	return trusted
}

// URLOf returns the URL of an artifact.
func (r *Registry) URLOf(reference string) string {
	return "oci://" + strings.TrimPrefix(r.URL, "https://") + "/" + reference
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/vitistack/stack/apis/cluster/addons"
	"github.com/vitistack/stack/apis/v1alpha1"
	"github.com/vitistack/stack/functions/internal/reconcile"
)

// Media types of what flux, oras, helm and docker push.
const (
	fluxConfig  = "application/vnd.cncf.flux.config.v1+json"
	fluxContent = "application/vnd.cncf.flux.content.v1.tar+gzip"
	orasConfig  = "application/vnd.oci.empty.v1+json"
	orasFile    = "application/vnd.oci.image.layer.v1.tar"
	helmConfig  = "application/vnd.cncf.helm.config.v1+json"
)

// registry is an OCI registry with TLS, which gives everyone a token. A repository has its name from what the registry
// does for it, and all of them have the same contents.
type registry struct {
	*httptest.Server
	// contents are manifests and blobs by tag and digest, and mediaTypes those of the manifests.
	contents   map[string][]byte
	mediaTypes map[string]string
}

func newRegistry(t *testing.T) *registry {
	r := &registry{contents: map[string][]byte{}, mediaTypes: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("/token", func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.FormValue("scope"), "private") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"token": "anonymous"}`))
	})
	mux.HandleFunc("/v2/{repository}/{kind}/{reference}", r.serve)
	mux.HandleFunc("/cdn/{reference}", func(w http.ResponseWriter, req *http.Request) { _, _ = w.Write(r.contents[req.PathValue("reference")]) })
	r.Server = httptest.NewTLSServer(mux)
	t.Cleanup(r.Close)
	return r
}

// serve answers the requests for manifests and blobs.
func (r *registry) serve(w http.ResponseWriter, req *http.Request) {
	repository, reference := req.PathValue("repository"), req.PathValue("reference")
	challenge := map[string]string{"basic": `Basic realm="x"`, "plain": `Bearer realm="http://127.0.0.1/token"`, "foreign": `Bearer realm="https://169.254.169.254/token"`}[repository]
	if challenge == "" {
		challenge = fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:%s:pull"`, r.URL, repository)
	}
	content, exists := r.contents[reference]
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
			w.Header().Set("Content-Type", r.mediaTypes[reference])
		}
		if repository != "bare" && strings.HasPrefix(reference, "sha256:") {
			w.Header().Set("Docker-Content-Digest", reference)
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(content))) // oras needs it of manifests
		_, _ = w.Write(content)
	}
}

// artifactLayer is a layer as a client pushes it.
type artifactLayer struct {
	mediaType, title string
	content          []byte
}

// push adds an artifact, and returns the digest of its manifest.
func (r *registry) push(tag, config string, layers ...artifactLayer) string {
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, Config: ocispec.DescriptorEmptyJSON}
	manifest.Config.MediaType = config
	for _, l := range layers {
		d := ocispec.Descriptor{MediaType: l.mediaType, Digest: digest.FromBytes(l.content), Size: int64(len(l.content))}
		if l.title != "" {
			d.Annotations = map[string]string{ocispec.AnnotationTitle: l.title}
		}
		manifest.Layers = append(manifest.Layers, d)
		r.contents[d.Digest.String()] = l.content
	}
	text, _ := json.Marshal(manifest)
	return r.put(tag, manifest.MediaType, text)
}

func (r *registry) put(tag, mediaType string, content []byte) string {
	id := digest.FromBytes(content).String()
	for _, reference := range []string{tag, id} {
		r.contents[reference], r.mediaTypes[reference] = content, mediaType
	}
	return id
}

// archive returns files as flux packs them.
func archive(t *testing.T, files map[string]string) []byte {
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

// hosts returns addonHosts with a list of allowed hosts, which trust the registry.
func (r *registry) hosts(list string) *addonHosts {
	trusted := x509.NewCertPool()
	trusted.AddCert(r.Certificate())
	h := newAddonHosts(list)
	h.client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: trusted}
	return h
}

// url returns the URL of an artifact.
func (r *registry) url(reference string) string {
	return "oci://" + strings.TrimPrefix(r.URL, "https://") + "/" + reference
}

// TestArtifacts reads what flux push artifact and oras push make.
func TestArtifacts(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	files := map[string]string{"b.yaml": "b", "sub/a.yml": "a", "./c.json": "{}", "README.md": "no manifest"}
	id := r.push("flux", fluxConfig, artifactLayer{fluxContent, "", archive(t, files)})
	r.push("oras", orasConfig, artifactLayer{orasFile, "b.yaml", []byte("b")}, artifactLayer{orasFile, "a.yaml", []byte("a")}, artifactLayer{orasFile, "LICENSE", []byte("no manifest")})
	unpacked := map[string]string{"b.yaml": "b", "sub/a.yml": "a", "c.json": "{}"}
	for reference, want := range map[string]map[string]string{
		"tools:flux":       unpacked,
		"tools@" + id:      unpacked,
		"tools:flux@" + id: unpacked,
		"bare:flux":        unpacked, // the header with the digest is optional
		"bare@" + id:       unpacked,
		"cdn:flux":         unpacked, // registries redirect to the store of the blobs
		"tools:oras":       {"a.yaml": "a", "b.yaml": "b"},
	} {
		got, err := r.hosts("127.0.0.1").read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: r.url(reference)})
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", reference, err, d)
		}
	}
}

// pushInvalid adds artifacts whose contents are refused, by tags of their names.
func (r *registry) pushInvalid(t *testing.T) {
	yaml := func(content []byte) artifactLayer { return artifactLayer{orasFile, "a.yaml", content} }
	packed := func(files map[string]string) artifactLayer { return artifactLayer{fluxContent, "", archive(t, files)} }
	many := map[string]string{}
	for i := range maxArtifactFiles + 1 {
		many[fmt.Sprintf("%d.yaml", i)] = ""
	}
	half := string(make([]byte, addons.MaxSize/2))
	for tag, layers := range map[string][]artifactLayer{
		"bomb":          {packed(map[string]string{"a.yaml": string(make([]byte, 64<<20))})},
		"other-bomb":    {packed(map[string]string{"LICENSE": string(make([]byte, 64<<20))})},
		"large":         {yaml(make([]byte, addons.MaxSize+1))},
		"large-sum":     {packed(map[string]string{"a.yaml": half, "b.yaml": half}), {orasFile, "c.yaml", []byte("c")}},
		"many":          {packed(many)},
		"long-path":     {packed(map[string]string{strings.Repeat("a/", 200) + "a.yaml": "a"})},
		"twice":         {yaml([]byte("a")), yaml([]byte("b"))},
		"kustomize":     {packed(map[string]string{"base/kustomization.yaml": "a", "a.yaml": "a"})},
		"no-gzip":       {{fluxContent, "", []byte("this is plain text")}},
		"no-tar":        {{fluxContent, "", archive(t, nil)[:20]}},
		"without-files": {packed(map[string]string{"README.md": "x"})},
	} {
		r.push(tag, fluxConfig, layers...)
	}
	r.push("chart", helmConfig, artifactLayer{"application/vnd.cncf.helm.chart.content.v1.tar+gzip", "", archive(t, map[string]string{"values.yaml": "a"})})
	r.push("image", ocispec.MediaTypeImageConfig, packed(map[string]string{"etc/a.yaml": "a"}))
	r.put("index", ocispec.MediaTypeImageIndex, []byte(`{"schemaVersion": 2, "manifests": []}`))
	r.put("no-manifest", ocispec.MediaTypeImageManifest, []byte("<html>"))
	r.put("unbounded", ocispec.MediaTypeImageManifest, make([]byte, maxArtifactManifest+1))
}

// TestArtifactErrors follows neither a registry nor an artifact to where the platform team does not allow it, and says
// how to correct the add-on.
func TestArtifactErrors(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	r.pushInvalid(t)
	good := r.push("good", orasConfig, artifactLayer{orasFile, "a.yaml", []byte("good")})
	forged := digest.FromString("other").String()
	r.contents[forged], r.mediaTypes[forged] = r.contents[good], ocispec.MediaTypeImageManifest
	r.push("changed", orasConfig, artifactLayer{orasFile, "a.yaml", []byte("true")})
	r.contents[digest.FromString("true").String()] = []byte("evil")
	r.push("lost", orasConfig, artifactLayer{orasFile, "a.yaml", []byte("lost")})
	delete(r.contents, digest.FromString("lost").String())

	for name, tc := range map[string]struct {
		why, reference string
		reason, words  string
	}{
		"Bomb":          {"memory is bounded", "tools:bomb", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Other bomb":    {"time is bounded for files of no interest too", "tools:other-bomb", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Large":         {"its size is known before it is read", "tools:large", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Large sum":     {"the limit is that of an add-on", "tools:large-sum", addons.ReasonInvalid, "has more than 2 MiB: split it"},
		"Many":          {"each file costs time", "tools:many", addons.ReasonInvalid, "has more than 1000 files"},
		"Long path":     {"messages name the path", "tools:long-path", addons.ReasonInvalid, "has a path of more than 255 characters"},
		"Twice":         {"one of both would be lost", "tools:twice", addons.ReasonInvalid, "has a.yaml twice"},
		"Kustomize":     {"its files without its patches are other objects", "tools:kustomize", addons.ReasonInvalid, "has base/kustomization.yaml, which is not evaluated: push what kustomize build prints"},
		"No gzip":       {"the media type is wrong", "tools:no-gzip", addons.ReasonInvalid, "has a layer that is no archive: gzip: "},
		"No tar":        {"the archive is cut", "tools:no-tar", addons.ReasonInvalid, "has a layer that is no archive: "},
		"Without files": {"there is nothing to apply", "tools:without-files", addons.ReasonInvalid, "has no file that ends with .yaml, .yml or .json: push some"},
		"Chart":         {"helm renders it", "tools:chart", addons.ReasonInvalid, "is a Helm chart: push what helm template prints"},
		"Image":         {"files of an image are no manifests", "tools:image", addons.ReasonInvalid, "is a container image: push manifests by flux push artifact or oras push"},
		"Index":         {"the artifact is not named", "tools:index", addons.ReasonInvalid, "is an index of several artifacts: write the digest of one of them"},
		"No manifest":   {"it is no JSON", "tools:no-manifest", addons.ReasonInvalid, "has an OCI manifest that is no JSON: "},
		"Unbounded":     {"memory is bounded", "tools:unbounded", addons.ReasonInvalid, "has an OCI manifest of more than 1 MiB"},
		"Forged":        {"a digest names its content", "tools@" + forged, addons.ReasonUnavailable, "mismatched digest. It is asked again"},
		"Forged, bare":  {"without the header too", "bare@" + forged, addons.ReasonUnavailable, "digest mismatch"},
		"Changed":       {"the manifest names the content of layers", "tools:changed", addons.ReasonUnavailable, "mismatched digest. It is asked again"},
		"Changed, cdn":  {"after a redirect too", "cdn:changed", addons.ReasonUnavailable, "mismatched digest. It is asked again"},
		"Lost":          {"the registry has lost a layer", "tools:lost", addons.ReasonNotFound, "is not in the registry: push it, or correct the URL"},
		"No tag":        {"latest would never be read again", "tools", addons.ReasonNotFound, "write a tag or a digest"},
		"No reference":  {"a digest is cut", "tools@sha256:12", addons.ReasonNotFound, "invalid digest"},
		"Unknown":       {"the tag is wrong", "tools:unknown", addons.ReasonNotFound, "is not in the registry: push it, or correct the URL"},
		"Private":       {"the token server refuses", "private:good", addons.ReasonNotFound, "answers 403 Forbidden: make the artifact public, correct the URL, or put the manifests into a ConfigMap and name it in configMap"},
		"Denied":        {"the registry has no token server", "denied:good", addons.ReasonNotFound, "answers 401 Unauthorized: make the artifact public"},
		"Basic":         {"the registry wants a password", "basic:good", addons.ReasonNotFound, "answers 401 Unauthorized: make the artifact public"},
		"Broken":        {"the registry is at fault", "broken:good", addons.ReasonUnavailable, "answers 502 Bad Gateway. It is asked again every minute"},
		"Plain realm":   {"a token server without TLS can be forged", "plain:good", addons.ReasonUnavailable, "uses http"},
		"Foreign realm": {"a token server is at an allowed host", "foreign:good", addons.ReasonNotAllowed, "leads to 169.254.169.254"},
		"Moved":         {"a redirect leads to no other host", "moved:good", addons.ReasonNotAllowed, "leads to 169.254.169.254"},
	} {
		url := r.url(tc.reference)
		_, err := r.hosts("127.0.0.1").read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: url})
		problem, _ := reconcile.AsUserError(err)
		if problem.Reason != tc.reason || !strings.Contains(problem.Message, tc.words) || !strings.Contains(problem.Message, path.Dir(url[6:])) {
			t.Errorf("%s: %s: got %v", name, tc.why, err)
		}
	}
	_, err := r.hosts("example.com").read(t.Context(), v1alpha1.ClusterAddon{Name: "a", URL: r.url("tools:good")})
	if problem, _ := reconcile.AsUserError(err); problem.Reason != addons.ReasonNotAllowed || !strings.Contains(problem.Message, "manifests are not read from 127.0.0.1: put them into a ConfigMap") {
		t.Errorf("the registry is not listed, got %v", err)
	}
}

// TestAddonByArtifact applies the manifests of an artifact to a cluster, and then those of another tag.
func TestAddonByArtifact(t *testing.T) {
	t.Parallel()
	r := newRegistry(t)
	for _, color := range []string{"red", "blue"} {
		r.push(color, fluxConfig, artifactLayer{fluxContent, "", archive(t, map[string]string{"tools/settings.yaml": settings(color)})})
	}
	s := newEnv(t, envOptions{})
	s.function.addons.hosts = r.hosts("127.0.0.1")
	kc := s.cluster("shop", 1, 0)
	kc.Spec.Addons = []v1alpha1.ClusterAddon{{Name: "tools", URL: r.url("tools:red")}}
	s.create(kc)
	s.awaitRunning("shop")
	s.awaitSetting("shop", "red")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons[0].URL = r.url("tools:lost") })
	s.awaitReason("shop", addons.ReasonNotFound, "add-on tools: "+r.url("tools:lost")+" is not in the registry: push it, or correct the URL")
	s.change("shop", func(kc *v1alpha1.KubernetesCluster) { kc.Spec.Addons[0].URL = r.url("tools:blue") })
	s.awaitRunning("shop")
	s.awaitSetting("shop", "blue")
	if a := s.get("shop").Status.Addons; len(a) != 1 || a[0].Source != r.url("tools:blue") || a[0].Objects != 2 {
		t.Errorf("the status has %+v", a)
	}
}
